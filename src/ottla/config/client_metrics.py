"""A subscription to the metrics of clients: which clients, which metrics, how often (KIP-714)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, cast

from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym, describe_key, describe_unknown
from ottla.config.key import ConfigError, ConfigKey, ConfigType, Value, by_name
from ottla.runtime.regex import Regex, RegexError, compile_regex

INTERVAL_MS_DEFAULT = 5 * 60 * 1000
ALL_METRICS = "*"
MATCHED = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

CLIENT_METRICS_KEYS = by_name(
    (
        ConfigKey(
            "metrics",
            ConfigType.LIST,
            (),
            f"What the names of the wanted metrics begin with; `{ALL_METRICS}` for all of them.",
        ),
        ConfigKey(
            "interval.ms",
            ConfigType.INT,
            INTERVAL_MS_DEFAULT,
            "How often clients push. Where subscriptions overlap, the shortest.",
            minimum=100,
            maximum=3_600_000,
        ),
        ConfigKey(
            "match",
            ConfigType.LIST,
            (),
            "Which clients: name=expression, all of which must match the whole of what the client is. Names "
            f"are {', '.join(MATCHED)}. Empty is every client.",
        ),
    )
)


class Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, Regex], ...]

    def covers(self, client: Mapping[str, str | None]) -> bool:
        """`client` has a value for each of `MATCHED`, None where it is not known."""
        return all(
            (value := client[name]) is not None and expression.matches(value)
            for name, expression in self.match
        )


def client_metrics_subscription(values: Mapping[str, str]) -> Subscription:
    """Raises ConfigError."""
    parsed = {name: _parse(name, text) for name, text in values.items()}
    defaults = {name: key.default for name, key in CLIENT_METRICS_KEYS.items()}
    settings = defaults | parsed
    return Subscription(
        cast("tuple[str, ...]", settings["metrics"]),
        cast(int, settings["interval.ms"]),
        tuple(_criterion(text) for text in cast("tuple[str, ...]", settings["match"])),
    )


def describe_client_metrics(
    values: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    known = [
        _described(key, values.get(name))
        for name, key in CLIENT_METRICS_KEYS.items()
        if names is None or name in names
    ]
    return known + [
        describe_unknown(name, ConfigSource.CLIENT_METRICS)
        for name in sorted(values.keys() - CLIENT_METRICS_KEYS.keys())
        if names is None or name in names
    ]


def _described(key: ConfigKey, text: str | None) -> ConfigEntry:
    if text is None:
        return describe_key(key, key.default, (), read_only=False)
    # As it was set: what another version wrote need not parse here.
    entry = describe_key(
        key, None, (ConfigSynonym(key.name, text, ConfigSource.CLIENT_METRICS),), read_only=False
    )
    return entry._replace(value=text)


def _parse(name: str, text: str) -> Value:
    key = CLIENT_METRICS_KEYS.get(name)
    if key is None:
        known = ", ".join(CLIENT_METRICS_KEYS)
        raise ConfigError(f"{name}: is not a setting of client metrics; these are {known}")
    return key.parse(text)


def _criterion(text: str) -> tuple[str, Regex]:
    name, _, expression = (part.strip() for part in text.partition("="))
    if name not in MATCHED or not expression or "=" in expression:
        raise ConfigError(
            f"match={text}: must be name=expression, with a name of {', '.join(MATCHED)} and no other ="
        )
    try:
        return name, compile_regex(expression)
    except RegexError as error:
        raise ConfigError(f"match={text}: the expression cannot be used: {error}") from error
