"""Which changes of its voters the leader of a quorum makes: one at a time, and one voter each (KIP-853).

Majorities of two sets that differ by one voter have a member in common, so that a change counts from the
moment that it is in a log. That only holds from one set to the next: a change waits until the one before is
committed, and so is a record of the leader's own epoch, since those of earlier leaders may still be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.metadata.features import KRAFT_VERSION
from ottla.metadata.uuids import uuid_text
from ottla.raft.events import QuorumChange
from ottla.raft.voters import SUPPORTED, KRaftVersions, ReplicaKey, Voter, VoterSet
from ottla.wire.errors import ErrorCode

FIRST_WITH_CHANGES = 1
"""The level of `kraft.version` from which on the voters are in the log."""


class VoterChangeRefused(Exception):
    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error = error


class Standing(NamedTuple):
    """Of the quorum, as its leader sees it."""

    kraft_version: int
    voters: VoterSet
    voters_offset: int
    high_watermark: int | None


def check_added(standing: Standing, replica: ReplicaKey) -> None:
    """Before anything is asked of the new voter."""
    _check_changeable(standing, "adding")
    known = standing.voters.get(replica.id)
    if known is not None:
        raise VoterChangeRefused(
            ErrorCode.duplicate_voter,
            f"The voter id for {_text(replica)} is already part of the set of voters {_texts(standing)}.",
        )


def added(standing: Standing, voter: Voter, *, is_caught_up: bool) -> VoterSet:
    check_added(standing, voter.key)
    _check_versions(standing, voter)
    if not is_caught_up:
        # Until it has everything, a majority that needs it could commit nothing.
        raise VoterChangeRefused(
            ErrorCode.request_timed_out,
            f"Aborted add voter operation for {_text(voter.key)} since it is lagging behind",
        )
    return standing.voters.having(voter)


def removed(standing: Standing, replica: ReplicaKey) -> VoterSet:
    _check_changeable(standing, "removing")
    known = standing.voters.get(replica.id)
    if known is None or known.key != replica or len(standing.voters) == 1:
        raise VoterChangeRefused(
            ErrorCode.voter_not_found,
            f"Cannot remove voter {_text(replica)} from the set of voters {_texts(standing)}",
        )
    return standing.voters.without(replica.id)


def updated(standing: Standing, voter: Voter) -> VoterSet:
    """Also where the log does not have the voters yet; then it is only remembered."""
    _check_led(standing)
    _check_versions(standing, voter)
    if standing.kraft_version >= FIRST_WITH_CHANGES:
        _check_settled(standing)
    known = standing.voters.get(voter.key.id)
    if known is None or not known.key.is_same(voter.key):
        raise VoterChangeRefused(
            ErrorCode.voter_not_found, f"{_text(voter.key)} is not one of the voters {_texts(standing)}"
        )
    return standing.voters.having(voter)


def upgraded(standing: Standing, version: int, reported: Mapping[int, Voter]) -> QuorumChange | None:
    """None where nothing changes. `reported` is what voters have said of themselves."""
    _check_led(standing)
    current = standing.kraft_version
    if version == current:
        return None
    if not SUPPORTED.include(version) or version < current:
        why = " because the new version is a downgrade" if version < current else ""
        raise VoterChangeRefused(
            ErrorCode.invalid_update_version,
            f"Invalid upgrade of {KRAFT_VERSION} from version {current} to {version}{why}",
        )
    silent = [voter_id for voter_id in standing.voters.ids if voter_id not in reported]
    if silent:
        raise VoterChangeRefused(
            ErrorCode.invalid_update_version,
            f"Invalid upgrade of {KRAFT_VERSION} to {version} because the voters {silent} have not said yet "
            "in which directories their logs are and which versions they support; try again when all voters "
            "run and support it",
        )
    unable = [voter_id for voter_id, voter in reported.items() if not voter.kraft_versions.include(version)]
    if unable:
        raise VoterChangeRefused(
            ErrorCode.invalid_update_version,
            f"Invalid upgrade of {KRAFT_VERSION} to {version} because the voters {sorted(unable)} do not "
            "support it",
        )
    return QuorumChange(VoterSet(reported[voter_id] for voter_id in standing.voters.ids), version)


def _check_led(standing: Standing) -> None:
    if standing.high_watermark is None:
        raise VoterChangeRefused(
            ErrorCode.request_timed_out,
            "Request timed out waiting for leader to establish HWM and fence previous voter changes",
        )


def _check_changeable(standing: Standing, what: str) -> None:
    _check_led(standing)
    if standing.kraft_version < FIRST_WITH_CHANGES:
        raise VoterChangeRefused(
            ErrorCode.unsupported_version,
            f"Cluster doesn't support {what} voter because the {KRAFT_VERSION} feature is "
            f"{standing.kraft_version}",
        )
    _check_settled(standing)


def _check_settled(standing: Standing) -> None:
    assert standing.high_watermark is not None
    if standing.voters_offset >= standing.high_watermark:
        raise VoterChangeRefused(
            ErrorCode.request_timed_out,
            "Request timed out waiting for voters to commit the latest voter change at "
            f"{standing.voters_offset} with HWM {standing.high_watermark}",
        )


def _check_versions(standing: Standing, voter: Voter) -> None:
    if not voter.kraft_versions.include(standing.kraft_version):
        raise VoterChangeRefused(
            ErrorCode.invalid_request,
            f"{_text(voter.key)} supports {KRAFT_VERSION} {_range(voter.kraft_versions)}, the quorum has "
            f"{standing.kraft_version}",
        )


def _range(versions: KRaftVersions) -> str:
    return f"{versions.min} to {versions.max}"


def _text(replica: ReplicaKey) -> str:
    directory_id = replica.directory_id
    return f"{replica.id}" if directory_id is None else f"{replica.id} (directory {uuid_text(directory_id)})"


def _texts(standing: Standing) -> str:
    return f"[{', '.join(_text(voter.key) for voter in standing.voters.voters)}]"
