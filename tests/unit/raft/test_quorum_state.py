from __future__ import annotations

from uuid import UUID

import pytest

from ottla.metadata.uuids import parse_uuid
from ottla.raft.events import Election
from ottla.raft.quorum_state import (
    QuorumState,
    QuorumStateDamaged,
    load_quorum_state,
    save_quorum_state,
)
from ottla.raft.voters import ReplicaKey
from ottla.sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/q")
    return disk


@pytest.mark.parametrize(
    ("election", "kraft_version"),
    [
        (Election(0), 0),
        (Election(3, voted=ReplicaKey(1)), 0),
        (Election(3, leader_id=1, voted=ReplicaKey(1)), 0),
        (Election(3), 1),
        (Election(3, voted=ReplicaKey(2, UUID(int=77))), 1),
    ],
)
def test_an_election_survives(disk: SimDisk, election: Election, kraft_version: int) -> None:
    state = QuorumState(election, synced_offset=17, kraft_version=kraft_version)
    save_quorum_state(disk, "/q", state, (1,))
    assert load_quorum_state(disk, "/q") == state


def test_the_file_is_apache_kafkas(disk: SimDisk) -> None:
    save_quorum_state(disk, "/q", QuorumState(Election(3, leader_id=1)), (1,))
    assert disk.read_file("/q/quorum-state") == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )


def test_the_newer_layout_is_read(disk: SimDisk) -> None:
    disk.replace_file(
        "/q/quorum-state",
        b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ",'
        b'"data_version":1}',
    )
    voted = ReplicaKey(1, parse_uuid("J8aAPcfLQt2bqs1JT_rMgQ"))
    assert load_quorum_state(disk, "/q") == QuorumState(Election(2, voted=voted), kraft_version=1)


def test_no_file_is_no_election(disk: SimDisk) -> None:
    assert load_quorum_state(disk, "/q") is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"7", b'{"data_version":0}', b'{"data_version":2}'])
def test_damage_is_named(disk: SimDisk, text: bytes) -> None:
    disk.replace_file("/q/quorum-state", text)
    with pytest.raises(QuorumStateDamaged, match=r"/q/quorum-state: .*move the file away"):
        load_quorum_state(disk, "/q")
