"""What must never be seen of a cluster, beyond what must never be seen of one log (`sim.checkers`) or of
transactions (`sim.transaction_checkers`); named after what is forbidden."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from ottla.raft.voters import ReplicaKey
from ottla.sim.checkers import InvariantViolation, Partition

Replica: TypeAlias = tuple[UUID, int]
"""A partition by the id of its topic: a namesake made later is another one."""
AccessEntry: TypeAlias = tuple[str, Hashable]
"""A rule, a credential or a quota, as (kind, whose)."""
AccessValue: TypeAlias = float | None
"""What tells one from the next that takes its place; None where there is none."""


class TwoLeadersInAnEpoch:
    """Of a partition, or of the metadata quorum."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[object, int], str] = {}

    def leads(self, what: object, epoch: int, host: str) -> None:
        first = self._leaders.setdefault((what, epoch), host)
        if first != host:
            raise InvariantViolation(self, f"{what}: epoch {epoch} is led by {first} and by {host}")


class HighWatermarkGoingBack:
    """Whoever leads next has all that was committed, and nobody cuts off what it knows to be committed."""

    def __init__(self) -> None:
        self._committed: dict[Replica, dict[int, int]] = {}
        """By the epoch of the leader who said so."""

    def committed(self, replica: Replica, epoch: int, upto: int) -> None:
        """Everything below is, says a leader."""
        self._committed.setdefault(replica, {})[epoch] = upto

    def leads(self, replica: Replica, epoch: int, host: str, log_end: int) -> None:
        # Somebody who learns late that it led has missed what its successors did.
        before = self._committed.get(replica, {})
        upto = max((upto for of_epoch, upto in before.items() if of_epoch < epoch), default=0)
        if log_end < upto:
            raise InvariantViolation(
                self,
                f"{host} leads {replica} in epoch {epoch} with a log up to {log_end}; {upto} was committed",
            )

    def truncated(self, replica: Replica, host: str, known_committed: int, log_end: int) -> None:
        if log_end < known_committed:
            raise InvariantViolation(
                self, f"{host} has cut {replica} at {log_end} and knew that {known_committed} is committed"
            )


class DivergentReplicas:
    """At the end all replicas of a partition have the same bytes, as far as they reach back."""

    def check(self, name: Partition, logs: Mapping[str, Mapping[int, bytes]]) -> None:
        """`logs`: by host, batches by base offset."""
        first = max((min(batches, default=0) for batches in logs.values()), default=0)
        first_host, *others = sorted(logs)
        expected = {at: batch for at, batch in logs[first_host].items() if at >= first}
        for host in others:
            found = {at: batch for at, batch in logs[host].items() if at >= first}
            if found != expected:
                at = min(at for at in {*found, *expected} if found.get(at) != expected.get(at))
                raise InvariantViolation(
                    self,
                    f"{name} at offset {at}: {first_host} has {expected.get(at)!r}, {host} {found.get(at)!r}",
                )


class ForgottenVoterChange:
    """Who was added to the quorum votes in it, who was removed does not.

    A leader that gave no certain answer may have made the change, until a later one is committed. A change
    without any answer may be made at any time from then on.
    """

    def __init__(self, first: Iterable[ReplicaKey]) -> None:
        self._possible: dict[ReplicaKey, set[bool]] = {replica: {True} for replica in first}
        """Whether it votes."""
        self._unanswered: set[tuple[ReplicaKey, bool]] = set()
        self._is_uncertain = False

    @property
    def is_in_doubt(self) -> bool:
        return self._is_uncertain or bool(self._unanswered)

    def acknowledged(self, replica: ReplicaKey, *, votes: bool) -> None:
        self._possible[replica] = {votes}
        self._is_uncertain = False

    def uncertain(self, replica: ReplicaKey, *, votes: bool) -> None:
        self._possible.setdefault(replica, {False}).add(votes)
        self._is_uncertain = True

    def unanswered(self, replica: ReplicaKey, *, votes: bool) -> None:
        self._unanswered.add((replica, votes))

    def check(self, voters: Collection[ReplicaKey]) -> None:
        for replica in {*voters, *self._possible}:
            votes = replica in voters
            is_possible = votes in self._possible.get(replica, {False})
            if not is_possible and (replica, votes) not in self._unanswered:
                raise InvariantViolation(
                    self,
                    f"{replica} {'votes' if votes else 'does not vote'}, "
                    f"though it was {'removed, or never added' if votes else 'added'}",
                )


@dataclass(slots=True)
class _Asked:
    """Changes of an entry to one value."""

    under_way: int = 0
    over_at: int = -1
    gone_from: int | None = None
    """Whoever has read the metadata up to there knows that it was replaced."""


