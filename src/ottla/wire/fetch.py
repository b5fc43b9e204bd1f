"""Fetch, versions 4–18, packed and parsed by hand: a response is a few small headers between file views.

4 isolation level · 5 log start offset · 7 incremental sessions · 9 leader epoch · 11 rack, preferred
replica · 12 flexible encoding, last fetched epoch · 13 topic ids instead of names · 15 replica state as
tagged field · 16 node endpoints · 17 replica directory id · 18 high watermark of followers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.runtime.disk import ReadableBuffer
from ottla.varints import read_uvarint, uvarint
from ottla.wire.current_leader import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    CurrentLeader,
    Leaders,
    endpoint_tags,
    leader_tags,
)
from ottla.wire.frame import MalformedFrame
from ottla.wire.primitives import read_compact_string, read_nullable_string, skip_tags

FIRST_WITH_SESSIONS = 7
FIRST_WITH_RACK = 11
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_ENDPOINTS = 16
CONSUMER_REPLICA_ID = -1
NO_REPLICA = -1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_REPLICA_STATE_TAG = 1
_REPLICA_STATE = struct.Struct(">iq")


class PartitionFetch(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    last_fetched_epoch: int = -1
    """Of the last record that the reader has; -1 where it does not say."""
    log_start_offset: int = -1
    """A follower's own."""


# The constructor of a named tuple is written in Python; what it does in the end takes a third of its time.
_make = tuple.__new__


@dataclass(slots=True)
class FetchRequest:
    replica_id: int
    """Of a follower; negative for consumers."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[PartitionFetch]]]
    """Names in UTF-8, or from version 13 on the 16 bytes of topic ids."""
    forgotten: list[tuple[bytes, list[int]]]
    rack: str = ""
    """Where the reader is; empty where it does not say."""
    replica_epoch: int = -1
    """In which the follower is registered; -1 where it does not say."""


REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""Tens of thousands of partitions, of one broker: far more than a client reads. Each takes its moment."""


def parse(frame: memoryview, at: int, version: int) -> FetchRequest:
    if len(frame) > REQUEST_BYTES_MAX:
        raise MalformedFrame(
            f"Fetch of {len(frame)} bytes, more than {REQUEST_BYTES_MAX}; name fewer partitions at a time"
        )
    try:
        request, at = (
            _parse_flexible(frame, at, version) if version >= FIRST_FLEXIBLE else _parse(frame, at, version)
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"Fetch version {version} ends inside a field: {error}") from error
    if at > len(frame):
        raise MalformedFrame(f"Fetch version {version} ends {at - len(frame)} bytes early")
    return request


_HEAD_4 = struct.Struct(">iiiib")  # replica id, max wait, min bytes, max bytes, isolation level
_HEAD_7 = struct.Struct(">iiiibii")  # … session id, session epoch
_HEAD_15 = struct.Struct(">iiibii")  # no replica id
_PARTITION_4 = struct.Struct(">iqi")  # index, offset, max bytes
_PARTITION_5 = struct.Struct(">iqqi")  # index, offset, log start offset, max bytes
_PARTITION_9 = struct.Struct(">iiqqi")  # index, leader epoch, offset, log start offset, max bytes
_PARTITION_12 = struct.Struct(
    ">iiqiqi"
)  # index, leader epoch, offset, last fetched epoch, log start, max bytes


def _parse(frame: memoryview, at: int, version: int) -> tuple[FetchRequest, int]:
    session_id, session_epoch = 0, -1
    if version >= FIRST_WITH_SESSIONS:
        head = _HEAD_7.unpack_from(frame, at)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = head
        at += _HEAD_7.size
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _HEAD_4.unpack_from(frame, at)
        at += _HEAD_4.size
    topics = []
    topic_count = _I32.unpack_from(frame, at)[0]
    at += 4
    for _ in range(topic_count):
        name, at = _read_name(frame, at)
        partition_count = _I32.unpack_from(frame, at)[0]
        at += 4
        partitions = []
        for _ in range(partition_count):
            epoch = log_start = -1
            if version >= 9:
                index, epoch, offset, log_start, partition_bytes = _PARTITION_9.unpack_from(frame, at)
                at += _PARTITION_9.size
            elif version >= 5:
                index, offset, log_start, partition_bytes = _PARTITION_5.unpack_from(frame, at)
                at += _PARTITION_5.size
            else:
                index, offset, partition_bytes = _PARTITION_4.unpack_from(frame, at)
                at += _PARTITION_4.size
            partitions.append(_make(PartitionFetch, (index, epoch, offset, partition_bytes, -1, log_start)))
        topics.append((name, partitions))
    forgotten = []
    if version >= FIRST_WITH_SESSIONS:
        topic_count = _I32.unpack_from(frame, at)[0]
        at += 4
        for _ in range(topic_count):
            name, at = _read_name(frame, at)
            index_count = max(_I32.unpack_from(frame, at)[0], 0)
            at += 4
            if at + 4 * index_count > len(frame):
                raise MalformedFrame(f"Fetch announces {index_count} forgotten partitions")
            forgotten.append((name, list(struct.unpack_from(f">{index_count}i", frame, at))))
            at += 4 * index_count
    rack = None
    if version >= FIRST_WITH_RACK:
        rack, at = read_nullable_string(frame, at)
    return (
        FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation == 1,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack or "",
        ),
        at,
    )


