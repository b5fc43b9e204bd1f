"""Control records are packed by hand; kio's declarations say whether rightly."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.leader_change_message.v0.data import Voter as LeaderChangeVoter
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.types import BrokerId
from kio.schema.voters_record.v0.data import Endpoint, KRaftVersionFeature, Voter, VotersRecord
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, u16

from ottla.metadata.control import (
    ControlType,
    control_type,
    leader_change,
    read_snapshot_timestamp,
    read_voters,
    snapshot_footer,
    snapshot_header,
)
from ottla.records.records import Record


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3), tuple(range(126))])
def test_leader_change(voters: tuple[int, ...]) -> None:
    record = leader_change(2, voters, voters[:1], 77)
    assert record.value is not None
    message, size = entity_reader(LeaderChangeMessage)(record.value, 0)
    assert size == len(record.value)
    assert message == LeaderChangeMessage(
        version=i16(0),
        leader_id=BrokerId(2),
        voters=tuple(LeaderChangeVoter(voter_id=i32(voter)) for voter in voters),
        granting_voters=(LeaderChangeVoter(voter_id=i32(voters[0])),),
    )
    assert record.key == b"\0\0\0\2" and record.timestamp_ms == 77
    assert control_type(record) == ControlType.LEADER_CHANGE


def test_a_quorum_has_a_limit() -> None:
    with pytest.raises(ValueError, match="127 voters"):
        leader_change(2, range(127), (), 0)


def test_snapshot_header_and_footer() -> None:
    header, footer = snapshot_header(1234, 5), snapshot_footer(5)
    assert header.value is not None and footer.value is not None
    message, size = entity_reader(SnapshotHeaderRecord)(header.value, 0)
    assert (message.version, message.last_contained_log_timestamp, size) == (0, 1234, len(header.value))
    assert read_snapshot_timestamp(header) == 1234
    assert entity_reader(SnapshotFooterRecord)(footer.value, 0) == (
        SnapshotFooterRecord(version=i16(0)),
        len(footer.value),
    )
    assert control_type(header) == ControlType.SNAPSHOT_HEADER
    assert control_type(footer) == ControlType.SNAPSHOT_FOOTER


def test_voters_are_read() -> None:
    voters = VotersRecord(
        version=i16(0),
        voters=tuple(
            Voter(
                voter_id=BrokerId(voter),
                voter_directory_id=UUID(int=200 + voter),
                endpoints=(Endpoint(name="CONTROLLER", host="localhost", port=u16(9093)),),
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=i16(0), max_supported_version=i16(1)
                ),
            )
            for voter in (3, 1, 2)
        ),
    )
    buffer = io.BytesIO()
    entity_writer(VotersRecord)(buffer, voters)
    assert [voter.voter_id for voter in read_voters(Record(b"\0\0\0\6", buffer.getvalue())).voters] == [
        3,
        1,
        2,
    ]


def test_damage_is_a_value_error() -> None:
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(ValueError, match="no type"):
            control_type(Record(key, b""))
    with pytest.raises(ValueError, match="9 bytes"):
        read_snapshot_timestamp(Record(b"\0\0\0\3", b"123456789"))
