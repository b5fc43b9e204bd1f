"""What `kafka-console-consumer` and `kafka-console-share-consumer` have in common: options, the group, and
records on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.cluster.formatters import formatter, message_json
from ottla.cli.framework import properties
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option

if TYPE_CHECKING:
    from confluent_kafka import Message

POLL_SECONDS = 0.2

READING_OPTIONS = (
    BOOTSTRAP_SERVER,
    Option("topic", "the topic to read", "TOPIC"),
    Option("max-messages", "end after so many records", "COUNT", int),
    Option("timeout-ms", "end when no record has come for so long", "MS", int),
)
PRINTING_OPTIONS = (
    Option(
        "formatter-property",
        "how records are printed: print.timestamp, print.key, print.offset, print.epoch, "
        "print.partition, print.headers, print.value, print.delivery (how often a share group was given "
        "the record), key.separator (tab), line.separator, headers.separator (,), null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer; may be repeated",
        "KEY=VALUE",
        repeats=True,
    ),
    Option("formatter-config", "a properties file with how records are printed", "FILE"),
    Option("formatter", "the class that prints records", "CLASS", default="DefaultMessageFormatter"),
    Option("key-deserializer", "the class that reads keys", "CLASS"),
    Option("value-deserializer", "the class that reads values", "CLASS"),
)
CLIENT_OPTIONS = (
    COMMAND_CONFIG,
    Option("command-property", "a setting of the consumer; may be repeated", "KEY=VALUE", repeats=True),
    Option("property", "the old name of --formatter-property", "KEY=VALUE", repeats=True),
    Option("consumer-property", "the old name of --command-property", "KEY=VALUE", repeats=True),
    Option("enable-systest-events", "accepted for compatibility"),
)


class RecordPrinter:
    def __init__(self, given: argparse.Namespace) -> None:
        args = properties.merged("formatter-property", given.formatter_config, given.formatter_property)
        for option in ("key_deserializer", "value_deserializer"):
            if getattr(given, option):
                args[option.replace("_", ".")] = getattr(given, option)
        self._form = formatter(given.formatter, args)
        self._as_json = given.json

    def print(self, message: Message) -> None:
        """Raises ToolError for a record that the formatter cannot read."""
        if self._as_json:
            sys.stdout.buffer.write(json.dumps(message_json(message)).encode() + b"\n")
        else:
            sys.stdout.buffer.write(self._form(message))


def group_of(given: argparse.Namespace, settings: Mapping[str, str]) -> str | None:
    """Named by an option, by a setting, by both alike or by neither."""
    groups = {group for group in (given.group, settings.get("group.id")) if group is not None}
    if len(groups) > 1:
        raise ToolError(
            f"The group ids provided in different places do not match: {', '.join(sorted(groups))}"
        )
    return groups.pop() if groups else None


def fail_if_hopeless(given: argparse.Namespace, error: Any) -> None:
    """What passes by itself is waited for; a topic may still be made."""
    from confluent_kafka import KafkaError

    if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
        warn(given, error.str())
    elif error.code() != KafkaError._PARTITION_EOF and not error.retriable():
        raise ToolError(error.str())
