"""Which offsets of a partition a share group has in flight: a deterministic state machine, without I/O.

All offsets from `start` to before `end` lie in *runs*, one next to the other: ranges that are in the same
state, held by the same member until the same time, delivered equally often. A run is split only where
somebody treats a part of it differently; so what was acquired and acknowledged as a whole costs one object,
however many records it has. What lies below `start` is done with, what lies from `end` on was never given
to anybody.

    AVAILABLE --acquire--> ACQUIRED --accept--> ACKNOWLEDGED
        ^                   |    |
        +-- release, -------+    +--reject, gap, or delivered too often--> ARCHIVED
            lock expired

What members decide is stored first: until then a run has a `target`, and nobody may touch it. Only a lock
that expires takes effect at once. Times are of a monotonic clock, in seconds, and come from outside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from ottla.replication.share.settings import ShareSettings
from ottla.wire.errors import InvalidRecordState, InvalidRequest

NOBODY = ""
ALONE_ABOVE = 2
"""With a limit of more deliveries than this, a record is delivered alone the last time."""


class State(IntEnum):
    """Numbered as they are stored; ACQUIRED never is."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


_DONE = (State.ACKNOWLEDGED, State.ARCHIVED)


class AckType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_TARGETS = {
    AckType.GAP: State.ARCHIVED,
    AckType.ACCEPT: State.ACKNOWLEDGED,
    AckType.RELEASE: State.AVAILABLE,
    AckType.REJECT: State.ARCHIVED,
}


class Acquired(NamedTuple):
    first: int
    last: int
    deliveries: int


class StateBatch(NamedTuple):
    """As it is stored."""

    first: int
    last: int
    state: State
    deliveries: int


class LogBatch(NamedTuple):
    """A record batch of the log."""

    base: int
    last: int
    is_aborted: bool = False


class Acknowledgement(NamedTuple):
    first: int
    last: int
    types: Sequence[int]
    """One for all offsets, or one for each."""


class Wanted(NamedTuple):
    """What a member asks for."""

    records_max: int
    batch_size: int
    """Offsets that are best acquired together."""
    is_exact: bool = False
    """No more than `records_max`; else to the end of a record batch."""


