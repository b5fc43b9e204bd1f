"""Whatever members do: no record is held by two, none is delivered too often, and none is forgotten."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.replication.share.in_flight import (
    Acknowledgement,
    InFlight,
    LogBatch,
    Run,
    State,
    StateBatch,
    Transition,
    Wanted,
)
from ottla.replication.share.settings import ShareSettings
from ottla.wire.errors import InvalidRecordState, InvalidRequest

MEMBERS = st.sampled_from(["a", "b", "c"])
DELIVERIES_MAX = 3
LOCK_SECONDS = 10.0


class ShareGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[LogBatch] = [LogBatch(at, at + 3) for at in range(0, 40, 4)]
        self.settings = ShareSettings(deliveries_max=DELIVERIES_MAX, in_flight_max=40)
        self.flight = InFlight(0)
        self.now = 0.0
        self.holders: dict[int, str] = {}
        self.deliveries: dict[int, int] = {}
        self.accepted: set[int] = set()
        self.storing: list[tuple[Transition, dict[int, int]]] = []

    @rule(
        sizes=st.lists(st.integers(1, 8), min_size=1, max_size=5),
        hole=st.integers(0, 2),
        aborted=st.booleans(),
    )
    def produce(self, sizes: list[int], hole: int, aborted: bool) -> None:
        base = self.log[-1].last + 1 if self.log else 0
        for number, size in enumerate(sizes):
            self.log.append(LogBatch(base, base + size - 1, aborted and number == 0))
            base += size + hole

    @rule(member=MEMBERS, most=st.integers(1, 10), exact=st.booleans())
    def acquire_a_few(self, member: str, most: int, exact: bool) -> None:
        self.acquire(member, most, 500, exact)

    @rule(member=MEMBERS, most=st.integers(1, 30), size=st.integers(1, 30), exact=st.booleans())
    def acquire(self, member: str, most: int, size: int, exact: bool) -> None:
        at = self.flight.next_offset
        batches = [batch for batch in self.log if batch.last >= at]
        wanted = Wanted(most, size, exact)
        acquired = self.flight.acquire(member, batches, wanted, self.settings, self.now + LOCK_SECONDS)
        offsets = [offset for first, last, _ in acquired for offset in range(first, last + 1)]
        assert not exact or len(offsets) <= most
        for first, last, deliveries in acquired:
            for offset in range(first, last + 1):
                assert offset not in self.holders, "held by another"
                assert offset not in self.accepted, "acknowledged before"
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert self.deliveries[offset] == deliveries <= DELIVERIES_MAX
                self.holders[offset] = member

    @rule(
        member=MEMBERS,
        which=st.integers(0, 9),
        skipped=st.integers(0, 6),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=12)
        | st.builds(lambda n: [2] * n, st.integers(1, 12)),
        is_own=st.booleans(),
    )
    def acknowledge(self, member: str, which: int, skipped: int, kinds: list[int], is_own: bool) -> None:
        runs = [run for run in self.flight if not is_own or run.member == member]
        if not runs:
            return
        run = runs[which % len(runs)]
        first = min(run.first + skipped, run.last)
        kinds = kinds[: run.last - first + 1] if is_own else kinds
        last = first + len(kinds) - 1
        until = self.now + LOCK_SECONDS
        try:
            transition = self.flight.acknowledge(
                member, [Acknowledgement(first, last, kinds)], self.settings, until
            )
        except (InvalidRecordState, InvalidRequest):
            return
        decided = {
            offset: kind
            for offset, kind in zip(range(first, last + 1), kinds, strict=True)
            if kind != 4 and offset >= self.flight.start
        }
        assert all(self.holders[offset] == member for offset in decided)
        self.storing.append((transition, decided))

    @rule(is_stored=st.booleans())
    def stored(self, is_stored: bool) -> None:
        if not self.storing:
            return
        transition, decided = self.storing.pop(0)
        expired = {o for o in decided if (run := self.run_of(o)) is not None and run.until <= self.now}
        if is_stored:
            self.flight.commit(transition)
            self.accepted |= {offset for offset, kind in decided.items() if kind == 1}
        else:
            self.flight.roll_back(transition, self.settings, self.now)
        for offset in decided if is_stored else expired:
            self.holders.pop(offset, None)

    @rule(seconds=st.sampled_from([0.5, 6.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for batch in self.flight.expire(self.settings, self.now):
            assert batch.state is (State.ARCHIVED if batch.deliveries >= DELIVERIES_MAX else State.AVAILABLE)
            for offset in range(batch.first, batch.last + 1):
                del self.holders[offset]

    @rule(what=st.integers(0, 2), member=MEMBERS, by=st.integers(1, 5))
    def something_rare(self, what: int, member: str, by: int) -> None:
        if what == 0:
            self.leave(member)
        elif what == 1:
            self.delete_records(by)
        else:
            self.start_anew_from_what_is_stored()

    def leave(self, member: str) -> None:
        transition = self.flight.release(member, self.settings)
        offsets = [o for run in transition.runs for o in range(run.first, run.last + 1)]
        assert all(self.holders[offset] == member for offset in offsets)
        self.flight.commit(transition)
        for offset in offsets:
            del self.holders[offset]

    def delete_records(self, by: int) -> None:
        if not self.log:
            return
        offset = min(self.flight.start + by, self.log[-1].last + 1)
        self.flight.log_starts_at(offset)
        self.log = [batch for batch in self.log if batch.last >= offset] or self.log[-1:]
        self.holders = {each: member for each, member in self.holders.items() if each >= offset}

    def start_anew_from_what_is_stored(self) -> None:
        if self.storing:
            return
        kept = [
            StateBatch(run.first, run.last, run.state, run.deliveries)
            for run in self.flight
            if run.state is not State.ACQUIRED
        ]
        self.flight = InFlight(self.flight.start, kept)
        for offset in self.holders:
            # How often these were delivered is not stored.
            del self.deliveries[offset]
        self.holders.clear()

    def run_of(self, offset: int) -> Run | None:
        return next((run for run in self.flight if run.first <= offset <= run.last), None)

    @invariant()
    def runs_lie_next_to_each_other(self) -> None:
        at = self.flight.start
        for run in self.flight:
            assert run.first == at <= run.last
            assert run.deliveries <= DELIVERIES_MAX
            at = run.last + 1
        assert at == self.flight.end
        assert not self.flight.runs or not self.flight.runs[0].is_done

    @invariant()
    def holders_are_those_who_acquired(self) -> None:
        held = {
            offset: run.member
            for run in self.flight
            if run.state is State.ACQUIRED
            for offset in range(run.first, run.last + 1)
        }
        assert held == self.holders

    def teardown(self) -> None:
        """Everything that was ever given out can be finished."""
        for transition, _ in self.storing:
            self.flight.commit(transition)
        self.flight.expire(self.settings, self.now + 2 * LOCK_SECONDS)
        end = self.log[-1].last + 1 if self.log else 0
        for _ in range(500):
            at = self.flight.next_offset
            if at >= end:
                break
            batches = [batch for batch in self.log if batch.last >= at]
            acquired = self.flight.acquire("z", batches, Wanted(500, 500), self.settings, 1e9)
            for first, last, _ in acquired:
                acknowledgement = Acknowledgement(first, last, [1])
                self.flight.commit(self.flight.acknowledge("z", [acknowledgement], self.settings, 1e9))
        else:
            raise AssertionError("there is always something left")
        if self.log:
            assert self.flight.start == self.flight.end
            assert self.flight.end >= end or not self.flight.runs


ShareGroup.TestCase.settings = settings(stateful_step_count=30)
TestShareGroup = ShareGroup.TestCase
