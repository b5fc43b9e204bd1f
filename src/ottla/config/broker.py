"""A broker's settings: the file it was started with, under what was changed while it runs.

Four layers, the first that has a key wins: dynamic for this broker, dynamic for the whole cluster, static
(file and flags), declared default. Values are parsed once, when an object is made; objects never change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, NoReturn

from ottla.config.access_keys import ACCESS_KEYS
from ottla.config.cluster_keys import CLUSTER_KEYS
from ottla.config.coordinator_keys import COORDINATOR_KEYS
from ottla.config.entry import ConfigEntry, ConfigSource, ConfigSynonym, describe_key, describe_unknown
from ottla.config.key import ConfigError, ConfigKey, Value, by_name
from ottla.config.listener_settings import ListenerSettings, parse_listener_key
from ottla.config.listeners import (
    Address,
    Endpoint,
    listener_names,
    parse_address,
    parse_endpoints,
    parse_headers,
    parse_protocol_map,
    parse_voters,
)
from ottla.config.log_keys import LOG_KEYS
from ottla.config.principals import parse_super_users
from ottla.config.rules import check_broker
from ottla.config.security_keys import SECURITY_KEYS
from ottla.config.server_keys import SERVER_KEYS
from ottla.config.share_keys import SHARE_KEYS
from ottla.config.topic_keys import LOG_DEFAULT_KEYS, TOPIC_KEYS

BROKER_KEYS = by_name(
    LOG_DEFAULT_KEYS,
    LOG_KEYS,
    SERVER_KEYS,
    SECURITY_KEYS,
    ACCESS_KEYS,
    CLUSTER_KEYS,
    COORDINATOR_KEYS,
    SHARE_KEYS,
)

# Broker keys that are one setting under several names, the strongest first.
_CHAINS = {
    synonym.name: tuple(other.name for other in key.synonyms)
    for key in TOPIC_KEYS.values()
    for synonym in key.synonyms
}

RECORDS_VALIDATE = "ottla.records.validate"
CONNECTION_RATE = "max.connection.creation.rate"

_Layer = Mapping[str, str]


class UnusedSetting(NamedTuple):
    """A dynamic setting that is stored, but that this broker cannot follow."""

    source: ConfigSource
    name: str
    text: str
    reason: str


class BrokerConfig:
    """Typed, parsed access to every broker key."""

    __slots__ = (
        "_layers",
        "_topic_values",
        "_values",
        "connection_rates",
        "fetch_bytes_max",
        "of_listeners",
        "unknown_keys",
        "unused",
        "walking_listeners",
    )

    def __init__(
        self, static: _Layer, cluster_default: _Layer, broker: _Layer, unused: tuple[UnusedSetting, ...] = ()
    ) -> None:
        self.unused = unused
        self._layers = (
            (ConfigSource.BROKER, broker),
            (ConfigSource.CLUSTER_DEFAULT, cluster_default),
            (ConfigSource.STATIC, static),
        )
        self._values: dict[str, Value] = {name: self._resolve(key) for name, key in BROKER_KEYS.items()}
        self._topic_values = {name: self._resolve_topic_default(key) for name, key in TOPIC_KEYS.items()}
        check_broker(self._values, self._topic_values)
        self.of_listeners = self._resolve_of_listeners()
        """What listeners have for themselves, by its whole name."""
        self.walking_listeners = frozenset(
            endpoint.listener
            for endpoint in self.broker_listeners
            if self.listener(endpoint.listener).string(RECORDS_VALIDATE) == "records"
        )
        """Those where every record that comes in is looked at."""
        self.fetch_bytes_max = self.integer("fetch.max.bytes")
        """At hand, because every fetch looks at it."""
        self.connection_rates = {
            endpoint.listener: rate
            for endpoint in self.broker_listeners
            if isinstance(rate := self.listener(endpoint.listener).own(CONNECTION_RATE), int)
        }
        """Connections per second of listeners that have a limit of their own."""
        self.unknown_keys = tuple(
            sorted(name for name in static if name not in BROKER_KEYS and not self._is_of_listener(name))
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        return cls(_with_node_id(properties), {}, {})

    def with_dynamic(self, cluster_default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """The same file under other dynamic settings; ConfigError when they contradict it or each other.

        Those that cannot be used whatever the others are (`validate_broker`) become `unused`: metadata of
        another version has them, and it is to be followed as far as it goes.
        """
        static = self._layers[-1][1]
        usable_default, unused_default = _usable(ConfigSource.CLUSTER_DEFAULT, cluster_default)
        usable, unused = _usable(ConfigSource.BROKER, broker)
        return BrokerConfig(static, usable_default, usable, (*unused_default, *unused))

    def with_replayed(self, cluster_default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """As `with_dynamic`, for settings that are in force already: never raises.

        They may contradict a file that was edited since. As many as agree with it are used.
        """
        try:
            return self.with_dynamic(cluster_default, broker)
        except ConfigError:
            pass
        kept: dict[ConfigSource, dict[str, str]] = {ConfigSource.CLUSTER_DEFAULT: {}, ConfigSource.BROKER: {}}
        left = [(ConfigSource.CLUSTER_DEFAULT, *item) for item in sorted(cluster_default.items())]
        left += [(ConfigSource.BROKER, *item) for item in sorted(broker.items())]
        refused: list[UnusedSetting] = []
        # Some agree only once another one is there, hence again until none is taken.
        while True:
            refused = []
            for source, name, text in left:
                kept[source][name] = text
                try:
                    self.with_dynamic(kept[ConfigSource.CLUSTER_DEFAULT], kept[ConfigSource.BROKER])
                except ConfigError as error:
                    del kept[source][name]
                    refused.append(UnusedSetting(source, name, text, str(error)))
            if len(refused) == len(left):
                break
            left = [(setting.source, setting.name, setting.text) for setting in refused]
        config = self.with_dynamic(kept[ConfigSource.CLUSTER_DEFAULT], kept[ConfigSource.BROKER])
        config.unused += tuple(refused)
        return config

    def boolean(self, name: str) -> bool:
        value = self._values[name]
        return value if isinstance(value, bool) else _wrong_type(name, "boolean")

    def integer(self, name: str) -> int:
        value = self._values[name]
        return value if isinstance(value, int) else _wrong_type(name, "integer")

    def number(self, name: str) -> float:
        value = self._values[name]
        return value if isinstance(value, float) else _wrong_type(name, "number")

    def string(self, name: str) -> str:
        value = self._values[name]
        return value if isinstance(value, str) else _wrong_type(name, "string")

    def strings(self, name: str) -> tuple[str, ...]:
        value = self._values[name]
        return value if isinstance(value, tuple) else _wrong_type(name, "list")

    def optional_string(self, name: str) -> str | None:
        return None if self._values[name] is None else self.string(name)

    def topic_value(self, name: str) -> Value:
        """What a topic setting is when the topic does not set it."""
        return self._topic_values[name]

    @property
    def node_id(self) -> int:
        return self.integer("node.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        return self.strings("log.dir" if self._values["log.dirs"] is None else "log.dirs")

    @property
    def metadata_log_dir(self) -> str:
        return self.optional_string("metadata.log.dir") or self.log_dirs[0]

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """Where clients connect; the controller's own listeners are not among them."""
        return self._broker_side(parse_endpoints("listeners", self.strings("listeners")))

    @property
    def inter_broker_listener(self) -> str:
        """The listener on which brokers reach each other."""
        name = self.optional_string("inter.broker.listener.name")
        return (name or self.string("security.inter.broker.protocol")).upper()

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...] | None:
        if self._values["advertised.listeners"] is None:
            return None
        return self._broker_side(
            parse_endpoints("advertised.listeners", self.strings("advertised.listeners"))
        )

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """Where other nodes reach the controller of this one."""
        everywhere = parse_endpoints("listeners", self.strings("listeners"))
        clients = self._broker_side(everywhere)
        return tuple(endpoint for endpoint in everywhere if endpoint not in clients)

    @property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """Where other nodes are told to reach it."""
        told = parse_endpoints(
            "advertised.listeners",
            self.strings("advertised.listeners") if self._values["advertised.listeners"] else (),
        )
        by_name = {endpoint.listener: endpoint for endpoint in told}
        return tuple(by_name.get(endpoint.listener, endpoint) for endpoint in self.controller_listeners)

    @property
    def quorum_voters(self) -> Mapping[int, Address]:
        """Members of the controller quorum by id; empty where this node is the only one."""
        return parse_voters(self.strings("controller.quorum.voters"))

    @property
    def super_users(self) -> frozenset[str]:
        return parse_super_users(self.string("super.users"))

    @property
    def metrics_listener(self) -> Address | None:
        return parse_address("ottla.metrics.listener", self.string("ottla.metrics.listener"))

    @property
    def otel_headers(self) -> Mapping[str, str]:
        return parse_headers(self.optional_string("ottla.otel.headers"))

    def listener(self, name: str) -> ListenerSettings:
        """A listener of a controller that the map does not name is open, as in Apache Kafka."""
        protocols = parse_protocol_map(self.string("listener.security.protocol.map"))
        return ListenerSettings(self, name, protocols.get(name, "PLAINTEXT"))

    @property
    def to_brokers(self) -> Mapping[str, str]:
        """How this broker reaches others, as properties of a client."""
        mechanism = self.string("sasl.mechanism.inter.broker.protocol")
        return self.listener(self.inter_broker_listener).peer_properties(mechanism)

    @property
    def to_controllers(self) -> Mapping[str, str]:
        """How this node reaches controllers, as properties of a client."""
        name = self.strings("controller.listener.names")[0].upper()
        return self.listener(name).peer_properties(self.string("sasl.mechanism.controller.protocol"))

    @property
    def early_listeners(self) -> frozenset[str]:
        """Those that are served before the access rules are known, to super users alone."""
        named = self.optional_string("early.start.listeners")
        return self._controller_names if named is None else listener_names(named)

    @property
    def _controller_names(self) -> frozenset[str]:
        return frozenset(name.upper() for name in self.strings("controller.listener.names"))

    def _broker_side(self, endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        return tuple(endpoint for endpoint in endpoints if endpoint.listener not in self._controller_names)

    def describe(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """This broker's settings, all of them or those named; unknown names are left out, as Kafka does."""
        known = [
            describe_key(key, self._values[name], self.synonyms(name), read_only=key.dynamic == "read-only")
            for name, key in BROKER_KEYS.items()
            if (names is None or name in names) and (not key.internal or self._is_set(name))
        ]
        known += self._describe_of_listeners(names)
        # The setting of this broker hides that of all brokers.
        unknown = {s.name: s.source for s in self.unused if s.name not in BROKER_KEYS}
        return known + [
            describe_unknown(name, source)
            for name, source in sorted(unknown.items())
            if names is None or name in names
        ]

    def _describe_of_listeners(self, names: Collection[str] | None) -> list[ConfigEntry]:
        entries = []
        for name, value in sorted(self.of_listeners.items()):
            found = parse_listener_key(name)
            if found is not None and (names is None or name in names):
                synonyms = tuple(
                    ConfigSynonym(name, _shown(found.key, layer[name]), source)
                    for source, layer in self._layers
                    if name in layer
                )
                read_only = found.key.dynamic == "read-only"
                entries.append(describe_key(found.key, value, synonyms, read_only=read_only))
        return entries

    def describe_cluster_default(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """What was set for the whole cluster, and nothing else."""
        layer = self._layers[1][1]
        known = [
            describe_key(
                key,
                key.parse(layer[name]),
                (ConfigSynonym(name, _shown(key, layer[name]), ConfigSource.CLUSTER_DEFAULT),),
                read_only=False,
            )
            for name, key in BROKER_KEYS.items()
            if name in layer and (names is None or name in names)
        ]
        return known + [
            describe_unknown(setting.name, setting.source)
            for setting in self.unused
            if setting.source is ConfigSource.CLUSTER_DEFAULT and (names is None or setting.name in names)
        ]

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """The places that the setting called `name` could come from, the one it does come from first.

        Those before the first mention of `name` itself are left out, as Kafka does: with nothing but the
        default of `log.retention.hours`, there are none for `log.retention.ms`.
        """
        chain = _CHAINS.get(name, (name,))
        found = [
            ConfigSynonym(other, _shown(BROKER_KEYS[other], layer[other]), source)
            for source, layer in self._layers
            for other in chain
            if other in layer
        ]
        for other in chain:
            key = BROKER_KEYS[other]
            if key.default is not None:
                text = key.format(key.default) or ""
                found.append(ConfigSynonym(other, _shown(key, text), ConfigSource.DEFAULT))
        own = (index for index, synonym in enumerate(found) if synonym.name == name)
        return tuple(found[next(own, len(found)) :])

    def _is_set(self, name: str) -> bool:
        return any(name in layer for _, layer in self._layers)

    def _resolve(self, key: ConfigKey) -> Value:
        for _, layer in self._layers:
            text = layer.get(key.name)
            if text is not None:
                return key.parse(text)
        return key.default

    def _resolve_of_listeners(self) -> dict[str, Value]:
        resolved: dict[str, Value] = {}
        for _, layer in self._layers:
            for name, text in layer.items():
                found = parse_listener_key(name)
                if found is not None and name not in resolved:
                    resolved[name] = found.key.parse(text)
        return resolved

    def _is_of_listener(self, name: str) -> bool:
        """Of one that there is, or on which this node reaches others."""
        found = parse_listener_key(name)
        names = {endpoint.listener for endpoint in parse_endpoints("listeners", self.strings("listeners"))}
        return found is not None and found.listener in names | self._controller_names | {
            self.inter_broker_listener
        }

    def _resolve_topic_default(self, topic_key: ConfigKey) -> Value:
        for _, layer in self._layers:
            for synonym in topic_key.synonyms:
                if synonym.name in layer:
                    return _scaled(BROKER_KEYS[synonym.name].parse(layer[synonym.name]), synonym.factor)
        return topic_key.default


def validate_broker(overrides: Mapping[str, str], *, per_broker: bool) -> None:
    """Whether these may be set while brokers run: for one of them, or as the default of all."""
    for name, text in overrides.items():
        of_listener = parse_listener_key(name)
        key = BROKER_KEYS.get(name) if of_listener is None else of_listener.key
        if key is None:
            raise unknown_key("broker", name, BROKER_KEYS)
        if of_listener is not None and not per_broker:
            raise ConfigError(f"{name}: must be set for one broker, not as the default of all")
        if key.dynamic == "read-only":
            raise ConfigError(
                f"{name}: cannot be changed while the broker runs; set it in the file and restart"
            )
        if key.dynamic == "per-broker" and not per_broker:
            raise ConfigError(f"{name}: must be set for one broker, not as the default of all")
        if key.parse(text) == 0 and name == "max.connections":
            raise ConfigError(
                f"{name}={text}: must be at least 1; nobody could connect any more, not even to set it back. "
                "To keep all clients away, stop the broker"
            )


def _usable(source: ConfigSource, layer: _Layer) -> tuple[dict[str, str], list[UnusedSetting]]:
    usable: dict[str, str] = {}
    unused = []
    for name, text in layer.items():
        try:
            validate_broker({name: text}, per_broker=source is ConfigSource.BROKER)
        except ConfigError as error:
            unused.append(UnusedSetting(source, name, text, str(error)))
        else:
            usable[name] = text
    return usable, unused


def unknown_key(kind: str, name: str, keys: Mapping[str, ConfigKey]) -> ConfigError:
    import difflib

    near = difflib.get_close_matches(name, keys, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return ConfigError(f"{name}: is not a {kind} setting{hint}")


def _with_node_id(properties: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` is the old name of `node.id`."""
    static = dict(properties)
    if "broker.id" in static and "node.id" not in static:
        static["node.id"] = static["broker.id"]
    return static


def _scaled(value: Value, factor: int) -> Value:
    if factor == 1 or not isinstance(value, int):
        return value
    # A negative number of hours means for ever, which is -1 in milliseconds.
    return value * factor if value >= 0 else -1


def _shown(key: ConfigKey, text: str) -> str | None:
    return None if key.sensitive else text


def _wrong_type(name: str, wanted: str) -> NoReturn:
    raise TypeError(f"{name} is read as a {wanted}, which it is not or which is not set")
