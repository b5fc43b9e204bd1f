"""The asking side of Fetch: record batches come back as views of the answer, undecoded and uncopied.

Version 12 names topics, and is spoken by every broker since Kafka 2.7. Version 13 has their ids instead
(Kafka 3.1), so that a topic that was made anew is not taken for the one before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.varints import read_uvarint, uvarint
from ottla.wire.errors import ErrorCode
from ottla.wire.primitives import skip_tags

VERSION = 12
VERSION_WITH_IDS = 13
CONSUMER = -1
DEBUGGER = -2
"""Of who reads from any replica, leader or not, what is committed."""

_HEAD = struct.Struct(">iiiibii")  # replica id, max wait, min bytes, max bytes, isolation, session id, epoch
_PARTITION = struct.Struct(">iiqiqi")  # index, leader epoch, offset, last fetched epoch, log start, max bytes
_ANSWER_HEAD = struct.Struct(">ihi")  # throttle time, error, session id
_ROW = struct.Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start offset
_ABORTED = struct.Struct(">qq")  # producer id, first offset
_I32 = struct.Struct(">i")
_ID_BYTES = 16


class FetchFrom(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int = -1


class Aborted(NamedTuple):
    """A transaction that ended in an abort: what this producer wrote from here to its marker never was."""

    producer_id: int
    first_offset: int


class Fetched(NamedTuple):
    error_code: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[Aborted]
    records: memoryview
    """Batches; the last one may be cut off, and the first may begin before the offset asked for."""


def encode(
    topics: Mapping[str, Sequence[FetchFrom]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    read_committed: bool,
    replica_id: int = CONSUMER,
    ids: Mapping[str, UUID] | None = None,
) -> bytes:
    """`ids`: of all the topics, for the version that has them instead of names."""
    body = bytearray(_HEAD.pack(replica_id, max_wait_ms, min_bytes, max_bytes, int(read_committed), 0, -1))
    body += uvarint(len(topics) + 1)
    for topic, partitions in topics.items():
        if ids is None:
            name = topic.encode()
            body += uvarint(len(name) + 1) + name
        else:
            body += ids[topic].bytes
        body += uvarint(len(partitions) + 1)
        for partition, offset, leader_epoch in partitions:
            body += _PARTITION.pack(partition, leader_epoch, offset, -1, -1, partition_max_bytes) + b"\0"
        body += b"\0"
    body += b"\1\1\0"  # nothing forgotten, no rack, no tagged fields
    return bytes(body)


def decode(
    body: memoryview, names: Mapping[UUID, str] | None = None
) -> tuple[ErrorCode, dict[tuple[str, int], Fetched]]:
    """The error of the whole answer, and each partition. `names`: of topics that were asked for by ids."""
    _, error, _ = _ANSWER_HEAD.unpack_from(body)
    at = _ANSWER_HEAD.size
    fetched: dict[tuple[str, int], Fetched] = {}
    topic_count, at = read_uvarint(body, at)
    for _ in range(topic_count - 1):
        if names is None:
            length, at = read_uvarint(body, at)
            topic = str(body[at : at + length - 1], "utf-8")
            at += length - 1
        else:
            topic = names[UUID(bytes=bytes(body[at : at + _ID_BYTES]))]
            at += _ID_BYTES
        partition_count, at = read_uvarint(body, at)
        for _ in range(partition_count - 1):
            partition, code, high_watermark, last_stable, log_start = _ROW.unpack_from(body, at)
            aborted, at = _read_aborted(body, at + _ROW.size)
            at += _I32.size  # preferred read replica: only for clients that named their rack
            length, at = read_uvarint(body, at)
            records = body[at : at + max(length - 1, 0)]
            at = skip_tags(body, at + len(records))
            fetched[topic, partition] = Fetched(
                ErrorCode(code), high_watermark, last_stable, log_start, aborted, records
            )
        at = skip_tags(body, at)
    return ErrorCode(error), fetched


def _read_aborted(body: memoryview, at: int) -> tuple[list[Aborted], int]:
    count, at = read_uvarint(body, at)
    aborted = []
    for _ in range(count - 1):
        aborted.append(Aborted._make(_ABORTED.unpack_from(body, at)))
        at = skip_tags(body, at + _ABORTED.size)
    return aborted, at
