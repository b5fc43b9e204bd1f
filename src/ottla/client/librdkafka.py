"""Settings of Java clients in the words of librdkafka, for parts that use its producers and consumers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ottla.client.jaas import jaas_options
from ottla.client.pem_stores import SecurityError, pem_stores

T = TypeVar("T")

_RENAMED: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "buffer.memory": ("queue.buffering.max.kbytes", lambda value: str(max(int(value) // 1024, 1))),
    "fetch.max.wait.ms": ("fetch.wait.max.ms", str),
    "max.request.size": ("message.max.bytes", str),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes", str),
    "send.buffer.bytes": ("socket.send.buffer.bytes", str),
    "ssl.truststore.certificates": ("ssl.ca.pem", str),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", str),
    "ssl.keystore.key": ("ssl.key.pem", str),
    "max.in.flight.requests.per.connection": ("max.in.flight.requests.per.connection", str),
}
# Java's own business, or without a meaning outside it: not worth a warning.
_SILENT: Final = {
    "default.api.timeout.ms",
    "key.deserializer",
    "key.serializer",
    "max.block.ms",
    "max.poll.records",
    "metric.reporters",
    "value.deserializer",
    "value.serializer",
}
_STORES: Final = {
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_CREDENTIALS: Final = ("username", "password")
_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]+)"')


class UnusableSetting(ValueError):
    """The text names the setting."""


def translated(properties: Mapping[str, str]) -> dict[str, str]:
    """A Java client's settings with librdkafka's names. Raises UnusableSetting."""
    settings = _stores(properties)
    for name, value in properties.items():
        if name in _SILENT or name in _STORES:
            continue
        if name == "sasl.jaas.config":
            options = jaas_options(value)
            settings.update({f"sasl.{key}": options[key] for key in _CREDENTIALS if key in options})
        elif name == "partition.assignment.strategy":
            settings[name] = ",".join(_ASSIGNORS.get(part.strip(), part.strip()) for part in value.split(","))
        elif name in _RENAMED:
            new_name, convert = _RENAMED[name]
            try:
                settings[new_name] = convert(value)
            except ValueError:
                raise UnusableSetting(f"{name}={value}: must be a whole number") from None
        else:
            settings[name] = value
    return settings


def _stores(properties: Mapping[str, str]) -> dict[str, str]:
    """Certificates and keys in PEM files, which librdkafka does not call stores."""
    settings: dict[str, str] = {}
    try:
        stores = pem_stores(properties)
    except SecurityError as error:
        raise UnusableSetting(str(error)) from None
    if stores.authorities is not None:
        settings["ssl.ca.location"] = stores.authorities
    if stores.identity is not None:
        settings["ssl.certificate.location"] = stores.identity
        settings["ssl.key.location"] = stores.key or stores.identity
        if stores.password is not None:
            settings["ssl.key.password"] = stores.password
    identification = properties.get("ssl.endpoint.identification.algorithm")
    if identification is not None:
        settings["ssl.endpoint.identification.algorithm"] = identification or "none"
    return settings


def made(kind: Callable[[Any], T], settings: Mapping[str, Any], ignored: Callable[[str], None]) -> T:
    """A producer or consumer; settings that librdkafka does not have are told to `ignored` and left out.

    Raises UnusableSetting for values that it refuses.
    """
    from confluent_kafka import KafkaException

    left = dict(settings)
    while True:
        try:
            return kind(left)
        except KafkaException as error:
            text = error.args[0].str()
            unknown = _UNKNOWN.search(text)
            if unknown is None or left.pop(unknown[1], None) is None:
                raise UnusableSetting(text.strip()) from None
            ignored(unknown[1])
