"""`kafka-console-consumer`: the records of topics on standard output."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from typing import TYPE_CHECKING

from ottla.cli.cluster.record_printing import (
    CLIENT_OPTIONS,
    POLL_SECONDS,
    PRINTING_OPTIONS,
    READING_OPTIONS,
    RecordPrinter,
    fail_if_hopeless,
    group_of,
)
from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.renamed_options import take_renamed
from ottla.cli.framework.tool import Option, Tool

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from ottla.cli.cluster.admin import Admin

_BATCH_MAX = 500
_RENAMED = (
    ("consumer-property", "command-property"),
    ("consumer.config", "command-config"),
    ("property", "formatter-property"),
)


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster

    _check(given)
    settings = _settings(given)
    printer = RecordPrinter(given)
    with cluster(given, settings) as admin:
        admin.peer()
        consumer = clients.consumer(given, settings)
        _subscribe(given, admin, consumer)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loop = _Loop(given, consumer, printer)
    try:
        loop.run()
    finally:
        consumer.close()
        print(f"Processed a total of {loop.count} messages", file=sys.stderr)
    return 0


class _Loop:
    def __init__(self, given: argparse.Namespace, consumer: Consumer, printer: RecordPrinter) -> None:
        self._given = given
        self._consumer = consumer
        self._printer = printer
        self._timeout_s = float("inf") if given.timeout_ms is None else given.timeout_ms / 1000
        self.count = 0

    def run(self) -> None:
        given = self._given
        limit = given.max_messages if given.max_messages is not None else float("inf")
        heard = time.monotonic()
        while self.count < limit and time.monotonic() - heard <= self._timeout_s:
            wanted = int(min(limit - self.count, _BATCH_MAX))
            messages = self._consumer.consume(wanted, min(POLL_SECONDS, self._timeout_s))
            for message in messages:
                if (error := message.error()) is not None:
                    fail_if_hopeless(self._given, error)
                    continue
                self.count += 1
                heard = time.monotonic()
                try:
                    self._printer.print(message)
                except ToolError as problem:
                    if not given.skip_message_on_error:
                        raise
                    warn(given, f"skipped the record at offset {message.offset()}: {problem}")
                # Only what was printed counts as read, whatever else has been fetched already.
                if given.partition is None:
                    self._consumer.store_offsets(message)
            if messages:
                sys.stdout.buffer.flush()


def _check(given: argparse.Namespace) -> None:
    take_renamed(given, _RENAMED)
    if (given.topic is None) == (given.include is None):
        raise ToolError("give exactly one of --topic or --include")
    if given.partition is not None:
        if given.topic is None:
            raise ToolError("The topic is required when partition is specified.")
        if given.from_beginning and given.offset is not None:
            raise ToolError("Options from-beginning and offset cannot be specified together.")
    elif given.offset is not None:
        raise ToolError("The partition is required when offset is specified.")
    offset = given.offset
    if offset is not None and offset.lower() not in {"earliest", "latest"} and not offset.isdecimal():
        raise ToolError(
            f"The provided offset value '{offset}' is incorrect. "
            "Valid values are 'earliest', 'latest', or a non-negative long."
        )


def _settings(given: argparse.Namespace) -> dict[str, str]:
    settings = properties.merged("command-property", given.command_config, given.command_property)
    group = group_of(given, settings)
    if group is not None and given.partition is not None:
        raise ToolError("Options group and partition cannot be specified together.")
    reset = settings.setdefault("auto.offset.reset", "earliest" if given.from_beginning else "latest")
    if given.from_beginning and reset != "earliest":
        raise ToolError(f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}'")
    settings["bootstrap.servers"] = given.bootstrap_server
    settings.setdefault("client.id", "console-consumer")
    if given.isolation_level is not None or "isolation.level" not in settings:
        settings["isolation.level"] = given.isolation_level or "read_uncommitted"
    if group is not None:
        settings["group.id"] = group
    else:
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        settings.setdefault("enable.auto.commit", "false")
    settings["enable.auto.offset.store"] = "false"
    # Java's consumers create topics by asking for them; librdkafka's only if told to.
    settings.setdefault("allow.auto.create.topics", "true")
    return settings


def _subscribe(given: argparse.Namespace, admin: Admin, consumer: Consumer) -> None:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    from ottla.client.admin.topics import find_topics

    if given.partition is None:
        consumer.subscribe([given.topic] if given.topic is not None else [_expression(given.include)])
        return
    offset = (given.offset or ("earliest" if given.from_beginning else "latest")).lower()
    start = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(offset)
    topic = admin.call(find_topics, [given.topic]).get(given.topic)
    if topic is None:
        raise ToolError(f"topic {given.topic} does not exist")
    if given.partition not in {partition.number for partition in topic.partitions}:
        raise ToolError(f"topic {given.topic} has no partition {given.partition}")
    consumer.assign([TopicPartition(given.topic, given.partition, int(offset) if start is None else start)])


def _expression(include: str) -> str:
    """librdkafka takes a name that begins with ^ for a regular expression; Java matches whole names."""
    return f"^({include.replace(',', '|')})$"


TOOL = Tool(
    name="console-consumer",
    description="Print the records of topics.",
    run=run,
    options=(
        *READING_OPTIONS,
        Option("include", "a regular expression of topics to read", "REGEX"),
        Option("partition", "the only partition to read", "NUMBER", int),
        Option("offset", "where to begin in the partition: a number, earliest or latest", "OFFSET"),
        Option("from-beginning", "begin with the oldest record where the group has no offsets yet"),
        Option("group", "the consumer group to read in", "GROUP"),
        *PRINTING_OPTIONS,
        Option(
            "isolation-level",
            "read_committed leaves out what open and aborted transactions wrote",
            "LEVEL",
            choices=("read_uncommitted", "read_committed"),
        ),
        Option("skip-message-on-error", "go on after a record that cannot be printed"),
        *CLIENT_OPTIONS,
        Option("consumer.config", "the old name of --command-config", "FILE"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic orders --from-beginning",
        "--bootstrap-server localhost:9092 --topic orders --partition 0 --offset 42 --max-messages 1",
    ),
)
