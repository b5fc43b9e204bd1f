"""`kafka-console-consumer`: the records of topics on standard output."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from ottla.cli.cluster.admin import Admin

_BATCH_MAX = 500
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
        consumer = clients.consumer(given, settings)
        _subscribe(given, admin, consumer)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loop = _Loop(given, consumer, form)
    try:
        loop.run()
    finally:
        consumer.close()
        print(f"Processed a total of {loop.count} messages", file=sys.stderr)
    return 0


class _Loop:
    def __init__(self, given: argparse.Namespace, consumer: Consumer, form: Any) -> None:
        self._given = given
        self._consumer = consumer
        self._form = form
        self._timeout_s = float("inf") if given.timeout_ms is None else given.timeout_ms / 1000
        self.count = 0

    def run(self) -> None:
        import json

        from ottla.cli.cluster.formatters import message_json

        given, out = self._given, sys.stdout.buffer
        limit = given.max_messages if given.max_messages is not None else float("inf")
        heard = time.monotonic()
        while self.count < limit and time.monotonic() - heard <= self._timeout_s:
            wanted = int(min(limit - self.count, _BATCH_MAX))
            messages = self._consumer.consume(wanted, min(_POLL_SECONDS, self._timeout_s))
            for message in messages:
                if (error := message.error()) is not None:
                    self._fail_if_hopeless(error)
                    continue
                self.count += 1
                heard = time.monotonic()
                try:
                    if given.json:
                        out.write(json.dumps(message_json(message)).encode() + b"\n")
                    else:
                        out.write(self._form(message))
                except ToolError as problem:
                    if not given.skip_message_on_error:
                        raise
                    warn(given, f"skipped the record at offset {message.offset()}: {problem}")
                # Only what was printed counts as read, whatever else has been fetched already.
                if given.partition is None:
                    self._consumer.store_offsets(message)
            if messages:
                out.flush()

    def _fail_if_hopeless(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF or error.retriable():
            return
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            warn(self._given, error.str())
            return
        raise ToolError(error.str())


def _check(given: argparse.Namespace) -> None:
    for old, new in (
        ("consumer-property", "command-property"),
        ("consumer.config", "command-config"),
        ("property", "formatter-property"),
    ):
        old_attribute, new_attribute = (name.replace("-", "_").replace(".", "_") for name in (old, new))
        if getattr(given, old_attribute):
            if getattr(given, new_attribute):
                raise ToolError(f"Options --{old} and --{new} cannot be specified together.")
            warn(
                given, f"--{old} is deprecated and will be removed in a future version. Use --{new} instead."
            )
            setattr(given, new_attribute, getattr(given, old_attribute))
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
    groups = {group for group in (given.group, settings.get("group.id")) if group is not None}
    if len(groups) > 1:
        raise ToolError(
            f"The group ids provided in different places do not match: {', '.join(sorted(groups))}"
        )
    if groups and given.partition is not None:
        raise ToolError("Options group and partition cannot be specified together.")
    reset = settings.setdefault("auto.offset.reset", "earliest" if given.from_beginning else "latest")
    if given.from_beginning and reset != "earliest":
        raise ToolError(f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}'")
    settings["bootstrap.servers"] = given.bootstrap_server
    settings.setdefault("client.id", "console-consumer")
    if given.isolation_level is not None or "isolation.level" not in settings:
        settings["isolation.level"] = given.isolation_level or "read_uncommitted"
    if groups:
        settings["group.id"] = groups.pop()
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
        BOOTSTRAP_SERVER,
        Option("topic", "the topic to read", "TOPIC"),
        Option("include", "a regular expression of topics to read", "REGEX"),
        Option("partition", "the only partition to read", "NUMBER", int),
        Option("offset", "where to begin in the partition: a number, earliest or latest", "OFFSET"),
        Option("from-beginning", "begin with the oldest record where the group has no offsets yet"),
        Option("group", "the consumer group to read in", "GROUP"),
        Option("max-messages", "end after so many records", "COUNT", int),
        Option("timeout-ms", "end when no record has come for so long", "MS", int),
        Option(
            "formatter-property",
            "how records are printed: print.timestamp, print.key, print.offset, print.epoch, "
            "print.partition, print.headers, print.value, key.separator (tab), line.separator, "
            "headers.separator (,), null.literal, key.deserializer, value.deserializer, "
            "headers.deserializer; may be repeated",
            "KEY=VALUE",
            repeats=True,
        ),
        Option("formatter-config", "a properties file with how records are printed", "FILE"),
        Option("formatter", "the class that prints records", "CLASS", default="DefaultMessageFormatter"),
        Option("key-deserializer", "the class that reads keys", "CLASS"),
        Option("value-deserializer", "the class that reads values", "CLASS"),
        Option(
            "isolation-level",
            "read_committed leaves out what open and aborted transactions wrote",
            "LEVEL",
            choices=("read_uncommitted", "read_committed"),
        ),
        Option("skip-message-on-error", "go on after a record that cannot be printed"),
        COMMAND_CONFIG,
        Option("command-property", "a setting of the consumer; may be repeated", "KEY=VALUE", repeats=True),
        Option("property", "the old name of --formatter-property", "KEY=VALUE", repeats=True),
        Option("consumer-property", "the old name of --command-property", "KEY=VALUE", repeats=True),
        Option("consumer.config", "the old name of --command-config", "FILE"),
        Option("enable-systest-events", "accepted for compatibility"),
    ),
    examples=(
        "--bootstrap-server localhost:9092 --topic orders --from-beginning",
        "--bootstrap-server localhost:9092 --topic orders --partition 0 --offset 42 --max-messages 1",
    ),
)
