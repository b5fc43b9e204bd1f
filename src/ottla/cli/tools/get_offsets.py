"""`kafka-get-offsets`: where partitions begin and end, or what offset a time has."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable

from ottla.cli.framework.errors import ToolError, code_name
from ottla.cli.framework.output import Table, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Option, Tool

_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*))?)?")
_NO_OFFSET = -1

Filter = Callable[[str, int], bool]


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster
    from ottla.client.admin.topics import Partition, list_offsets, list_topics
    from ottla.wire.errors import KafkaError

    if given.topic_partitions and (given.topic or given.partitions):
        raise ToolError("--topic-partitions cannot be used with --topic or --partitions")
    time = _time(given.time)
    accepts = _rules(given.topic_partitions) if given.topic_partitions else _simple(given)
    with cluster(given) as admin:
        wanted = {
            Partition(topic.name, partition.number): time
            for topic in admin.call(list_topics).values()
            if not (given.exclude_internal_topics and topic.internal)
            for partition in topic.partitions
            if accepts(topic.name, partition.number)
        }
        if not wanted:
            raise ToolError("Could not match any topic-partitions with the specified filters")
        found = admin.call(list_offsets, wanted)
    rows = []
    for partition, result in sorted(found.items(), key=lambda item: str(item[0])):
        if isinstance(result, KafkaError):
            reason = code_name(result.code)
            text = f"Skip getting offsets for topic-partition {partition} due to error: {reason}"
            print(text, file=sys.stderr)
        elif result.offset != _NO_OFFSET:
            rows.append((partition.topic, partition.number, result.offset))
    show(
        given,
        [{"topic": topic, "partition": index, "offset": offset} for topic, index, offset in rows],
        [f"{topic}:{index}:{offset}" for topic, index, offset in rows],
        [Table(("Topic", "Partition", "Offset"), rows)],
    )
    return 0


def _time(text: str) -> int:
    if text in _TIMES:
        return _TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise ToolError(
            f"--time {text}: must be a timestamp in milliseconds or one of {', '.join(_TIMES)}"
        ) from None


def _simple(given: argparse.Namespace) -> Filter:
    from ottla.cli.cluster.name_patterns import matching

    try:
        indexes = {int(index) for index in given.partitions.split(",")} if given.partitions else None
    except ValueError:
        raise ToolError(f"--partitions {given.partitions}: must be numbers separated by commas") from None
    expression = given.topic or ".*"
    return lambda topic, index: bool(matching([topic], expression)) and (indexes is None or index in indexes)


def _rules(text: str) -> Filter:
    """`topic1:1,topic2:0-3,topic4:5-,:-3`: the upper end of a range is not in it."""
    from ottla.cli.cluster.name_patterns import matching

    parsed = []
    for rule in text.split(","):
        match = _RULE.fullmatch(rule)
        if match is None:
            raise ToolError(
                f"--topic-partitions {rule}: must be TOPIC, TOPIC:1, TOPIC:0-3, TOPIC:5- or TOPIC:-3"
            )
        if match["one"] is not None:
            low, high = int(match["one"]), int(match["one"]) + 1
        else:
            low, high = int(match["low"] or 0), int(match["high"] or 1 << 31)
        parsed.append((match["topic"] or ".*", range(low, high)))
    return lambda topic, index: any(index in ids and matching([topic], name) for name, ids in parsed)


TOOL = Tool(
    name="get-offsets",
    description="Show where partitions begin and end, or the offset of a point in time.",
    run=run,
    options=(
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        Option("topic", "the topic, or a regular expression; all topics without it", "TOPIC"),
        Option("partitions", "numbers of partitions; all without it", "0,1,…"),
        Option("topic-partitions", "topics with partitions or ranges of them", "TOPIC:0-3,…"),
        Option(
            "time",
            "a timestamp in milliseconds, or -1/latest, -2/earliest, -3/max-timestamp, -4/earliest-local, "
            "-5/latest-tiered, -6/earliest-pending-upload",
            "TIME",
            default="latest",
        ),
        Option("exclude-internal-topics", "leave out internal topics"),
    ),
    examples=("--bootstrap-server localhost:9092 --topic orders --time earliest",),
)
