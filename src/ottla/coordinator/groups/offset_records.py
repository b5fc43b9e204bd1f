"""Offset commit records, packed by hand: a broker writes thousands of them a second.

    key    type i16 (1) · group string · topic string · partition i32
    value  version i16 · offset i64 · [leader epoch i32, 3+] · metadata string · commit time i64
           · [expiry i64, 1] · [tagged fields: 0 = topic id, 4+]

Version 4 is written, or 1 where a client of long ago asked for its own retention time; 0 to 4 are read.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from ottla.varints import read_uvarint, uvarint

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_KEY_HEAD = struct.Struct(">hh")
_VALUE_HEAD_V4 = struct.Struct(">hqi")
_VALUE_HEAD_V1 = struct.Struct(">hqh")
_VALUE_TAIL_V1 = struct.Struct(">qq")

NO_LEADER_EPOCH = -1
NO_EXPIRY = -1
_FLEXIBLE_VERSION = 4
_TOPIC_ID_TAG = b"\x01\x00\x10"  # one tagged field: tag 0, 16 bytes
_NO_TAGS = b"\x00"


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = NO_EXPIRY
    topic_id: uuid.UUID | None = None


def encode_offset_key(key: OffsetCommitKey) -> bytes:
    group, topic = key.group.encode(), key.topic.encode()
    return b"".join(
        (_KEY_HEAD.pack(1, len(group)), group, _I16.pack(len(topic)), topic, _I32.pack(key.partition))
    )


def decode_offset_key(data: bytes) -> OffsetCommitKey:
    group, at = _read_string(data, 2)
    topic, at = _read_string(data, at)
    return OffsetCommitKey(group, topic, _I32.unpack_from(data, at)[0])


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp != NO_EXPIRY:
        return b"".join(
            (
                _VALUE_HEAD_V1.pack(1, value.offset, len(metadata)),
                metadata,
                _VALUE_TAIL_V1.pack(value.commit_timestamp, value.expire_timestamp),
            )
        )
    return b"".join(
        (
            _VALUE_HEAD_V4.pack(_FLEXIBLE_VERSION, value.offset, value.leader_epoch),
            uvarint(len(metadata) + 1),
            metadata,
            _I64.pack(value.commit_timestamp),
            _NO_TAGS if value.topic_id is None else _TOPIC_ID_TAG + value.topic_id.bytes,
        )
    )


def decode_offset_value(data: bytes) -> OffsetCommitValue:
    (version,) = _I16.unpack_from(data)
    (offset,) = _I64.unpack_from(data, 2)
    at = 10
    leader_epoch, expire_timestamp, topic_id = NO_LEADER_EPOCH, NO_EXPIRY, None
    if version >= 3:
        (leader_epoch,) = _I32.unpack_from(data, at)
        at += 4
    if version >= _FLEXIBLE_VERSION:
        length, at = read_uvarint(data, at)
        metadata, at = data[at : at + length - 1].decode(), at + length - 1
    else:
        metadata, at = _read_string(data, at)
    (commit_timestamp,) = _I64.unpack_from(data, at)
    if version == 1:
        (expire_timestamp,) = _I64.unpack_from(data, at + 8)
    elif version >= _FLEXIBLE_VERSION:
        topic_id = _read_topic_id(data, at + 8)
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)


def _read_topic_id(data: bytes, at: int) -> uuid.UUID | None:
    count, at = read_uvarint(data, at)
    topic_id = None
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        length, at = read_uvarint(data, at)
        if tag == 0 and length == 16:
            topic_id = uuid.UUID(bytes=data[at : at + length])
        at += length
    return topic_id


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _I16.unpack_from(data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end
