"""`kafka-console-share-consumer`: the records that a member of a share group gets, on standard output."""

from __future__ import annotations

import argparse
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
    from confluent_kafka import Message, ShareConsumer

DEFAULT_GROUP = "console-share-consumer"
_RENAMED = (
    ("consumer-property", "command-property"),
    ("consumer-config", "command-config"),
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
    consumer = clients.share_consumer(given, settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loop = _Loop(given, consumer, printer)
    try:
        consumer.subscribe([given.topic])
        loop.run()
    finally:
        consumer.close()
        print(f"Processed a total of {loop.count} messages", file=sys.stderr)
    return 0


class _Loop:
    def __init__(self, given: argparse.Namespace, consumer: ShareConsumer, printer: RecordPrinter) -> None:
        from confluent_kafka import AcknowledgeType

        self._given = given
        self._consumer = consumer
        self._printer = printer
        self._timeout_s = float("inf") if given.timeout_ms is None else given.timeout_ms / 1000
        self._limit = float("inf") if given.max_messages is None else given.max_messages
        self._kinds = AcknowledgeType
        self._printed = AcknowledgeType.ACCEPT
        if given.reject:
            self._printed = AcknowledgeType.REJECT
        elif given.release:
            self._printed = AcknowledgeType.RELEASE
        self.count = 0

    def run(self) -> None:
        heard = time.monotonic()
        while self.count < self._limit and time.monotonic() - heard <= self._timeout_s:
            messages = self._consumer.poll(min(POLL_SECONDS, self._timeout_s))
            for message in messages:
                if (error := message.error()) is not None:
                    fail_if_hopeless(self._given, error)
                    continue
                heard = time.monotonic()
                self._acknowledge(message)
            sys.stdout.buffer.flush()
        # What was printed counts only once the broker knows.
        self._consumer.commit_sync()

    def _acknowledge(self, message: Message) -> None:
        if self.count >= self._limit:
            self._consumer.acknowledge(message, self._kinds.RELEASE)
            return
        self.count += 1
        kind = self._printed
        try:
            self._printer.print(message)
        except ToolError as problem:
            if not self._given.reject_message_on_error:
                raise
            warn(self._given, f"rejected the record at offset {message.offset()}: {problem}")
            kind = self._kinds.REJECT
        self._consumer.acknowledge(message, kind)


def _check(given: argparse.Namespace) -> None:
    take_renamed(given, _RENAMED)
    if given.topic is None:
        raise ToolError("--topic is missing")
    if given.reject and given.release:
        raise ToolError("At most one of --reject and --release may be specified.")


def _settings(given: argparse.Namespace) -> dict[str, str]:
    settings = properties.merged("command-property", given.command_config, given.command_property)
    settings["bootstrap.servers"] = given.bootstrap_server
    settings["group.id"] = group_of(given, settings) or DEFAULT_GROUP
    settings["share.acknowledgement.mode"] = "explicit"
    settings.setdefault("client.id", "console-share-consumer")
    return settings


TOOL = Tool(
    name="console-share-consumer",
    description="Print the records of a topic that a member of a share group gets.",
    run=run,
    options=(
        *READING_OPTIONS,
        Option("group", f"the share group to read in ({DEFAULT_GROUP})", "GROUP"),
        Option("reject", "reject what was printed: nobody gets it again"),
        Option("release", "release what was printed: somebody gets it again"),
        Option("reject-message-on-error", "reject a record that cannot be printed, and go on"),
        *PRINTING_OPTIONS,
        *CLIENT_OPTIONS,
        Option("consumer-config", "the old name of --command-config", "FILE"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic jobs --group workers",
        "--bootstrap-server localhost:9092 --topic jobs --group workers --release --max-messages 1",
    ),
)
