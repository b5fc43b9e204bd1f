"""Produce, versions 3–13, packed and parsed by hand: record data is only ever sliced.

3–8 classic encoding · 5 log start offset in responses · 8 record errors and messages · 9 flexible encoding ·
10 current leader as tagged field · 12 implicit AddPartitions (KIP-890) · 13 topic ids instead of names.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.varints import read_uvarint, uvarint
from ottla.wire.current_leader import (
    NOT_LEADER_OR_FOLLOWER,
    CurrentLeader,
    Leaders,
    endpoint_tags,
    leader_tags,
)
from ottla.wire.frame import MalformedFrame
from ottla.wire.primitives import read_compact_string, read_nullable_string, skip_tags

FIRST_FLEXIBLE = 9
FIRST_WITH_CURRENT_LEADER = 10
FIRST_WITH_TOPIC_IDS = 13

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_INDEX_LENGTH = struct.Struct(">ii")


class TopicData(NamedTuple):
    topic: bytes
    """The name in UTF-8, or from version 13 on the 16 bytes of the topic id."""
    partitions: list[tuple[int, memoryview]]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


class PartitionResult(NamedTuple):
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    """Index in the batch, and message, of each record that it was refused for."""


# The constructor of a named tuple is written in Python; what it does in the end takes a third of its time.
_make = tuple.__new__


def appended(
    partition: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
) -> PartitionResult:
    return _make(PartitionResult, (partition, 0, base_offset, log_append_time_ms, log_start_offset, None, ()))


NAMED_MAX = 50_000
"""Topics and partitions in one request: far more than a producer has buffers for. Each takes its moment."""
_TOO_MANY = f"Produce names more than {NAMED_MAX} topics and partitions; send fewer at a time"


def parse(frame: memoryview, at: int, version: int) -> ProduceRequest:
    try:
        request, at = _parse_flexible(frame, at, version) if version >= FIRST_FLEXIBLE else _parse(frame, at)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"Produce version {version} ends inside a field: {error}") from error
    if at != len(frame):
        raise MalformedFrame(f"Produce version {version} has {len(frame) - at} bytes too many")
    return request


def _parse(frame: memoryview, at: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = read_nullable_string(frame, at)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, at)
    at += 10
    topics = []
    named = 0
    end = len(frame)
    for _ in range(topic_count):
        name_length = _I16.unpack_from(frame, at)[0]
        if name_length < 0:
            raise MalformedFrame("Produce names no topic")
        at += 2
        name = bytes(frame[at : at + name_length])
        at += name_length
        partition_count = _I32.unpack_from(frame, at)[0]
        at += 4
        named += 1 + partition_count
        if named > NAMED_MAX:
            raise MalformedFrame(_TOO_MANY)
        partitions = []
        for _ in range(partition_count):
            index, length = _INDEX_LENGTH.unpack_from(frame, at)
            at += 8
            length = max(length, 0)
            if at + length > end:
                raise MalformedFrame(
                    f"Produce announces {length} bytes of records for partition {index} of "
                    f"{name.decode(errors='replace')!r}, but {end - at} are there"
                )
            partitions.append((index, frame[at : at + length]))
            at += length
        topics.append(_make(TopicData, (name, partitions)))
    return _make(ProduceRequest, (transactional_id, acks, timeout_ms, topics)), at


def _parse_flexible(frame: memoryview, at: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = read_compact_string(frame, at)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, at)
    topic_count, at = read_uvarint(frame, at + 6)
    topics = []
    named = 0
    end = len(frame)
    for _ in range(topic_count - 1):
        if version >= FIRST_WITH_TOPIC_IDS:
            name_length = 16
        else:
            name_length, at = read_uvarint(frame, at)
            name_length -= 1
        name = bytes(frame[at : at + name_length])
        partition_count, at = read_uvarint(frame, at + name_length)
        named += 1 + partition_count
        if named > NAMED_MAX:
            raise MalformedFrame(_TOO_MANY)
        partitions = []
        for _ in range(partition_count - 1):
            index = _I32.unpack_from(frame, at)[0]
            length, at = read_uvarint(frame, at + 4)
            length = length - 1 if length else 0
            if at + length > end:
                raise MalformedFrame(
                    f"Produce announces {length} bytes of records for partition {index} of "
                    f"{name.decode(errors='replace')!r}, but {end - at} are there"
                )
            partitions.append((index, frame[at : at + length]))
            at = skip_tags(frame, at + length)
        topics.append(_make(TopicData, (name, partitions)))
        at = skip_tags(frame, at)
    return _make(ProduceRequest, (transactional_id, acks, timeout_ms, topics)), skip_tags(frame, at)


_PARTITION = struct.Struct(">ihqq")  # versions 3–4
_PARTITION_5 = struct.Struct(">ihqqq")
_PARTITION_8 = struct.Struct(">ihqqqih")  # no record errors, null message
_PARTITION_9 = struct.Struct(">ihqqqBBB")  # the same in compact form, no tags
_INDEX_TEXT = struct.Struct(">ih")
_NOT_THROTTLED = b"\0\0\0\0"
_CURRENT_LEADER_TAG = 0


def encode(
    version: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionResult]]],
    throttle_ms: int = 0,
    leaders: Leaders | None = None,
    listener: str = "",
) -> bytes:
    """The body, after the response header. `leaders` are asked for those whom a client of the listener took
    this broker for."""
    throttle = _I32.pack(throttle_ms) if throttle_ms else _NOT_THROTTLED
    if version >= FIRST_FLEXIBLE:
        return _encode_flexible(version, topics, throttle, leaders, listener)
    parts = [_I32.pack(len(topics))]
    for name, partitions in topics:
        parts.append(_I16.pack(len(name)) + name + _I32.pack(len(partitions)))
        for result in partitions:
            index, error_code, base_offset, append_time_ms, start_offset, message, errors = result
            if version >= 8:
                if message is None:
                    parts.append(
                        _PARTITION_8.pack(index, error_code, base_offset, append_time_ms, start_offset, 0, -1)
                    )
                else:
                    parts.append(
                        _PARTITION_5.pack(index, error_code, base_offset, append_time_ms, start_offset)
                    )
                    parts.append(_I32.pack(len(errors)))
                    for batch_index, error in errors:
                        text = error.encode()
                        parts.append(_INDEX_TEXT.pack(batch_index, len(text)) + text)
                    text = message.encode()
                    parts.append(_I16.pack(len(text)) + text)
            elif version >= 5:
                parts.append(_PARTITION_5.pack(index, error_code, base_offset, append_time_ms, start_offset))
            else:
                parts.append(_PARTITION.pack(index, error_code, base_offset, append_time_ms))
    parts.append(throttle)
    return b"".join(parts)


def _encode_flexible(
    version: int,
    topics: Sequence[tuple[bytes, Sequence[PartitionResult]]],
    throttle: bytes,
    leaders: Leaders | None,
    listener: str,
) -> bytes:
    found: list[CurrentLeader] = []
    parts = [uvarint(len(topics) + 1)]
    for name, partitions in topics:
        if version < FIRST_WITH_TOPIC_IDS:
            parts.append(uvarint(len(name) + 1))
        parts.append(name)
        parts.append(uvarint(len(partitions) + 1))
        for index, error_code, base_offset, append_time_ms, start_offset, message, errors in partitions:
            if message is None:
                parts.append(
                    _PARTITION_9.pack(index, error_code, base_offset, append_time_ms, start_offset, 1, 0, 0)
                )
            else:
                parts.append(_PARTITION_5.pack(index, error_code, base_offset, append_time_ms, start_offset))
                parts.append(uvarint(len(errors) + 1))
                for batch_index, error in errors:
                    text = error.encode()
                    parts.append(_I32.pack(batch_index) + uvarint(len(text) + 1) + text + b"\0")
                text = message.encode()
                parts.append(uvarint(len(text) + 1) + text)
                leader = None
                if (
                    error_code == NOT_LEADER_OR_FOLLOWER
                    and version >= FIRST_WITH_CURRENT_LEADER
                    and leaders is not None
                ):
                    by_id = version >= FIRST_WITH_TOPIC_IDS
                    leader = leaders.find(listener, name, index, by_id=by_id)
                if leader is None:
                    parts.append(b"\0")
                else:
                    found.append(leader)
                    parts.append(leader_tags(_CURRENT_LEADER_TAG, leader))
        parts.append(b"\0")
    parts.append(throttle + (endpoint_tags(found) if found else b"\0"))
    return b"".join(parts)
