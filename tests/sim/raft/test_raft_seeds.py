"""Quorums under faults: nothing forbidden is ever seen, and whoever plants a mistake sees it found."""

from __future__ import annotations

import os

import pytest
from raft_bugs import BUGS, BUGS_OF_CHANGES, AcknowledgesBeforeSyncing
from raft_checkers import Violation
from raft_quorum import Voters, run_seed

from ottla.raft.core import RaftCore

SEEDS = int(os.environ.get("SEEDS", "150"))
# A bug that takes the quorum's life takes long to be sure of; these come first.
SEEDS_OF_BUGS = {
    "VotesTwice": 45,
    "PersistsTooLate": 57,
    "VotesForShorterLogs": 0,
    "ComparesOffsetsBeforeEpochs": 6,
    "CommitsWhatOneHas": 5,
    "CountsRecordsThatAreNotSynced": 25,
    "TruncatesTooFar": 0,
    "IgnoresDivergence": 0,
    "LeadsTheSameEpochAgain": 0,
    "TrustsTheLeadersHighWatermark": 0,
    "TakesTheHighWatermarkBack": 10,
    "DoesNotTruncate": 0,
    "NeverStands": 7,
    "NeverRandom": 0,
    "CountsTheOldVoters": 59,
    "MakesTwoChangesAtOnce": 6,
    "CountsItselfAfterItsRemoval": 1,
    "LeadsOnAfterItsRemoval": 2,
    "NeverStandsOnceRemoved": 4,
    "TakesAnEmptyDiskForTheOneBefore": 19,
}


@pytest.mark.parametrize("changes", [False, True], ids=["fixed", "changing"])
@pytest.mark.parametrize("part", range(3))
def test_no_seed_shows_anything_forbidden(part: int, changes: bool) -> None:
    for seed in range(part, SEEDS, 3):
        try:
            run_seed(seed, changes=changes)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_a_seed_replays_exactly() -> None:
    one, other = run_seed(7), run_seed(7)
    assert one.checkers.committed == other.checkers.committed and one.now == other.now
    assert len(one.checkers.committed) > 5


def test_seeds_lead_through_many_epochs() -> None:
    runs = [run_seed(seed) for seed in range(20)]
    assert sum(len(run.checkers.leader_of) for run in runs) > 100
    assert sum(len(run.checkers.committed) for run in runs) > 200
    assert any(node.log.snapshot is not None for run in runs for node in run.nodes.values())


def test_seeds_change_the_voters_often_and_lose_disks() -> None:
    runs = [run_seed(seed, changes=True) for seed in range(20)]
    sets = [value.set for run in runs for _, value in run.checkers.committed if isinstance(value, Voters)]
    assert len(sets) > 50
    assert {len(voters) for voters in sets} >= {1, 2, 3, 4}
    began_with = {voter.key for run in runs for voter in run.voters.voters}
    assert any(voter.key not in began_with for voters in sets for voter in voters.voters)
    # Where too many disks are lost nothing can go on; that must stay the exception.
    assert sum(run.can_recover() for run in runs) > 15


@pytest.mark.parametrize("bug", [*BUGS, *BUGS_OF_CHANGES], ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: type[RaftCore]) -> None:
    first = SEEDS_OF_BUGS[bug.__name__]
    for seed in (first, *range(200)):
        try:
            run_seed(seed, bug, changes=bug in BUGS_OF_CHANGES)
        except Violation as violation:
            if violation.checker in (BUGS | BUGS_OF_CHANGES)[bug]:
                return
    raise AssertionError(f"{bug.__name__} is not found by any seed")


def test_a_follower_that_vouches_for_what_it_has_not_synced_is_found() -> None:
    with pytest.raises(Violation, match="CommittedEntryLost"):
        run_seed(0, log=AcknowledgesBeforeSyncing)


def test_a_quiet_quorum_elects_one_leader_and_keeps_it() -> None:
    for seed in range(20):
        quorum = run_seed(seed, faults=False)
        epoch = max(quorum.checkers.leader_of)
        quorum.run(5000)
        assert max(quorum.checkers.leader_of) == epoch