def _read_name(frame: memoryview, at: int) -> tuple[bytes, int]:
    length = _I16.unpack_from(frame, at)[0]
    if length < 0:
        raise MalformedFrame("Fetch names no topic")
    at += 2
    return bytes(frame[at : at + length]), at + length


def _parse_flexible(frame: memoryview, at: int, version: int) -> tuple[FetchRequest, int]:
    replica_id = CONSUMER_REPLICA_ID
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = _HEAD_15.unpack_from(
            frame, at
        )
        at += _HEAD_15.size
    else:
        head = _HEAD_7.unpack_from(frame, at)
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = head
        at += _HEAD_7.size
    topics = []
    topic_count, at = read_uvarint(frame, at)
    for _ in range(topic_count - 1):
        topic, at = _read_topic(frame, at, version)
        partition_count, at = read_uvarint(frame, at)
        partitions = []
        for _ in range(partition_count - 1):
            index, epoch, offset, last_epoch, log_start, partition_bytes = _PARTITION_12.unpack_from(
                frame, at
            )
            at = skip_tags(frame, at + _PARTITION_12.size)
            partitions.append(
                _make(PartitionFetch, (index, epoch, offset, partition_bytes, last_epoch, log_start))
            )
        at = skip_tags(frame, at)
        topics.append((topic, partitions))
    forgotten = []
    topic_count, at = read_uvarint(frame, at)
    for _ in range(topic_count - 1):
        topic, at = _read_topic(frame, at, version)
        index_count, at = read_uvarint(frame, at)
        index_count = max(index_count - 1, 0)
        if at + 4 * index_count > len(frame):
            raise MalformedFrame(f"Fetch announces {index_count} forgotten partitions")
        forgotten.append((topic, list(struct.unpack_from(f">{index_count}i", frame, at))))
        at = skip_tags(frame, at + 4 * index_count)
    rack, at = read_compact_string(frame, at)
    replica_id, replica_epoch, at = _read_replica_tag(frame, at, replica_id)
    return (
        FetchRequest(
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation == 1,
            session_id,
            session_epoch,
            topics,
            forgotten,
            rack or "",
            replica_epoch,
        ),
        at,
    )


def _read_topic(frame: memoryview, at: int, version: int) -> tuple[bytes, int]:
    if version >= FIRST_WITH_TOPIC_IDS:
        length = 16
    else:
        length, at = read_uvarint(frame, at)
        length -= 1
        if length < 0:
            raise MalformedFrame("Fetch names no topic")
    return bytes(frame[at : at + length]), at + length


def _read_replica_tag(frame: memoryview, at: int, replica_id: int) -> tuple[int, int, int]:
    """Since version 15 a follower says who it is in a tagged field."""
    replica_epoch = -1
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if tag == _REPLICA_STATE_TAG:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, at)
        at += size
    return replica_id, replica_epoch, at