class ForgottenAccessChange:
    """Rules, credentials and quotas that were set are in force wherever the metadata has been read as far,
    those that were removed are not, and there are none that nobody asked for.

    A change replaces those that were over when it was asked for. One without an answer may be carried out at
    any time from then on.
    """

    def __init__(self) -> None:
        self._now = 0
        self._entries: dict[AccessEntry, dict[AccessValue, _Asked]] = {}
        self._replaced: dict[tuple[AccessEntry, AccessValue], _Asked] = {}
        """By changes of which it is not known yet where in the log they are."""

    def asking(self, changes: Mapping[AccessEntry, AccessValue]) -> int:
        """They are about to be sent; what comes back is for when they are over."""
        self._now += 1
        for entry, value in changes.items():
            values = self._entries.setdefault(entry, {None: _Asked(over_at=0)})
            asked = values.setdefault(value, _Asked())
            asked.under_way += 1
            asked.gone_from = None
            self._replaced.pop((entry, value), None)
        return self._now

    def acknowledged(self, changes: Mapping[AccessEntry, AccessValue], asked: int) -> None:
        self._now += 1
        for entry, value in changes.items():
            values = self._entries[entry]
            values[value].under_way -= 1
            values[value].over_at = self._now
            for other, change in values.items():
                is_over = not change.under_way and change.over_at <= asked
                if other != value and is_over and change.gone_from is None:
                    self._replaced[entry, other] = change

    def written_upto(self, offset: int) -> None:
        """All that was acknowledged is in the log below it."""
        for change in self._replaced.values():
            change.gone_from = offset
        self._replaced.clear()

    def seen(self, host: str, read_upto: int, found: Mapping[AccessEntry, AccessValue]) -> None:
        """`found`: all that is in force on a host that has read the metadata below this offset."""
        for entry in {**found, **self._entries}:
            value = found.get(entry)
            possible = self._entries.get(entry, {None: _Asked()})
            asked = possible.get(value)
            if asked is None:
                raise InvariantViolation(self, f"{host} has {entry} as {value}, asked for were {[*possible]}")
            if asked.gone_from is not None and asked.gone_from <= read_upto:
                left = [other for other, change in possible.items() if change.gone_from is None]
                raise InvariantViolation(
                    self,
                    f"{host} has {entry} as {value} and has read the metadata up to {read_upto}; "
                    f"below {asked.gone_from} it was replaced by one of {left}",
                )


@dataclass(slots=True)
class _Commit:
    """Those of one offset."""

    under_way: int = 0
    over_at: int = -1


class LostCommittedOffset:
    """A group reads on from where it was told that it had committed.

    A commit replaces those that were over when it was asked for. One without an answer may be carried out at
    any time from then on.
    """

    def __init__(self) -> None:
        self._now = 0
        self._commits: dict[tuple[str, Partition], dict[int, _Commit]] = {}
        self._fetches: dict[int, tuple[tuple[str, Partition], set[int]]] = {}

    def asking(self, group: str, partition: Partition, offset: int) -> int:
        """A commit is about to be sent; what comes back is for when it is over."""
        self._now += 1
        commits = self._commits.setdefault((group, partition), {-1: _Commit(over_at=0)})
        commits.setdefault(offset, _Commit()).under_way += 1
        for where, possible in self._fetches.values():
            if where == (group, partition):
                possible.add(offset)
        return self._now

    def acknowledged(self, group: str, partition: Partition, offset: int, asked: int) -> None:
        self._now += 1
        commits = self._commits[group, partition]
        commits[offset].under_way -= 1
        commits[offset].over_at = self._now
        for other, commit in list(commits.items()):
            if not commit.under_way and commit.over_at <= asked:
                del commits[other]

    def refused(self, group: str, partition: Partition, offset: int) -> None:
        """It was not carried out, for certain."""
        commit = self._commits[group, partition][offset]
        commit.under_way -= 1
        if not commit.under_way and commit.over_at < 0:
            del self._commits[group, partition][offset]

    def fetching(self, group: str, partition: Partition) -> int:
        self._now += 1
        self._fetches[self._now] = ((group, partition), {*self._commits.get((group, partition), (-1,))})
        return self._now

    def fetched(self, fetch: int, offset: int | None) -> None:
        """None: without success."""
        (group, partition), possible = self._fetches.pop(fetch)
        if offset is not None and offset not in possible:
            raise InvariantViolation(
                self, f"{group} is at offset {offset} of {partition}; it had committed {sorted(possible)}"
            )


class SkippedByGroup:
    """SkippedOrNonMonotonicPoll, for members of a group: who takes over a partition begins nowhere beyond
    what others have read."""

    def __init__(self) -> None:
        self._read_upto: dict[tuple[str, Partition], int] = {}

    def begins(self, group: str, partition: Partition, offset: int) -> None:
        upto = self._read_upto.get((group, partition), 0)
        if offset > upto:
            raise InvariantViolation(
                "SkippedOrNonMonotonicPoll",
                f"{group} begins at offset {offset} of {partition}, it has read up to {upto}",
            )

    def read(self, group: str, partition: Partition, upto: int) -> None:
        self._read_upto[group, partition] = max(upto, self._read_upto.get((group, partition), 0))
