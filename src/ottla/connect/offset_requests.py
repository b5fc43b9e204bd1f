"""Offsets of connectors over REST: what they are, and what is asked to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.client.admin.topics import Partition
from ottla.connect.errors import bad_request

_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


class Wanted(NamedTuple):
    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None
    """None: to be forgotten."""


def read_wanted(body: Any) -> list[Wanted]:
    rows = body.get("offsets") if isinstance(body, Mapping) else None
    if not rows or not isinstance(rows, list):
        raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
    found = []
    for row in rows:
        if not isinstance(row, Mapping) or not isinstance(row.get("partition"), Mapping):
            raise bad_request("The partition of an offset has to be an object")
        offset = row.get("offset")
        if offset is not None and not isinstance(offset, Mapping):
            raise bad_request("An offset has to be an object, or null")
        found.append(Wanted(row["partition"], offset))
    return found


def shown(offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    return {
        "offsets": [{"partition": dict(partition), "offset": dict(offset)} for partition, offset in offsets]
    }


def shown_sink(offsets: Mapping[Partition, int]) -> dict[str, Any]:
    return shown(
        [
            ({_TOPIC: place.topic, _PARTITION: place.number}, {_OFFSET: offset})
            for place, offset in offsets.items()
        ]
    )


def sink_offsets(wanted: Sequence[Wanted]) -> dict[Partition, int | None]:
    """By the partition of a topic; None to forget it."""
    return dict(_sink_offset(each) for each in wanted)


def _sink_offset(wanted: Wanted) -> tuple[Partition, int | None]:
    topic, partition = wanted.partition.get(_TOPIC), wanted.partition.get(_PARTITION)
    if topic is None or partition is None:
        raise bad_request(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            "'kafka_partition'"
        )
    number = _whole(partition, "partition", "Partition")
    if wanted.offset is None:
        return Partition(str(topic), number), None
    if _OFFSET not in wanted.offset:
        raise bad_request(
            "The offset for a sink connector should either be null or contain the key 'kafka_offset'"
        )
    return Partition(str(topic), number), _whole(wanted.offset[_OFFSET], "offset", "Offset")


def _whole(value: Any, name: str, title: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise bad_request(
            f"Failed to parse the following Kafka {name} value in the provided offsets: '{value}'. "
            f"{title} values "
            "for sink connectors need to be integers."
        ) from None
