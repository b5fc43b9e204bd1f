"""Random commits, transactions, deletions, expiry, crashes and compaction against a plain model.

The model keeps every offset with its position in the log and lets the later one count, as Kafka says it; the
shard keeps no positions. For every rule there is a shard with a bug that breaks it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from group_driver import topics
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from transaction_driver import TransactionDriver

from ottla.coordinator.groups.offset_records import OffsetCommitKey, OffsetCommitValue
from ottla.coordinator.groups.pending_offsets import PendingOffsets
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.wire.errors import ErrorCode, GroupIdNotFound

HOUR_MS = 60 * 60 * 1000
SETTINGS = GroupSettings(offsets_retention_ms=24 * HOUR_MS, offsets_retention_check_interval_ms=HOUR_MS)
GROUPS = ("g", "h")
TOPICS = ("orders", "more")
PRODUCERS = (1001, 1002)
# Few, so that transactions meet.
KEYS = [OffsetCommitKey("g", "orders", 0), OffsetCommitKey("g", "orders", 1), OffsetCommitKey("h", "more", 0)]

keys = st.sampled_from(KEYS)
producers = st.sampled_from(PRODUCERS)


@dataclass
class Written:
    position: int
    offset: int
    time_ms: int


@dataclass
class Model:
    position: int = 0
    committed: dict[OffsetCommitKey, Written] = field(default_factory=dict)
    pending: dict[int, dict[OffsetCommitKey, Written]] = field(default_factory=dict)

    def write(self, offset: int, time_ms: int) -> Written:
        self.position += 1
        return Written(self.position, offset, time_ms)

    def end(self, producer_id: int, committed: bool) -> None:
        for key, written in self.pending.pop(producer_id, {}).items():
            known = self.committed.get(key)
            if committed and (known is None or known.position < written.position):
                self.committed[key] = written

    def forget(self, key: OffsetCommitKey) -> None:
        self.committed.pop(key, None)
        for offsets in self.pending.values():
            offsets.pop(key, None)

    def is_open(self, key: OffsetCommitKey) -> bool:
        return any(key in offsets for offsets in self.pending.values())


class OffsetsMachine(RuleBasedStateMachine):
    shard_type: type[GroupShard] = GroupShard

    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver(SETTINGS, topics(orders=2, more=2), self.shard_type)
        self.model = Model()
        self.next_offset = 0

    def _offset(self) -> int:
        self.next_offset += 1
        return self.next_offset

    @rule(key=keys)
    def commit(self, key: OffsetCommitKey) -> None:
        offset = self._offset()
        assert self.driver.commit(key.group, offset, key.partition, key.topic) is ErrorCode.none
        self.model.committed[key] = self.model.write(offset, self.driver.now_ms)

    @rule(key=keys, producer_id=producers)
    def commit_in(self, key: OffsetCommitKey, producer_id: int) -> None:
        offset = self._offset()
        code = self.driver.commit_in(producer_id, key.group, offset, key.partition, key.topic)
        assert code is ErrorCode.none
        pending = self.model.pending.setdefault(producer_id, {})
        pending[key] = self.model.write(offset, self.driver.now_ms)

    @rule(producer_id=producers, committed=st.booleans())
    def end(self, producer_id: int, committed: bool) -> None:
        self.driver.end(producer_id, committed=committed)
        self.model.end(producer_id, committed)

    @rule(key=keys)
    def delete_offset(self, key: OffsetCommitKey) -> None:
        try:
            self.driver.call("delete_offsets", key.group, [(key.topic, [key.partition])])
        except GroupIdNotFound:
            assert not self._is_known(key.group)
        self.model.forget(key)

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        try:
            self.driver.call("delete_group", group)
        except GroupIdNotFound:
            assert not self._is_known(group)
        for key in KEYS:
            if key.group == group:
                self.model.forget(key)

    def _is_known(self, group: str) -> bool:
        return any(
            key.group == group and (key in self.model.committed or self.model.is_open(key)) for key in KEYS
        )

    @rule(topic=st.sampled_from(TOPICS))
    def recreate_topic(self, topic: str) -> None:
        self.driver.set_topics(self.driver.topics.without_topic(topic).with_topic(topic, 2))
        for key in KEYS:
            if key.topic == topic:
                self.model.forget(key)

    @rule(hours=st.sampled_from([1, 13]))
    def wait(self, hours: int) -> None:
        for _ in range(hours):
            self.driver.advance(HOUR_MS)
            for key, written in list(self.model.committed.items()):
                age_ms = self.driver.now_ms - written.time_ms
                if age_ms >= SETTINGS.offsets_retention_ms and not self.model.is_open(key):
                    del self.model.committed[key]

    @rule()
    def crash(self) -> None:
        # The clock of the expiry check starts anew with the process; let it be in step with the model's.
        self.driver.restart()

    @precondition(lambda self: not any(self.model.pending.values()))
    @rule()
    def compact(self) -> None:
        for producer_id in PRODUCERS:
            self.driver.end(producer_id, committed=False)
        self.driver.compact()
        self.driver.restart()

    @invariant()
    def offsets_are_the_models(self) -> None:
        for key in KEYS:
            written = self.model.committed.get(key)
            expected = None if written is None else written.offset
            fetched = self.driver.fetch(key.group, key.partition, key.topic)
            assert fetched == expected, f"{key}: {fetched}, not {expected}"

    @invariant()
    def stability_is_the_models(self) -> None:
        for key in KEYS:
            stable = self.driver.fetch_stable(key.group, key.partition, key.topic)
            is_unstable = stable is ErrorCode.unstable_offset_commit
            assert is_unstable == self.model.is_open(key), f"{key}: {stable}"


def check(machine: type[OffsetsMachine], examples: int, *, shrink: bool = True) -> None:
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_pending_and_committed_offsets_are_those_of_the_model() -> None:
    check(OffsetsMachine, 60)


# --- planted bugs


class PlainCommitsOvertakeNothing(PendingOffsets):
    def overtake(self, key: OffsetCommitKey) -> None:
        pass


class LastMarkerWins(PendingOffsets):
    def _overtake(self, key: OffsetCommitKey, order: int) -> None:
        pass


class AbortsApply(PendingOffsets):
    def end(self, producer_id: int, *, committed: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        return super().end(producer_id, committed=True)


class DeletionsForgetTransactions(PendingOffsets):
    def remove(self, key: OffsetCommitKey) -> None:
        pass


class EverythingIsStable(PendingOffsets):
    def is_open(self, key: OffsetCommitKey) -> bool:
        return False


class OvertakenIsClosed(PendingOffsets):
    def overtake(self, key: OffsetCommitKey) -> None:
        self.remove(key)


BUGS = [
    PlainCommitsOvertakeNothing,
    LastMarkerWins,
    AbortsApply,
    DeletionsForgetTransactions,
    EverythingIsStable,
    OvertakenIsClosed,
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_the_model_notices(bug: type[PendingOffsets]) -> None:
    class Broken(GroupShard):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.groups.pending = bug()

    class BrokenMachine(OffsetsMachine):
        shard_type = Broken

    with pytest.raises(AssertionError):
        check(BrokenMachine, 200, shrink=False)