class FetchedPartition(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: ReadableBuffer
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions; None for who reads uncommitted records, too."""
    diverging: tuple[int, int] | None = None
    """The epoch up to which the reader may have the same, and where it ended here; None: all is the same."""
    preferred: int = NO_REPLICA
    """The broker whose replica the consumer should rather read."""


def fetched(
    partition: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    records: ReadableBuffer,
    aborted: Sequence[tuple[int, int]] | None,
) -> FetchedPartition:
    return _make(
        FetchedPartition,
        (
            partition,
            0,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            records,
            aborted,
            None,
            NO_REPLICA,
        ),
    )


_RESPONSE_HEAD = struct.Struct(">ihi")  # throttle time, error, session id
_ROW_4 = struct.Struct(">ihqqii")  # index, error, high watermark, last stable, no aborted, records length
_ROW_5 = struct.Struct(">ihqqqii")
_ROW_11 = struct.Struct(">ihqqqiii")  # preferred read replica before the length
_ROW_12 = struct.Struct(">ihqqqBi")  # compact aborted list, preferred read replica
_ROW_HEAD_4 = struct.Struct(">ihqq")  # what comes before an aborted list
_ROW_HEAD_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_ABORTED_12 = struct.Struct(">qqB")  # no tags
_DIVERGING = struct.Struct(">BBBiqB")  # one tag: 0, its size, epoch, end offset, no tags
_CURRENT_LEADER_TAG = 1
# Rows are joined one by one, which is fast as long as there are few.
JOINED_BYTES_MAX = 4096


def encode(  # noqa: PLR0912 - a call per branch would cost what this path may not
    version: int,
    session_id: int,
    topics: list[tuple[bytes, list[FetchedPartition]]],
    error_code: int = 0,
    throttle_ms: int = 0,
    leaders: Leaders | None = None,
    listener: str = "",
) -> list[ReadableBuffer]:
    """The body, after the response header, as buffers: record data is passed through untouched.

    `leaders` are asked for those whom a client of the listener took this broker for.
    """
    flexible = version >= FIRST_FLEXIBLE
    if version >= FIRST_WITH_SESSIONS:
        pending = _RESPONSE_HEAD.pack(throttle_ms, error_code, session_id)
    else:
        pending = _I32.pack(throttle_ms)
    pending += uvarint(len(topics) + 1) if flexible else _I32.pack(len(topics))
    out: list[ReadableBuffer] = []
    found: list[CurrentLeader] = []
    for topic, partitions in topics:
        if not flexible:
            pending += _I16.pack(len(topic)) + topic + _I32.pack(len(partitions))
        elif version >= FIRST_WITH_TOPIC_IDS:
            pending += topic + uvarint(len(partitions) + 1)
        else:
            pending += uvarint(len(topic) + 1) + topic + uvarint(len(partitions) + 1)
        for row in partitions:
            index, error, high_watermark, last_stable, log_start, records, aborted, diverging, preferred = row
            length = len(records)
            if aborted is not None:
                pending += _row_with_aborted(version, row, aborted)
            elif flexible:
                pending += _ROW_12.pack(index, error, high_watermark, last_stable, log_start, 0, preferred)
                pending += uvarint(length + 1)
            elif version >= FIRST_WITH_RACK:
                pending += _ROW_11.pack(
                    index, error, high_watermark, last_stable, log_start, -1, preferred, length
                )
            elif version >= 5:
                pending += _ROW_5.pack(index, error, high_watermark, last_stable, log_start, -1, length)
            else:
                pending += _ROW_4.pack(index, error, high_watermark, last_stable, -1, length)
            if length:
                out.append(pending)
                out.append(records)
                pending = b""
            elif len(pending) > JOINED_BYTES_MAX:
                out.append(pending)
                pending = b""
            if not flexible:
                continue
            if diverging is not None:
                pending += _DIVERGING.pack(1, 0, 13, *diverging, 0)
            elif error and leaders is not None and _is_misdirected(version, error):
                by_id = version >= FIRST_WITH_TOPIC_IDS
                leader = leaders.find(listener, topic, index, by_id=by_id)
                if leader is None:
                    pending += b"\0"
                else:
                    found.append(leader)
                    pending += leader_tags(_CURRENT_LEADER_TAG, leader)
            else:
                pending += b"\0"
        if flexible:
            pending += b"\0"
    if flexible:
        pending += endpoint_tags(found) if found else b"\0"
    if pending:
        out.append(pending)
    return out


def _is_misdirected(version: int, error: int) -> bool:
    return version >= FIRST_WITH_ENDPOINTS and error in (NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH)


def _row_with_aborted(version: int, row: FetchedPartition, aborted: Sequence[tuple[int, int]]) -> bytes:
    """A row up to its records."""
    index, error, high_watermark, last_stable, log_start, records, _, _, preferred = row
    if version >= 5:
        head = _ROW_HEAD_5.pack(index, error, high_watermark, last_stable, log_start)
    else:
        head = _ROW_HEAD_4.pack(index, error, high_watermark, last_stable)
    if version >= FIRST_FLEXIBLE:
        entries = b"".join(_ABORTED_12.pack(*transaction, 0) for transaction in aborted)
        tail = _I32.pack(preferred) + uvarint(len(records) + 1)
        return head + uvarint(len(aborted) + 1) + entries + tail
    entries = b"".join(_ABORTED.pack(*transaction) for transaction in aborted)
    tail = (_I32.pack(preferred) if version >= FIRST_WITH_RACK else b"") + _I32.pack(len(records))
    return head + _I32.pack(len(aborted)) + entries + tail