class Run:
    __slots__ = ("deliveries", "first", "last", "member", "state", "target", "until")

    def __init__(
        self,
        first: int,
        last: int,
        state: State,
        deliveries: int,
        member: str = NOBODY,
        until: float = 0.0,
        target: State | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.member = member
        self.until = until
        """When the lock of who has acquired it expires."""
        self.target = target
        """What it is about to be, once that is stored."""

    @property
    def is_available(self) -> bool:
        return self.state is State.AVAILABLE

    @property
    def is_done(self) -> bool:
        return self.target is None and self.state in _DONE

    def settle(self, state: State) -> None:
        self.state, self.target, self.member, self.until = state, None, NOBODY, 0.0


class Transition:
    """What becomes of runs once it is stored."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    @property
    def batches(self) -> list[StateBatch]:
        return merged(
            StateBatch(run.first, run.last, run.target, run.deliveries)
            for run in self.runs
            if run.target is not None
        )


def merged(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Neighbours that are alike become one."""
    result: list[StateBatch] = []
    for batch in batches:
        if result and result[-1].last + 1 == batch.first and result[-1][2:] == batch[2:]:
            result[-1] = result[-1]._replace(last=batch.last)
        else:
            result.append(batch)
    return result


class InFlight:
    __slots__ = ("_has_available", "end", "runs", "start")

    def __init__(self, start: int, stored: Iterable[StateBatch] = ()) -> None:
        """From what is stored. Offsets in between that are not were acquired, and never acknowledged."""
        self.start = self.end = start
        self.runs: list[Run] = []
        for batch in sorted(stored):
            first = max(batch.first, self.end)
            if first > batch.last:
                continue
            self._fill_to(first, State.AVAILABLE)
            self._append(Run(first, batch.last, State(batch.state), batch.deliveries))
        self._has_available = True
        self._forget_done()

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    # Looking.

    @property
    def next_offset(self) -> int:
        """The first that somebody may have."""
        if self._has_available:
            for run in self.runs:
                if run.is_available:
                    return run.first
            self._has_available = False
        return self.end

    @property
    def delivery_complete_count(self) -> int:
        """Offsets from `start` on that are done with, or will be as soon as that is stored."""
        return sum(
            run.last - run.first + 1
            for run in self.runs
            if (run.state if run.target is None else run.target) in _DONE
        )

    def may_give(self, settings: ShareSettings) -> bool:
        return self.next_offset < self.end or self._room(settings) > 0

    def _room(self, settings: ShareSettings) -> int:
        return settings.in_flight_max - (self.end - self.start)

    @property
    def next_expiry(self) -> float | None:
        return min((run.until for run in self.runs if _is_held(run)), default=None)

    # Giving.

    def acquire(
        self,
        member: str,
        batches: Iterable[LogBatch],
        wanted: Wanted,
        settings: ShareSettings,
        until: float,
    ) -> list[Acquired]:
        """`batches` are those of the log from `next_offset` on. No more of them are taken than is needed."""
        taking = _Taking(self, member, wanted, settings, until)
        cursor = self.next_offset
        for base, last, is_aborted in batches:
            if last < cursor:
                continue
            if base > cursor:
                # Compacted away: nobody will ever get it.
                self._archive(cursor, base - 1)
                cursor = base
            if is_aborted:
                self._archive(cursor, last)
            elif not taking.take(cursor, last):
                break
            cursor = last + 1
            if taking.has_enough:
                break
        self._forget_done()
        return taking.acquired

    def _archive(self, first: int, last: int) -> None:
        """Whatever nobody has of it."""
        for run in self._overlapping(first, min(last, self.end - 1)):
            if run.is_available:
                self._cut_out(run, first, last).settle(State.ARCHIVED)
        if last >= self.end:
            self._fill_to(last + 1, State.ARCHIVED)

    # Deciding.

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement], settings: ShareSettings, until: float
    ) -> Transition:
        """All of them, or none and an error. Locks that are renewed hold `until`."""
        transition = Transition()
        try:
            for acknowledgement in acknowledgements:
                if acknowledgement.last >= self.start:
                    self._check_known(acknowledgement)
                    for first, last, kind in _pieces(acknowledgement):
                        self._decide(member, first, last, kind, settings, until, transition)
        except (InvalidRecordState, InvalidRequest):
            for run in transition.runs:
                run.target = None
            raise
        return transition

    def _check_known(self, acknowledgement: Acknowledgement) -> None:
        if not self.runs:
            raise InvalidRecordState("nothing of the partition is acquired, as far as this broker knows")
        if acknowledgement.last >= self.end:
            raise InvalidRequest(
                f"offsets {acknowledgement.first} to {acknowledgement.last} were not all acquired: the group "
                f"has been given those before {self.end}"
            )

    def _decide(
        self,
        member: str,
        first: int,
        last: int,
        kind: AckType,
        settings: ShareSettings,
        until: float,
        transition: Transition,
    ) -> None:
        for run in self._overlapping(first, last):
            if run.state is not State.ACQUIRED:
                raise InvalidRecordState(
                    f"offset {max(first, run.first)} is {run.state.name.lower()}, not acquired"
                )
            if run.target is not None:
                raise InvalidRecordState(f"offset {max(first, run.first)} is being acknowledged already")
            if run.member != member:
                raise InvalidRecordState(f"offset {max(first, run.first)} is acquired by another member")
            if kind is AckType.RENEW:
                if not settings.may_renew:
                    raise InvalidRecordState("locks of this group are not to be renewed")
                self._cut_out(run, first, last).until = until
            else:
                part = self._cut_out(run, first, last)
                part.target = _unless_too_often(_TARGETS[kind], part, settings)
                transition.runs.append(part)

    def release(self, member: str, settings: ShareSettings) -> Transition:
        """All that a member has: it is gone."""
        transition = Transition()
        for run in self.runs:
            if run.member == member and _is_held(run):
                run.target = _unless_too_often(State.AVAILABLE, run, settings)
                transition.runs.append(run)
        return transition

    def commit(self, transition: Transition) -> None:
        """It is stored."""
        for run in transition.runs:
            if run.target is not None:
                run.settle(run.target)
        self._changed()

    def roll_back(self, transition: Transition, settings: ShareSettings, now: float) -> None:
        """It could not be stored: as it was, except for locks that have expired meanwhile."""
        for run in transition.runs:
            run.target = None
            if run.until <= now:
                run.settle(_unless_too_often(State.AVAILABLE, run, settings))
        self._changed()

    def expire(self, settings: ShareSettings, now: float) -> list[StateBatch]:
        """Take back what was held for too long; what is to be stored of that."""
        changed = [run for run in self.runs if _is_held(run) and run.until <= now]
        for run in changed:
            run.settle(_unless_too_often(State.AVAILABLE, run, settings))
        batches = merged(StateBatch(run.first, run.last, run.state, run.deliveries) for run in changed)
        if changed:
            self._changed()
        return batches

    def log_starts_at(self, offset: int) -> None:
        """What lies before it can be given to nobody any more."""
        if offset <= self.start:
            return
        self.runs = [run for run in self.runs if run.last >= offset]
        if self.runs:
            self.runs[0].first = max(self.runs[0].first, offset)
        self.start, self.end = offset, max(self.end, offset)
        self._forget_done()

    # Runs.

    def _changed(self) -> None:
        self._has_available = True
        self._forget_done()

    def _forget_done(self) -> None:
        done = 0
        for run in self.runs:
            if not run.is_done:
                break
            done += 1
        if done:
            del self.runs[:done]
        self.start = self.runs[0].first if self.runs else self.end

    def _append(self, run: Run) -> None:
        self.runs.append(run)
        self.end = run.last + 1

    def _fill_to(self, end: int, state: State) -> None:
        if end > self.end:
            last = self.runs[-1] if self.runs else None
            if last is not None and last.is_done and last.state is state:
                last.last, self.end = end - 1, end
            else:
                self._append(Run(self.end, end - 1, state, 0))

    def _index_at(self, offset: int) -> int:
        return max(bisect_right(self.runs, offset, key=_first) - 1, 0)

    def _overlapping(self, first: int, last: int) -> list[Run]:
        found = []
        for index in range(self._index_at(first), len(self.runs)):
            run = self.runs[index]
            if run.first > last:
                break
            if run.last >= first:
                found.append(run)
        return found

    def _shorten(self, run: Run, last: int) -> None:
        """All up to `last` is a neighbour's now."""
        if run.last > last:
            run.first = last + 1
        else:
            del self.runs[self._index_at(run.first)]

    def _cut_out(self, run: Run, first: int, last: int) -> Run:
        """The part of a run that lies between, as a run of its own."""
        if run.first < first:
            rest = Run(first, run.last, run.state, run.deliveries, run.member, run.until, run.target)
            self.runs.insert(self._index_at(run.first) + 1, rest)
            run.last = first - 1
            run = rest
        if run.last > last:
            rest = Run(last + 1, run.last, run.state, run.deliveries, run.member, run.until, run.target)
            self.runs.insert(self._index_at(run.first) + 1, rest)
            run.last = last
        return run


