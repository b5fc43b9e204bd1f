"""Control records: what the quorum itself writes into the metadata log and its snapshots.

They stand in control batches, keyed by two int16: the key's version, and the type.
"""

from __future__ import annotations

import io
import struct
from enum import IntEnum
from typing import Any

from kio.schema.leader_change_message.v0.data import LeaderChangeMessage, Voter
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64

from ottla.records.records import Record

_KEY = struct.Struct(">hh")


class ControlType(IntEnum):
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_type(record: Record) -> int:
    """A number that need not be in ControlType: newer versions have more."""
    if record.key is None or len(record.key) < _KEY.size:
        raise ValueError(f"control record at offset {record.offset} has no type")
    _, number = _KEY.unpack_from(record.key)
    return int(number)


def leader_change(leader_id: int, voters: tuple[int, ...], granting: tuple[int, ...], now_ms: int) -> Record:
    message = LeaderChangeMessage(
        version=i16(0),
        leader_id=BrokerId(leader_id),
        voters=tuple(Voter(voter_id=i32(voter)) for voter in voters),
        granting_voters=tuple(Voter(voter_id=i32(voter)) for voter in granting),
    )
    return _record(ControlType.LEADER_CHANGE, LeaderChangeMessage, message, now_ms)


def snapshot_header(last_timestamp_ms: int, now_ms: int) -> Record:
    message = SnapshotHeaderRecord(version=i16(0), last_contained_log_timestamp=i64(last_timestamp_ms))
    return _record(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord, message, now_ms)


def snapshot_footer(now_ms: int) -> Record:
    return _record(
        ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord, SnapshotFooterRecord(version=i16(0)), now_ms
    )


def read_snapshot_timestamp(record: Record) -> int:
    header, _ = entity_reader(SnapshotHeaderRecord)(record.value or b"", 0)
    return header.last_contained_log_timestamp


def read_voter_ids(record: Record) -> tuple[int, ...]:
    from kio.schema.voters_record.v0.data import VotersRecord

    voters, _ = entity_reader(VotersRecord)(record.value or b"", 0)
    return tuple(sorted(voter.voter_id for voter in voters.voters))


def _record(kind: ControlType, message_type: Any, message: Any, now_ms: int) -> Record:
    buffer = io.BytesIO()
    entity_writer(message_type)(buffer, message)
    return Record(_KEY.pack(0, kind), buffer.getvalue(), now_ms)
