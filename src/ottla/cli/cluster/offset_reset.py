"""Where a group shall go on: the forms of `--reset-offsets` of consumer groups and share groups."""

from __future__ import annotations

import argparse
import csv
import datetime
import re
from collections.abc import Mapping

from ottla.cli.cluster.admin import Admin
from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn
from ottla.client.admin.offset_reset import offsets_at, within_bounds
from ottla.client.admin.topics import Partition, TopicState, find_topics
from ottla.client.cluster import EARLIEST, LATEST

SCENARIOS = (
    "to_offset",
    "shift_by",
    "to_datetime",
    "by_duration",
    "to_earliest",
    "to_latest",
    "to_current",
    "from_file",
)
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def scenario(given: argparse.Namespace) -> str:
    known = [name for name in SCENARIOS if hasattr(given, name)]
    chosen = [name for name in known if getattr(given, name) not in {None, False}]
    if len(chosen) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in known)
        raise ToolError(f"--reset-offsets needs exactly one of {options}")
    return chosen[0]


def new_offsets(
    given: argparse.Namespace,
    admin: Admin,
    group: str,
    how: str,
    now_ms: int,
    known: Mapping[Partition, int | None],
) -> dict[Partition, int]:
    """`known` partitions of the group, with where it is there; None: that is not decided yet."""
    committed = {place: offset for place, offset in known.items() if offset is not None}
    if how == "from_file":
        wanted = _read(given, group)
        return _clamped(given, admin, wanted)
    partitions = chosen_partitions(given, admin, list(known))
    match how:
        case "to_earliest":
            return admin.call(offsets_at, partitions, EARLIEST)
        case "to_latest":
            return admin.call(offsets_at, partitions, LATEST)
        case "to_current":
            missing = [place for place in partitions if place not in committed]
            ends = admin.call(offsets_at, missing, LATEST)
            kept = {place: committed[place] for place in partitions if place in committed}
            return dict(sorted({**kept, **ends}.items()))
        case "to_offset":
            return _clamped(given, admin, dict.fromkeys(partitions, given.to_offset))
        case "shift_by":
            missing = [place for place in partitions if place not in committed]
            if missing:
                raise ToolError(
                    f"Cannot shift offset for partition {missing[0]} "
                    "since there is no current committed offset"
                )
            return _clamped(given, admin, {place: committed[place] + given.shift_by for place in partitions})
        case "to_datetime":
            return admin.call(offsets_at, partitions, parse_datetime(given.to_datetime))
        case _:
            return admin.call(offsets_at, partitions, now_ms - parse_duration_ms(given.by_duration))


def chosen_partitions(given: argparse.Namespace, admin: Admin, known: list[Partition]) -> list[Partition]:
    """Those of `--topic name` or `--topic name:0,1`; with `--all-topics` those the group has offsets for."""
    if given.all_topics:
        return sorted(known)
    wanted = [text.partition(":") for text in given.topic]
    if not wanted:
        raise ToolError("give --topic, or --all-topics for all that the group has offsets for")
    topics = admin.call(find_topics, sorted({name for name, _, _ in wanted}))
    chosen: set[Partition] = set()
    for name, colon, numbers in wanted:
        topic = topics.get(name)
        if topic is None:
            raise ToolError(f"topic {name} does not exist")
        chosen |= _of(topic, numbers if colon else "")
    return sorted(chosen)


def parse_datetime(text: str) -> int:
    """`2026-01-31T12:00:00.000`, in UTC unless it says another zone; in milliseconds."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ToolError(f"--to-datetime {text}: must be YYYY-MM-DDTHH:mm:SS.sss") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """`P1DT2H30M`, as ISO 8601 writes how long."""
    match = _DURATION.fullmatch(text.upper())
    if match is None or text.upper() in {"P", "PT"}:
        raise ToolError(f"--by-duration {text}: must be PnDTnHnMnS, such as PT1H30M")
    parts = {name: float(value) for name, value in match.groupdict(default="0").items()}
    return int(datetime.timedelta(**parts).total_seconds() * 1000)


def _of(topic: TopicState, numbers: str) -> set[Partition]:
    present = {partition.number for partition in topic.partitions}
    if not numbers:
        return {Partition(topic.name, number) for number in present}
    try:
        asked = {int(number) for number in numbers.split(",")}
    except ValueError:
        raise ToolError(f"--topic {topic.name}:{numbers}: must be TOPIC:0,1,2") from None
    if missing := sorted(asked - present):
        raise ToolError(f"topic {topic.name} has no partition {missing[0]}")
    return {Partition(topic.name, number) for number in asked}


def _clamped(
    given: argparse.Namespace, admin: Admin, wanted: Mapping[Partition, int]
) -> dict[Partition, int]:
    offsets = admin.call(within_bounds, wanted)
    for place, inside in offsets.items():
        offset = wanted[place]
        if inside != offset:
            side = "higher than latest" if offset > inside else "lower than earliest"
            warn(
                given,
                f"New offset ({offset}) is {side} offset for topic partition {place}. "
                f"Value will be set to {inside}",
            )
    return offsets


def _read(given: argparse.Namespace, group: str) -> dict[Partition, int]:
    """Lines of topic,partition,offset, or with the group in front."""
    wanted: dict[Partition, int] = {}
    try:
        with open(given.from_file, newline="") as file:
            for row in csv.reader(file):
                *owner, topic, number, offset = row
                if not owner or owner == [group]:
                    wanted[Partition(topic, int(number))] = int(offset)
    except OSError as error:
        raise ToolError(f"{given.from_file}: {error.strerror}") from None
    except ValueError:
        raise ToolError(f"{given.from_file}: must have lines of topic,partition,offset") from None
    return wanted
