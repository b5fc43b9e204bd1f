"""Producers and consumers for tools, made from the settings that Kafka's Java clients take.

They are librdkafka's. What it calls differently is translated; what it does not have is named in a warning
and left out, as Java clients do with settings they do not know.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.client.jaas import jaas_options
from ottla.client.pem_stores import SecurityError, pem_stores

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from ottla.cli.cluster.admin import Admin

T = TypeVar("T")

_RENAMED: dict[str, tuple[str, Callable[[str], str]]] = {
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
_SILENT = {
    "default.api.timeout.ms",
    "key.deserializer",
    "key.serializer",
    "max.block.ms",
    "max.poll.records",
    "metric.reporters",
    "value.deserializer",
    "value.serializer",
}
_STORES = {
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}
_ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
_CREDENTIALS = ("username", "password")
_UNKNOWN = re.compile(r'No such configuration property: "([^"]+)"')
# Critical messages only: tools tell what went wrong themselves.
_LOG_LEVEL = 2
_TELL_EVERY_S = 10.0


def producer(given: argparse.Namespace, properties: Mapping[str, str]) -> Producer:
    from confluent_kafka import Producer

    return _made(given, Producer, properties)


def consumer(given: argparse.Namespace, properties: Mapping[str, str]) -> Consumer:
    from confluent_kafka import Consumer

    return _made(given, Consumer, properties)


@contextmanager
def refusals() -> Iterator[None]:
    """What a client refuses to do, told as tools tell things."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from None


def translated(properties: Mapping[str, str]) -> dict[str, str]:
    """A Java client's settings with librdkafka's names."""
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
                raise ToolError(f"{name}={value}: must be a whole number") from None
        else:
            settings[name] = value
    return settings


def _stores(properties: Mapping[str, str]) -> dict[str, str]:
    """Certificates and keys in PEM files, which librdkafka does not call stores."""
    settings: dict[str, str] = {}
    try:
        stores = pem_stores(properties)
    except SecurityError as error:
        raise ToolError(str(error)) from None
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


def _made(given: argparse.Namespace, kind: Callable[[Any], T], properties: Mapping[str, str]) -> T:
    from confluent_kafka import KafkaException

    settings: dict[str, Any] = {
        "log_level": _LOG_LEVEL,
        "error_cb": _OutageReport(given),
        **translated(properties),
    }
    while True:
        try:
            return kind(settings)
        except KafkaException as error:
            text = error.args[0].str()
            unknown = _UNKNOWN.search(text)
            if unknown is None or settings.pop(unknown[1], None) is None:
                raise ToolError(text.strip()) from None
            print(f"{given.prog}: warning: ignored the setting {unknown[1]}", file=sys.stderr)


class _OutageReport:
    """Says when no broker is left. Other trouble is retried, and the caller notices what matters to it."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._told_s = -math.inf

    def __call__(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        now_s = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN and now_s - self._told_s > _TELL_EVERY_S:
            self._told_s = now_s
            warn(self._given, f"no broker can be reached ({error.str()}); trying again, Ctrl-C to give up")


def ensure_topic(admin: Admin, topic: str) -> int:
    """The number of partitions. A topic that does not exist is made if the broker makes topics by itself."""
    from ottla.cli.framework.errors import Refused
    from ottla.client.errors import raise_for_code
    from ottla.wire.api import ApiKey
    from ottla.wire.errors import ErrorCode

    def check(answer: Any) -> None:
        raise_for_code(answer.topics[0].error_code, None, f"topic {topic}")

    wanted = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": True}
    try:
        answer = admin.ask(ApiKey.METADATA, wanted, check=check)
    except Refused as error:
        if error.code != ErrorCode.unknown_topic_or_partition:
            raise
        raise ToolError(
            f"topic {topic} does not exist, and the broker does not create topics by itself; "
            "create it with kafka-topics"
        ) from None
    return len(answer.topics[0].partitions)
