"""The options of the sink, under the names of Spark's Kafka sink; `kafka.*` are settings of the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.transaction import TRANSACTION_TIMEOUT_MS
from ottla.records.arrow_encode import BATCH_BYTES
from ottla.records.compression import CODEC_NAMES

_PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"
# The wait between attempts; short, because the end of one transaction and the start of the next meet here.
_RETRY_BACKOFF_MS = "20"


class InvalidOption(ValueError):
    """An option is missing or has a value that cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap_servers: str
    topic: str | None
    """Where all rows go; None: each row names its topic."""
    codec: int
    batch_bytes: int
    transaction_timeout_ms: int
    client: tuple[tuple[str, str], ...]
    """Settings of the connection: security, timeouts."""

    @property
    def client_properties(self) -> dict[str, str]:
        return dict(self.client)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Raises InvalidOption."""
    given = {name.lower(): str(value) for name, value in options.items()}
    client = {name[len(_PREFIX) :]: value for name, value in given.items() if name.startswith(_PREFIX)}
    bootstrap_servers = client.pop(_BOOTSTRAP, None)
    if not bootstrap_servers:
        raise InvalidOption(
            f"The option {_PREFIX}{_BOOTSTRAP} is missing: set it to brokers of the cluster to write to, "
            "such as localhost:9092."
        )
    codec = client.pop("compression.type", "none")
    if codec not in CODEC_NAMES:
        raise InvalidOption(
            f"{_PREFIX}compression.type is {codec!r}; it can be one of {', '.join(CODEC_NAMES)}."
        )
    batch_bytes = _positive(client, "batch.size", BATCH_BYTES)
    timeout_ms = _positive(client, "transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    client.setdefault("retry.backoff.ms", _RETRY_BACKOFF_MS)
    return SinkOptions(
        bootstrap_servers,
        given.get("topic") or None,
        CODEC_NAMES.index(codec),
        batch_bytes,
        timeout_ms,
        tuple(sorted(client.items())),
    )


def _positive(client: dict[str, str], name: str, default: int) -> int:
    value = client.pop(name, None)
    if value is None:
        return default
    if not value.isdecimal() or int(value) == 0:
        raise InvalidOption(f"{_PREFIX}{name} is {value!r}; it has to be a whole number greater than 0.")
    return int(value)
