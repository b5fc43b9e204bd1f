"""How far each replica has come, as its leader knows it."""

from __future__ import annotations

from typing import NamedTuple

from ottla.raft.voters import ReplicaKey, VoterSet

# An observer that has not fetched for so long is forgotten.
OBSERVER_SESSION_MS = 300_000


class Progress(NamedTuple):
    acknowledged_offset: int
    """Everything before it is on the replica's disk."""
    acknowledged_at_ms: int
    caught_up_at_ms: int = -1
    """When it last had everything the leader had."""
    leader_end_offset: int = -1
    """Where the leader's log ended at that time."""


class Followers:
    """Of a leader: voters, itself among them while it is one, and observers."""

    def __init__(self, voters: VoterSet) -> None:
        self.voter_set = voters
        self.voters: dict[int, Progress | None] = dict.fromkeys(voters.ids)
        self.observers: dict[ReplicaKey, Progress] = {}

    def adopt(self, voters: VoterSet) -> None:
        """Voters were added, removed or changed; what is known of them stays known."""
        known = {ReplicaKey(voter_id): progress for voter_id, progress in self.voters.items()}
        before, self.voter_set = self.voter_set, voters
        self.voters = {}
        for voter in voters.voters:
            was = before.get(voter.key.id)
            if was is not None and was.key.is_same(voter.key):
                self.voters[voter.key.id] = known[ReplicaKey(voter.key.id)]
            else:
                self.voters[voter.key.id] = self.observers.pop(voter.key, None)
        for voter in before.voters:
            progress = known[ReplicaKey(voter.key.id)]
            if progress is not None and not voters.includes(voter.key):
                self.observers[voter.key] = progress

    def synced(self, leader: ReplicaKey, offset: int, now_ms: int) -> None:
        """The leader's own log. It need not be a voter any more."""
        if self.voter_set.includes(leader):
            self.voters[leader.id] = Progress(offset, now_ms, now_ms, offset)

    def fetched(self, replica: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """From an offset: the replica has what comes before."""
        is_voter = self.voter_set.includes(replica)
        known = self.voters[replica.id] if is_voter else self.observers.get(replica)
        caught_up_at_ms = -1 if known is None else known.caught_up_at_ms
        if offset >= leader_end_offset:
            caught_up_at_ms = now_ms
        elif known is not None and 0 < known.leader_end_offset <= offset:
            caught_up_at_ms = max(caught_up_at_ms, known.acknowledged_at_ms)
        progress = Progress(offset, now_ms, caught_up_at_ms, leader_end_offset)
        if is_voter:
            self.voters[replica.id] = progress
        else:
            self.observers[replica] = progress
            self._forget_observers(now_ms)

    def is_caught_up(self, observer: ReplicaKey, now_ms: int) -> bool:
        """It has had everything at some time, and has been heard of since."""
        known = self.observers.get(observer)
        return (
            known is not None
            and known.caught_up_at_ms >= 0
            and now_ms - known.acknowledged_at_ms < OBSERVER_SESSION_MS
        )

    def _forget_observers(self, now_ms: int) -> None:
        for replica, progress in list(self.observers.items()):
            if now_ms - progress.acknowledged_at_ms >= OBSERVER_SESSION_MS:
                del self.observers[replica]

    def majority_offset(self) -> int | None:
        """What a majority of the voters has on its disks ends here."""
        offsets = sorted(
            (-1 if known is None else known.acknowledged_offset) for known in self.voters.values()
        )
        if not offsets:
            return None
        offset = offsets[len(offsets) - self.voter_set.majority]
        return offset if offset >= 0 else None

    def successors(self, own_id: int) -> tuple[ReplicaKey, ...]:
        """Other voters, those whose logs are longest first."""

        def lag(replica: ReplicaKey) -> tuple[int, int]:
            known = self.voters[replica.id]
            return (0 if known is None else -known.acknowledged_offset - 1, replica.id)

        others = [voter.key for voter in self.voter_set.voters if voter.key.id != own_id]
        return tuple(sorted(others, key=lag))

    def silent_since(self, own_id: int, then_ms: int) -> list[ReplicaKey]:
        """Other voters that have not fetched since."""
        return [
            voter.key
            for voter in self.voter_set.voters
            if voter.key.id != own_id
            and ((known := self.voters[voter.key.id]) is None or known.acknowledged_at_ms <= then_ms)
        ]
