"""The `quorum-state` file: the last election, as one line of JSON in Apache Kafka's layouts.

Version 1 is that of a quorum whose voters are in the log. `appliedOffset`, which Kafka leaves at 0 or out and
does not read, holds how much of the log was surely on disk.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from uuid import UUID

from ottla.metadata.uuids import parse_uuid, uuid_text
from ottla.raft.events import Election
from ottla.raft.voters import ReplicaKey
from ottla.runtime.disk import Disk

FILE_NAME = "quorum-state"
_NOBODY = -1
_NO_DIRECTORY = UUID(int=0)
_VERSIONS = (0, 1)
# Others may have been promised a vote; with one voter, log and snapshots prove all that matters.
_REMEDY = (
    "where this node is the only voter, move the file away, and it is written anew from the log; one of "
    "several may have voted: restore it from a backup, or wait until the others have a later leader"
)


class QuorumStateDamaged(Exception):
    """The text names the file, what is wrong with it, and the remedy."""


class QuorumState(NamedTuple):
    election: Election = Election()
    synced_offset: int = 0
    """Everything before it was on disk when this was written."""
    kraft_version: int = 0


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
            voted=_voted(state),
        )
        return QuorumState(election, int(state.get("appliedOffset", 0)), version)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise QuorumStateDamaged(f"{path}: not a quorum state ({error!r}); {_REMEDY}") from error


def save_quorum_state(disk: Disk, directory: str, state: QuorumState, voters: tuple[int, ...]) -> None:
    """Blocks until it is on the medium."""
    election, voted = state.election, state.election.voted
    data: dict[str, Any] = {
        "leaderId": _NOBODY if election.leader_id is None else election.leader_id,
        "leaderEpoch": election.epoch,
        "votedId": _NOBODY if voted is None else voted.id,
        "appliedOffset": state.synced_offset,
    }
    if state.kraft_version == 0:
        # Voters of the configuration have no directories.
        data = {
            "clusterId": "",
            **data,
            "currentVoters": [{"voterId": voter} for voter in voters],
            "data_version": 0,
        }
    else:
        directory_id = None if voted is None else voted.directory_id
        data |= {"votedDirectoryId": uuid_text(directory_id or _NO_DIRECTORY), "data_version": 1}
    disk.replace_file(f"{directory}/{FILE_NAME}", json.dumps(data, separators=(",", ":")).encode())


def _voted(state: dict[str, Any]) -> ReplicaKey | None:
    node_id = _somebody(int(state["votedId"]))
    text = state.get("votedDirectoryId")
    if node_id is None:
        return None
    directory_id = _NO_DIRECTORY if text is None else parse_uuid(text)
    return ReplicaKey(node_id, None if directory_id == _NO_DIRECTORY else directory_id)


def _somebody(node_id: int) -> int | None:
    return None if node_id == _NOBODY else node_id
