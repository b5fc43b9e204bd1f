"""What a leader knows of its followers, and what follows from that: pure, told of everything with the time.

The high watermark is the smallest log end of all replicas in sync, those included that the controller was
asked to add: to wait for one more is always safe. One that was asked to be removed is waited for until the
controller has agreed, as it could still be elected.

    committed -- somebody lags, or has caught up --> proposed
    proposed -- the controller answers, or metadata comes --> committed

While a proposal is under way there is no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.replication.commits import Commits

NEVER = float("-inf")
UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1


class IsrProposal(NamedTuple):
    """What a leader wants the controller to agree to."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(broker, the epoch in which it was heard of)."""


class IsrState(NamedTuple):
    """What the controller has agreed to."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class Follower:
    """As of its last fetch."""

    __slots__ = ("broker_epoch", "caught_up_at", "end_offset", "fetched_at", "leader_end", "start_offset")

    def __init__(self, caught_up_at: float) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_at = caught_up_at
        self.fetched_at = NEVER
        self.leader_end = UNKNOWN_OFFSET
        """The end of the leader's log at that fetch."""

    def fetched(self, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now: float) -> None:
        if offset >= leader_end:
            self.caught_up_at = now
        elif offset >= self.leader_end >= 0:
            # It has what there was when it asked before.
            self.caught_up_at = max(self.caught_up_at, self.fetched_at)
        self.end_offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.leader_end = leader_end
        self.fetched_at = now

    def is_caught_up(self, leader_end: int, now: float, lag_seconds_max: float) -> bool:
        return self.end_offset == leader_end or now - self.caught_up_at <= lag_seconds_max


class Leadership:
    """From becoming leader to becoming something else."""

    __slots__ = (
        "_node_id",
        "_proposed",
        "commits",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
    )

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._proposed: IsrProposal | None = None
        self.commits = Commits()
        self.followers: dict[int, Follower] = {}
        self.isr: tuple[int, ...] = ()
        """As the controller has it."""
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0

    def assign(self, state: IsrState, replicas: Iterable[int], log_end: int, now: float) -> None:
        """What the metadata says. The controller's answer may have said it, or more, before."""
        leader_epoch, partition_epoch, isr = state
        if (leader_epoch, partition_epoch) < (self.leader_epoch, self.partition_epoch):
            return
        followers = {}
        for replica in replicas:
            if replica != self._node_id:
                known = self.followers.get(replica)
                followers[replica] = known or Follower(now if replica in isr else NEVER)
        self.followers = followers
        if leader_epoch > self.leader_epoch:
            self.epoch_start_offset = log_end
            for replica, follower in followers.items():
                # Time starts anew for who is in sync: it may take a moment to find its leader.
                follower.caught_up_at = now if replica in isr else follower.caught_up_at
                # Between both epochs another one may have led, of whom this one has never heard, and had the
                # follower cut off what it once had.
                follower.end_offset = follower.leader_end = UNKNOWN_OFFSET
        if (leader_epoch, partition_epoch) > (self.leader_epoch, self.partition_epoch):
            self._proposed = None
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.isr = isr

    @property
    def widest_isr(self) -> set[int]:
        """With those that the controller was asked to add."""
        proposed = self._proposed
        return {*self.isr} if proposed is None else {*self.isr, *(broker for broker, _ in proposed.isr)}

    def appended(self, log_end_before: int, now: float) -> None:
        """Who had everything until now is caught up until now, even if it has not asked for long: it had
        nothing to ask for."""
        for follower in self.followers.values():
            if follower.end_offset >= log_end_before:
                follower.caught_up_at = now

    def committed_upto(
        self, log_end: int, eligible: Iterable[int], now: float, lag_seconds_max: float
    ) -> int:
        """Where the high watermark may be. `eligible` may join the ISR: who of them has all but caught up is
        waited for, or it never would under load."""
        isr = self.widest_isr
        smallest = log_end
        for replica, follower in self.followers.items():
            if follower.end_offset < smallest and (
                replica in isr
                or (replica in eligible and follower.is_caught_up(log_end, now, lag_seconds_max))
            ):
                smallest = follower.end_offset
        return smallest

    def expansion(
        self, topic_id: UUID, partition: int, replica: int, high_watermark: int, own_broker_epoch: int
    ) -> IsrProposal | None:
        """What to ask the controller for now that a follower has come this far. The caller has looked whether
        it may join."""
        follower = self.followers.get(replica)
        if (
            self._proposed is not None
            or follower is None
            or replica in self.isr
            or follower.end_offset < max(high_watermark, self.epoch_start_offset)
        ):
            return None
        return self._propose(topic_id, partition, (*self.isr, replica), own_broker_epoch)

    def shrinking(
        self,
        topic_id: UUID,
        partition: int,
        log_end: int,
        now: float,
        lag_seconds_max: float,
        own_broker_epoch: int,
    ) -> IsrProposal | None:
        """What to ask the controller for, if somebody has been behind for too long."""
        if self._proposed is not None:
            return None
        left = tuple(
            replica
            for replica in self.isr
            if replica == self._node_id
            or (
                replica in self.followers
                and self.followers[replica].is_caught_up(log_end, now, lag_seconds_max)
            )
        )
        if len(left) == len(self.isr):
            return None
        return self._propose(topic_id, partition, left, own_broker_epoch)

    def _propose(
        self, topic_id: UUID, partition: int, isr: tuple[int, ...], own_broker_epoch: int
    ) -> IsrProposal:
        members = tuple(
            (
                replica,
                own_broker_epoch if replica == self._node_id else self.followers[replica].broker_epoch,
            )
            for replica in isr
        )
        self._proposed = IsrProposal(topic_id, partition, self.leader_epoch, self.partition_epoch, members)
        return self._proposed

    def is_current(self, proposal: IsrProposal) -> bool:
        """Whether nothing has overtaken it."""
        return self._proposed == proposal

    def agreed(self, proposal: IsrProposal, state: IsrState) -> bool:
        """The controller has; False if it no longer matters."""
        if self._proposed != proposal or state.leader_epoch != self.leader_epoch:
            return False
        if state.partition_epoch < self.partition_epoch:
            return False
        self._proposed = None
        self.partition_epoch = state.partition_epoch
        self.isr = state.isr
        return True

    def refused(self, proposal: IsrProposal) -> None:
        """The controller says that it was not done. After other errors that is not known: there the
        proposal stays until the metadata says what became of it."""
        if self._proposed == proposal:
            self._proposed = None
