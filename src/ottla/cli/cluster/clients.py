"""Producers and consumers for tools, made from the settings that Kafka's Java clients take.

They are librdkafka's. What it calls differently is translated; what it does not have is named in a warning
and left out, as Java clients do with settings they do not know.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.client.librdkafka import UnusableSetting, made, translated

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer, ShareConsumer

    from ottla.cli.cluster.admin import Admin

T = TypeVar("T")

# Critical messages only: tools tell what went wrong themselves.
_LOG_LEVEL = 2
_TELL_EVERY_S = 10.0


def producer(given: argparse.Namespace, properties: Mapping[str, str]) -> Producer:
    from confluent_kafka import Producer

    return _made(given, Producer, properties)


def consumer(given: argparse.Namespace, properties: Mapping[str, str]) -> Consumer:
    from confluent_kafka import Consumer

    return _made(given, Consumer, properties)


def share_consumer(given: argparse.Namespace, properties: Mapping[str, str]) -> ShareConsumer:
    try:
        from confluent_kafka import ShareConsumer
    except ImportError:
        raise ToolError(
            "this version of confluent-kafka has no share consumers: pip install 'confluent-kafka>=2.16'"
        ) from None
    return _made(given, ShareConsumer, properties)


@contextmanager
def refusals() -> Iterator[None]:
    """What a client refuses to do, told as tools tell things."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from None


def _made(given: argparse.Namespace, kind: Callable[[Any], T], properties: Mapping[str, str]) -> T:
    def ignored(name: str) -> None:
        print(f"{given.prog}: warning: ignored the setting {name}", file=sys.stderr)

    try:
        settings = {"log_level": _LOG_LEVEL, "error_cb": _OutageReport(given), **translated(properties)}
        return made(kind, settings, ignored)
    except UnusableSetting as error:
        raise ToolError(str(error)) from None


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
