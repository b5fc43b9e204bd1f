"""The asking side of Fetch as a follower does it: versions 15 to 17, which are alike on the wire.

Record batches come back as views of the answer, undecoded and uncopied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.varints import read_uvarint, uvarint
from ottla.wire.primitives import skip_tags

VERSION_MIN = 15
VERSION_MAX = 17

_HEAD = struct.Struct(">iiibii")  # max wait, min bytes, max bytes, isolation, session id, session epoch
_PARTITION = struct.Struct(
    ">iiqiqiB"
)  # index, leader epoch, offset, last epoch, log start, max bytes, no tags
_REPLICA = struct.Struct(">BBBiqB")  # one tag: 1, its size, replica id, broker epoch, no tags
_ANSWER_HEAD = struct.Struct(">ihi")  # throttle time, error, session id
_ROW = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_DIVERGING = struct.Struct(">iq")
_I32 = struct.Struct(">i")
_ABORTED_BYTES = 16
_DIVERGING_TAG = 0


class FetchPosition(NamedTuple):
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class ReplicaFetched(NamedTuple):
    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    """The epoch up to which both may have the same, and where it ended on the leader."""
    records: memoryview


def encode(
    positions: Mapping[tuple[UUID, int], FetchPosition],
    forgotten: Iterable[tuple[UUID, int]],
    *,
    replica_id: int,
    broker_epoch: int,
    session: tuple[int, int],
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
) -> bytes:
    body = bytearray(_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, *session))
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in positions:
        topics.setdefault(topic_id, []).append(index)
    body += uvarint(len(topics) + 1)
    for topic_id, indexes in topics.items():
        body += topic_id.bytes + uvarint(len(indexes) + 1)
        for index in indexes:
            position = positions[topic_id, index]
            body += _PARTITION.pack(index, *position, partition_max_bytes, 0)
        body += b"\0"
    gone: dict[UUID, list[int]] = {}
    for topic_id, index in forgotten:
        gone.setdefault(topic_id, []).append(index)
    body += uvarint(len(gone) + 1)
    for topic_id, indexes in gone.items():
        body += topic_id.bytes + uvarint(len(indexes) + 1)
        body += struct.pack(f">{len(indexes)}i", *indexes) + b"\0"
    body += b"\1"  # no rack
    body += _REPLICA.pack(1, 1, 13, replica_id, broker_epoch, 0)
    return bytes(body)


def decode(body: memoryview) -> tuple[int, int, list[ReplicaFetched]]:
    """The error of the whole answer, the session's id, and each partition."""
    _, error, session_id = _ANSWER_HEAD.unpack_from(body)
    at = _ANSWER_HEAD.size
    rows: list[ReplicaFetched] = []
    topic_count, at = read_uvarint(body, at)
    for _ in range(topic_count - 1):
        topic_id = UUID(bytes=bytes(body[at : at + 16]))
        at += 16
        partition_count, at = read_uvarint(body, at)
        for _ in range(partition_count - 1):
            index, code, high_watermark, _, log_start = _ROW.unpack_from(body, at)
            aborted_count, at = read_uvarint(body, at + _ROW.size)
            for _ in range(aborted_count - 1):
                at = skip_tags(body, at + _ABORTED_BYTES)
            length, at = read_uvarint(body, at + _I32.size)
            records = body[at : at + max(length - 1, 0)]
            diverging, at = _read_tags(body, at + len(records))
            rows.append(ReplicaFetched(topic_id, index, code, high_watermark, log_start, diverging, records))
        at = skip_tags(body, at)
    return error, session_id, rows


def _read_tags(body: memoryview, at: int) -> tuple[tuple[int, int] | None, int]:
    diverging: tuple[int, int] | None = None
    count, at = read_uvarint(body, at)
    for _ in range(count):
        tag, at = read_uvarint(body, at)
        size, at = read_uvarint(body, at)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(body, at)
            if epoch >= 0:
                diverging = epoch, end_offset
        at += size
    return diverging, at
