"""OffsetCommit, versions 2 to 10, parsed and packed by hand: consumers may commit very often.

3 throttle time · 5 no retention time · 6 leader epoch · 7 static members · 8 flexible encoding
9 member epochs · 10 topic ids instead of names
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ottla.varints import read_uvarint, uvarint
from ottla.wire.frame import MalformedFrame
from ottla.wire.primitives import read_compact_string, read_nullable_string, skip_tags

FIRST_WITH_THROTTLE = 3
FIRST_WITHOUT_RETENTION = 5
FIRST_WITH_LEADER_EPOCH = 6
FIRST_WITH_INSTANCE_ID = 7
FIRST_FLEXIBLE = 8
FIRST_WITH_TOPIC_IDS = 10

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_OFFSET = struct.Struct(">iq")  # partition, offset
_OFFSET_AND_EPOCH = struct.Struct(">iqi")
_ROW = struct.Struct(">ih")
_FLEXIBLE_ROW = struct.Struct(">ihB")
_ID_BYTES = 16
_NO_TAGS = b"\0"
_NO_ID = uuid.UUID(int=0)

T = TypeVar("T")


class CommittedPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommittedTopic(NamedTuple):
    name: str
    """Empty from version 10 on, where topics go by their ids."""
    topic_id: uuid.UUID | None
    partitions: list[CommittedPartition]


@dataclass(slots=True)
class OffsetCommitRequest:
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[CommittedTopic]


def parse(frame: memoryview, at: int, version: int) -> OffsetCommitRequest:
    flexible = version >= FIRST_FLEXIBLE
    read_string = read_compact_string if flexible else read_nullable_string
    group_id, at = read_string(frame, at)
    (generation,) = _I32.unpack_from(frame, at)
    member_id, at = read_string(frame, at + 4)
    if group_id is None or member_id is None:
        raise MalformedFrame("its group id or member id is null")
    instance_id, retention_ms = None, -1
    if version >= FIRST_WITH_INSTANCE_ID:
        instance_id, at = read_string(frame, at)
    elif version < FIRST_WITHOUT_RETENTION:
        (retention_ms,) = _I64.unpack_from(frame, at)
        at += 8
    topics, at = _array(frame, at, flexible, lambda at: _topic(frame, at, version))
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_ms, topics)


def _topic(frame: memoryview, at: int, version: int) -> tuple[CommittedTopic, int]:
    flexible = version >= FIRST_FLEXIBLE
    name, topic_id = "", None
    if version >= FIRST_WITH_TOPIC_IDS:
        data = bytes(frame[at : at + _ID_BYTES])
        if len(data) < _ID_BYTES:
            raise MalformedFrame("a topic id does not fit into the request")
        topic_id = uuid.UUID(bytes=data)
        at += _ID_BYTES
    else:
        found, at = (read_compact_string if flexible else read_nullable_string)(frame, at)
        if found is None:
            raise MalformedFrame("the name of a topic is null")
        name = found
    partitions, at = _array(frame, at, flexible, lambda at: _partition(frame, at, version))
    return CommittedTopic(name, topic_id, partitions), skip_tags(frame, at) if flexible else at


def _partition(frame: memoryview, at: int, version: int) -> tuple[CommittedPartition, int]:
    leader_epoch = -1
    if version >= FIRST_WITH_LEADER_EPOCH:
        partition, offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(frame, at)
        at += _OFFSET_AND_EPOCH.size
    else:
        partition, offset = _OFFSET.unpack_from(frame, at)
        at += _OFFSET.size
    if version >= FIRST_FLEXIBLE:
        metadata, at = read_compact_string(frame, at)
        at = skip_tags(frame, at)
    else:
        metadata, at = read_nullable_string(frame, at)
    return CommittedPartition(partition, offset, leader_epoch, metadata), at


def _array(
    frame: memoryview, at: int, flexible: bool, read: Callable[[int], tuple[T, int]]
) -> tuple[list[T], int]:
    if flexible:
        count, at = read_uvarint(frame, at)
        count -= 1
    else:
        (count,) = _I32.unpack_from(frame, at)
        at += 4
    if count < 0:
        raise MalformedFrame("a list is null")
    items = []
    # A count that lies runs into the end of the frame soon enough: every item takes some bytes.
    for _ in range(count):
        item, at = read(at)
        items.append(item)
    return items, at


def encode(
    version: int,
    topics: Sequence[tuple[str, uuid.UUID | None, Sequence[tuple[int, int]]]],
    throttle_ms: int = 0,
) -> bytes:
    """Topics by name and id, each with partitions and their error codes."""
    throttle = _I32.pack(throttle_ms)
    if version < FIRST_FLEXIBLE:
        parts = [throttle] if version >= FIRST_WITH_THROTTLE else []
        parts.append(_I32.pack(len(topics)))
        for name, _, rows in topics:
            encoded = name.encode()
            parts += (_I16.pack(len(encoded)), encoded, _I32.pack(len(rows)), _rows(_ROW, rows))
        return b"".join(parts)
    parts = [throttle, uvarint(len(topics) + 1)]
    for name, topic_id, rows in topics:
        if version >= FIRST_WITH_TOPIC_IDS:
            parts.append((topic_id or _NO_ID).bytes)
        else:
            encoded = name.encode()
            parts += (uvarint(len(encoded) + 1), encoded)
        flagged = [(index, error, 0) for index, error in rows]
        parts += (uvarint(len(rows) + 1), _rows(_FLEXIBLE_ROW, flagged), _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)


def _rows(row: struct.Struct, values: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join([row.pack(*value) for value in values])
