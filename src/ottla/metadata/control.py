"""Control records: what the quorum itself writes into the metadata log and its snapshots.

They stand in control batches, keyed by two int16: the key's version, and the type. The few that are written
are so small that they are packed here instead of declared.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.records.records import Record

if TYPE_CHECKING:
    from kio.schema.voters_record.v0.data import VotersRecord

_KEY = struct.Struct(">hh")
_LEADER_CHANGE = struct.Struct(">hi")  # version, leader id
_VOTER = struct.Struct(">iB")  # id, no tagged fields
_SNAPSHOT_HEADER = struct.Struct(">hq")  # version, timestamp of the last record contained
_SNAPSHOT_FOOTER = struct.Struct(">h")  # version
_KRAFT_VERSION = struct.Struct(">hh")  # version, kraft.version
_NO_TAGGED_FIELDS = b"\0"
_COMPACT_LENGTH_MAX = 126  # what one byte of a compact array's length can say


class ControlType(IntEnum):
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


# Of the quorum, not of the cluster: in force until the next of their type, and so part of every snapshot.
LASTING = (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


def control_type(record: Record) -> int:
    """A number that need not be in ControlType: newer versions have more."""
    if record.key is None or len(record.key) < _KEY.size:
        raise ValueError(f"control record at offset {record.offset} has no type")
    _, number = _KEY.unpack_from(record.key)
    return int(number)


def leader_change(leader_id: int, voters: Sequence[int], granting: Sequence[int], now_ms: int) -> Record:
    value = _LEADER_CHANGE.pack(0, leader_id) + _voters(voters) + _voters(granting) + _NO_TAGGED_FIELDS
    return _record(ControlType.LEADER_CHANGE, value, now_ms)


def snapshot_header(last_timestamp_ms: int, now_ms: int) -> Record:
    value = _SNAPSHOT_HEADER.pack(0, last_timestamp_ms) + _NO_TAGGED_FIELDS
    return _record(ControlType.SNAPSHOT_HEADER, value, now_ms)


def snapshot_footer(now_ms: int) -> Record:
    return _record(ControlType.SNAPSHOT_FOOTER, _SNAPSHOT_FOOTER.pack(0) + _NO_TAGGED_FIELDS, now_ms)


def read_snapshot_timestamp(record: Record) -> int:
    """Of a snapshot's header."""
    value = record.value or b""
    if len(value) < _SNAPSHOT_HEADER.size:
        raise ValueError(f"the header of the snapshot has {len(value)} bytes")
    return int(_SNAPSHOT_HEADER.unpack_from(value)[1])


def read_voters(record: Record) -> VotersRecord:
    from kio.schema.voters_record.v0.data import VotersRecord
    from kio.serial import entity_reader

    voters, _ = entity_reader(VotersRecord)(record.value or b"", 0)
    return voters


def voters_record(voters: VotersRecord, now_ms: int) -> Record:
    from kio.schema.voters_record.v0.data import VotersRecord
    from kio.serial import entity_writer

    buffer = io.BytesIO()
    entity_writer(VotersRecord)(buffer, voters)
    return _record(ControlType.KRAFT_VOTERS, buffer.getvalue(), now_ms)


def kraft_version_record(version: int, now_ms: int) -> Record:
    value = _KRAFT_VERSION.pack(0, version) + _NO_TAGGED_FIELDS
    return _record(ControlType.KRAFT_VERSION, value, now_ms)


def read_kraft_version(record: Record) -> int:
    value = record.value or b""
    if len(value) < _KRAFT_VERSION.size:
        raise ValueError(f"the version of the quorum has {len(value)} bytes")
    return int(_KRAFT_VERSION.unpack_from(value)[1])


def _voters(voter_ids: Sequence[int]) -> bytes:
    if len(voter_ids) > _COMPACT_LENGTH_MAX:
        raise ValueError(f"a quorum of {len(voter_ids)} voters is too large")
    return bytes([len(voter_ids) + 1]) + b"".join(_VOTER.pack(voter_id, 0) for voter_id in voter_ids)


def _record(kind: ControlType, value: bytes, now_ms: int) -> Record:
    return Record(_KEY.pack(0, kind), value, now_ms)
