"""Prints docs/reference/configuration.md from the declarations: `python -m ottla.config.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.config.access_keys import ACCESS_KEYS
from ottla.config.client_metrics import CLIENT_METRICS_KEYS
from ottla.config.cluster_keys import CLUSTER_KEYS
from ottla.config.coordinator_keys import COORDINATOR_KEYS
from ottla.config.group import GROUP_KEYS
from ottla.config.key import INT_MAX, LONG_MAX, ConfigKey, Value
from ottla.config.log_keys import LOG_KEYS
from ottla.config.server_keys import SERVER_KEYS
from ottla.config.share_keys import SHARE_KEYS
from ottla.config.topic_keys import LOG_DEFAULT_KEYS, TOPIC_KEYS

_INTRO = """\
# Configuration

<!-- Made by `make docs` from the declarations in src/ottla/config. Do not edit. -->

Names, defaults and bounds are Apache Kafka's. A `server.properties` file written for Kafka is read as it is;
keys that Ottla does not know are named in a warning and otherwise ignored. Where a default differs from
Kafka's, the key says so.

- **At start**: `ottla start server.properties --set key=value`; flags win over the file.
- **Of one topic**: when it is created, or later with any admin client. A topic setting that is not set takes
  the value of the broker key named next to it.
- **While running**: keys marked *cluster-wide* can be changed for one broker or as the default of all
  brokers with any admin client, and take effect at once. All others are read at start.
- *No effect in this version* marks keys that are accepted and checked, so that existing files and tools work,
  but change nothing.
"""

_UNITS_MS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
_UNITS_BYTES = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    yield from _section("Topics", TOPIC_KEYS.values())
    yield from _section("Groups", GROUP_KEYS.values())
    yield from _section("Metrics of clients", CLIENT_METRICS_KEYS.values())
    yield from _section("Brokers: defaults of topic settings", LOG_DEFAULT_KEYS)
    yield from _section("Brokers: storage", LOG_KEYS)
    yield from _section("Brokers: network and requests", SERVER_KEYS)
    yield from _section("Brokers: access", ACCESS_KEYS)
    yield from _section("Brokers: cluster and replication", CLUSTER_KEYS)
    yield from _section("Brokers: groups and transactions", COORDINATOR_KEYS)
    yield from _section("Brokers: share groups", SHARE_KEYS)


def _section(title: str, keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield f"## {title}\n"
    for key in sorted(keys, key=lambda key: key.name):
        if key.internal:
            continue
        facts = [key.type.name.lower(), f"default {_default(key)}"]
        if key.bounds:
            facts.append(key.bounds)
        if key.synonyms:
            facts.append("broker key " + ", ".join(f"`{synonym.name}`" for synonym in key.synonyms))
        elif key.dynamic != "read-only":
            facts.append(key.dynamic)
        yield f"### `{key.name}`\n"
        yield key.doc + ("" if key.effective else " *No effect in this version.*")
        yield f"\n{' · '.join(facts)}\n"


def _default(key: ConfigKey) -> str:
    text = key.format(key.default)
    if text is None:
        return "not set"
    human = _human(key.name, key.default)
    return f"`{text}`{human}" if text else "empty"


def _human(name: str, value: Value) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if value in {INT_MAX, LONG_MAX}:
        return " (no limit)"
    units = _UNITS_MS if name.endswith(".ms") else _UNITS_BYTES if "bytes" in name or "size" in name else ()
    for size, unit in units:
        if value >= size and value % size == 0:
            count = value // size
            plural = "s" if count > 1 and units is _UNITS_MS else ""
            return f" ({count} {unit}{plural})"
    return ""


if __name__ == "__main__":
    print(render(), end="")
