"""Settings that one listener may have for itself: `listener.name.<name>.<key>`, before those of all.

Those of SASL may also be set for one mechanism of it: `listener.name.<name>.<mechanism>.<key>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.config.key import ConfigKey, Value, by_name
from ottla.config.security_keys import OF_LISTENER, OF_MECHANISM
from ottla.config.server_keys import SERVER_KEYS

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_PREFIX = "listener.name."
_OF_SERVER = ("max.connection.creation.rate", "max.connections", "ottla.records.validate")
LISTENER_KEYS: Mapping[str, ConfigKey] = {
    **OF_LISTENER,
    **{name: by_name(SERVER_KEYS)[name] for name in _OF_SERVER},
}


class ListenerKey(NamedTuple):
    listener: str
    mechanism: str
    """Empty for all."""
    key: ConfigKey
    """Under its whole name."""


def listener_key(listener: str, name: str, mechanism: str = "") -> str:
    place = f"{_PREFIX}{listener.lower()}."
    return f"{place}{mechanism.lower()}.{name}" if mechanism else place + name


def parse_listener_key(name: str) -> ListenerKey | None:
    """None for what is no setting of a listener."""
    if not name.startswith(_PREFIX):
        return None
    for short, key in LISTENER_KEYS.items():
        if not name.endswith("." + short):
            continue
        place = name[len(_PREFIX) : -len(short) - 1]
        named = replace(key, name=name)
        if short in OF_MECHANISM:
            for mechanism in MECHANISMS:
                listener = place.removesuffix("." + mechanism.lower())
                if listener and listener != place:
                    return ListenerKey(listener.upper(), mechanism, named)
        if place:
            return ListenerKey(place.upper(), "", named)
    return None


class ListenerSettings:
    """What holds on one listener. Reads what `BrokerConfig` has parsed."""

    __slots__ = ("_config", "name", "protocol")

    def __init__(self, config: BrokerConfig, name: str, protocol: str) -> None:
        self._config = config
        self.name = name
        self.protocol = protocol

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def own(self, name: str, mechanism: str = "") -> Value:
        """Only what is set for this listener; None where nothing is."""
        found = self._config.of_listeners.get(listener_key(self.name, name, mechanism))
        if found is None and mechanism:
            found = self._config.of_listeners.get(listener_key(self.name, name))
        return found

    def string(self, name: str, mechanism: str = "") -> str:
        own = self.own(name, mechanism)
        return self._config.string(name) if own is None else str(own)

    def optional_string(self, name: str, mechanism: str = "") -> str | None:
        own = self.own(name, mechanism)
        return self._config.optional_string(name) if own is None else str(own)

    def integer(self, name: str, mechanism: str = "") -> int:
        own = self.own(name, mechanism)
        return own if isinstance(own, int) else self._config.integer(name)

    def strings(self, name: str, mechanism: str = "") -> tuple[str, ...]:
        own = self.own(name, mechanism)
        return own if isinstance(own, tuple) else self._config.strings(name)

    @property
    def client_auth(self) -> str:
        """Who has a password need not have a certificate, unless it is asked for right here (KIP-684)."""
        if self.uses_sasl:
            return str(self.own("ssl.client.auth") or "none")
        return self.string("ssl.client.auth")

    def jaas(self, mechanism: str) -> str:
        """Empty where there is none: Kafka takes none that is not set for the mechanism."""
        found = self._config.of_listeners.get(listener_key(self.name, "sasl.jaas.config", mechanism))
        return "" if found is None else str(found)

    def tls_properties(self) -> dict[str, str]:
        """Those of `ssl.*` that say what to trust and what to show, as files of clients have them."""
        names = (
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.key.password",
            "ssl.keystore.key",
            "ssl.keystore.certificate.chain",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.certificates",
        )
        found = {name: self.optional_string(name) for name in names}
        return {name: value for name, value in found.items() if value}

    def peer_properties(self, mechanism: str) -> dict[str, str]:
        """How a node reaches another that listens here, as properties of a client."""
        properties = {"security.protocol": self.protocol}
        if self.uses_tls:
            properties |= self.tls_properties()
            algorithm = self.string("ssl.endpoint.identification.algorithm")
            properties["ssl.endpoint.identification.algorithm"] = algorithm
        if self.uses_sasl:
            properties |= {"sasl.mechanism": mechanism, "sasl.jaas.config": self.jaas(mechanism)}
        return properties