class _Taking:
    """One call of `acquire`."""

    def __init__(
        self, in_flight: InFlight, member: str, wanted: Wanted, settings: ShareSettings, until: float
    ) -> None:
        self._in_flight = in_flight
        self._member = member
        self._wanted = wanted
        self._settings = settings
        self._until = until
        self._left = wanted.records_max
        self._is_exact = wanted.is_exact
        self._room = in_flight._room(settings)
        self._newest: Run | None = None
        """The run acquired last, which may grow."""
        self._runs: list[Run] = []

    @property
    def has_enough(self) -> bool:
        return self._left <= 0

    @property
    def acquired(self) -> list[Acquired]:
        return [Acquired(run.first, run.last, run.deliveries) for run in self._runs]

    def take(self, first: int, last: int) -> bool:
        """Of one record batch; False where there is no going on."""
        in_flight = self._in_flight
        for run in in_flight._overlapping(first, min(last, in_flight.end - 1)):
            if not run.is_available:
                continue
            if self.has_enough and self._is_exact:
                return False
            if run.deliveries >= self._settings.careful_from and not self._may_take_carefully(run):
                return False
            start, upto = max(first, run.first), min(last, run.last)
            if self._is_exact:
                upto = min(upto, start + self._left - 1)
            self._hold(run, start, upto)
        if last >= in_flight.end:
            return self._take_new(max(first, in_flight.end), last)
        return True

    def _may_take_carefully(self, run: Run) -> bool:
        """Once so many deliveries have failed: half of what failed together, the last time each record alone.

        Nothing else is given along with it.
        """
        if self._runs:
            return run.deliveries == self._runs[0].deliveries - 1
        settings = self._settings
        is_last = settings.deliveries_max > ALONE_ABOVE and run.deliveries >= settings.deliveries_max - 1
        self._left = min(self._left, 1 if is_last else max(1, (run.last - run.first + 1) // 2))
        self._is_exact = True
        return True

    def _take_new(self, first: int, last: int) -> bool:
        if self._room <= 0 or self.has_enough:
            return False
        if self._is_exact:
            last = min(last, first + min(self._left, self._room) - 1)
        self._room -= last - first + 1
        if self._may_grow(first, 0) and self._newest is not None:
            self._left -= last - first + 1
            self._newest.last = last
            self._in_flight.end = last + 1
        else:
            run = Run(first, last, State.AVAILABLE, 0)
            self._in_flight._append(run)
            self._hold(run, first, last)
        return True

    def _may_grow(self, first: int, deliveries: int) -> bool:
        """Rather than that what comes next is acquired as a run of its own."""
        newest = self._newest
        return (
            newest is not None
            and newest.last + 1 == first
            and newest.deliveries == deliveries + 1
            and first - newest.first < self._wanted.batch_size
        )

    def _hold(self, run: Run, first: int, last: int) -> None:
        self._left -= last - first + 1
        if self._may_grow(first, run.deliveries) and self._newest is not None:
            self._newest.last = last
            self._in_flight._shorten(run, last)
            return
        run = self._in_flight._cut_out(run, first, last)
        run.state, run.member, run.until = State.ACQUIRED, self._member, self._until
        run.deliveries += 1
        self._newest = run
        self._runs.append(run)


def _first(run: Run) -> int:
    return run.first


def _is_held(run: Run) -> bool:
    return run.state is State.ACQUIRED and run.target is None


def _unless_too_often(target: State, run: Run, settings: ShareSettings) -> State:
    if target is State.AVAILABLE and run.deliveries >= settings.deliveries_max:
        return State.ARCHIVED
    return target


def _pieces(acknowledgement: Acknowledgement) -> Iterator[tuple[int, int, AckType]]:
    """(first, last, type) of offsets that get the same."""
    first, last, types = acknowledgement
    if len(types) == 1:
        yield first, last, AckType(types[0])
        return
    for kind, same in groupby(types):
        size = sum(1 for _ in same)
        yield first, first + size - 1, AckType(kind)
        first += size
