"""The `quorum-state` file: the last election, as one line of JSON in Apache Kafka's layout.

Its `appliedOffset`, which Kafka leaves at 0 and does not read, holds how much of the log was surely on disk.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ottla.raft.core import Election
from ottla.runtime.disk import Disk

FILE_NAME = "quorum-state"
_NOBODY = -1
_VERSIONS = (0, 1)
# Others might have been promised a vote; with one voter, log and snapshots prove all that matters.
_REMEDY = "this node is the only voter: move the file away, and it is written anew from the log"


class QuorumStateDamaged(Exception):
    """The text names the file, what is wrong with it, and the remedy."""


class QuorumState(NamedTuple):
    election: Election = Election()
    synced_offset: int = 0
    """Everything before it was on disk when this was written."""


def load_quorum_state(disk: Disk, directory: str) -> QuorumState | None:
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    text = disk.read_file(path).decode("utf-8", "replace")
    try:
        state = json.loads(text)
        version = state["data_version"]
        if version not in _VERSIONS:
            raise QuorumStateDamaged(
                f"{path}: data_version {version} is not supported, only 0 and 1; {_REMEDY}"
            )
        election = Election(
            epoch=int(state["leaderEpoch"]),
            leader_id=_somebody(int(state["leaderId"])),
            voted_id=_somebody(int(state["votedId"])),
        )
        return QuorumState(election, int(state.get("appliedOffset", 0)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise QuorumStateDamaged(f"{path}: not a quorum state ({error!r}); {_REMEDY}") from error


def save_quorum_state(disk: Disk, directory: str, state: QuorumState, voters: tuple[int, ...]) -> None:
    """Blocks until it is on the medium."""
    election = state.election
    data = {
        "clusterId": "",
        "leaderId": _NOBODY if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": _NOBODY if election.voted_id is None else election.voted_id,
        "appliedOffset": state.synced_offset,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    disk.replace_file(f"{directory}/{FILE_NAME}", json.dumps(data, separators=(",", ":")).encode())


def _somebody(node_id: int) -> int | None:
    return None if node_id == _NOBODY else node_id
