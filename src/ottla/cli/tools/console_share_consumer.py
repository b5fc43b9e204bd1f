"""`kafka-console-share-consumer`: the records that a member of a share group gets, on standard output."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from confluent_kafka import Message, ShareConsumer

DEFAULT_GROUP = "console-share-consumer"
_POLL_SECONDS = 0.2


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster import clients
    from ottla.cli.cluster.admin import cluster
    from ottla.cli.cluster.formatters import formatter

    _check(given)
    settings = _settings(given)
    args = properties.merged("formatter-property", given.formatter_config, given.formatter_property)
    for option in ("key_deserializer", "value_deserializer"):
        if getattr(given, option):
            args[option.replace("_", ".")] = getattr(given, option)
    form = formatter(given.formatter, args)
    with cluster(given, settings) as admin:
        admin.peer()
    consumer = clients.share_consumer(given, settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loop = _Loop(given, consumer, form)
    try:
        consumer.subscribe([given.topic])
        loop.run()
    finally:
        consumer.close()
        print(f"Processed a total of {loop.count} messages", file=sys.stderr)
    return 0


class _Loop:
    def __init__(self, given: argparse.Namespace, consumer: ShareConsumer, form: Any) -> None:
        from confluent_kafka import AcknowledgeType

        self._given = given
        self._consumer = consumer
        self._form = form
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
            messages = self._consumer.poll(min(_POLL_SECONDS, self._timeout_s))
            for message in messages:
                if (error := message.error()) is not None:
                    self._fail_if_hopeless(error)
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
            self._print(message)
        except ToolError as problem:
            if not self._given.reject_message_on_error:
                raise
            warn(self._given, f"rejected the record at offset {message.offset()}: {problem}")
            kind = self._kinds.REJECT
        self._consumer.acknowledge(message, kind)

    def _print(self, message: Message) -> None:
        import json

        from ottla.cli.cluster.formatters import message_json

        if self._given.json:
            sys.stdout.buffer.write(json.dumps(message_json(message)).encode() + b"\n")
        else:
            sys.stdout.buffer.write(self._form(message))

    def _fail_if_hopeless(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            warn(self._given, error.str())
        elif not error.retriable():
            raise ToolError(error.str())


def _check(given: argparse.Namespace) -> None:
    for old, new in (
        ("consumer-property", "command-property"),
        ("consumer-config", "command-config"),
        ("property", "formatter-property"),
    ):
        old_attribute, new_attribute = (name.replace("-", "_") for name in (old, new))
        if getattr(given, old_attribute):
            if getattr(given, new_attribute):
                raise ToolError(f"Options --{old} and --{new} cannot be specified together.")
            warn(
                given, f"--{old} is deprecated and will be removed in a future version. Use --{new} instead."
            )
            setattr(given, new_attribute, getattr(given, old_attribute))
    if given.topic is None:
        raise ToolError("--topic is missing")
    if given.reject and given.release:
        raise ToolError("At most one of --reject and --release may be specified.")


def _settings(given: argparse.Namespace) -> dict[str, str]:
    settings = properties.merged("command-property", given.command_config, given.command_property)
    groups = {group for group in (given.group, settings.get("group.id")) if group is not None}
    if len(groups) > 1:
        raise ToolError(
            f"The group ids provided in different places do not match: {', '.join(sorted(groups))}"
        )
    settings["bootstrap.servers"] = given.bootstrap_server
    settings["group.id"] = groups.pop() if groups else DEFAULT_GROUP
    settings["share.acknowledgement.mode"] = "explicit"
    settings.setdefault("client.id", "console-share-consumer")
    return settings


TOOL = Tool(
    name="console-share-consumer",
    description="Print the records of a topic that a member of a share group gets.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to read", "TOPIC"),
        Option("group", f"the share group to read in ({DEFAULT_GROUP})", "GROUP"),
        Option("max-messages", "end after so many records", "COUNT", int),
        Option("timeout-ms", "end when no record has come for so long", "MS", int),
        Option("reject", "reject what was printed: nobody gets it again"),
        Option("release", "release what was printed: somebody gets it again"),
        Option("reject-message-on-error", "reject a record that cannot be printed, and go on"),
        Option(
            "formatter-property",
            "how records are printed, as of kafka-console-consumer; print.delivery shows how often a record "
            "was delivered; may be repeated",
            "KEY=VALUE",
            repeats=True,
        ),
        Option("formatter-config", "a properties file with how records are printed", "FILE"),
        Option("formatter", "the class that prints records", "CLASS", default="DefaultMessageFormatter"),
        Option("key-deserializer", "the class that reads keys", "CLASS"),
        Option("value-deserializer", "the class that reads values", "CLASS"),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the consumer; may be repeated", "KEY=VALUE", repeats=True),
        Option("property", "the old name of --formatter-property", "KEY=VALUE", repeats=True),
        Option("consumer-property", "the old name of --command-property", "KEY=VALUE", repeats=True),
        Option("consumer-config", "the old name of --command-config", "FILE"),
        Option("enable-systest-events", "accepted for compatibility"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic jobs --group workers",
        "--bootstrap-server localhost:9092 --topic jobs --group workers --release --max-messages 1",
    ),
)
