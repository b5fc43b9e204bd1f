"""Random joins, leaves, crashes, commits, restarts and topic changes against the invariants of `group_fleet`.

For every invariant there is a shard with a bug that breaks it, to show that the checks notice.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from group_fleet import Fleet, Violation
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottla.coordinator.groups.classic import ClassicRebalance
from ottla.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from ottla.coordinator.groups.commands import CommitRequest, SyncReply
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.groups.state import Group
from ottla.coordinator.host.journal import Ticket
from ottla.wire.errors import ErrorCode

LIVE_MAX = 5


class FleetMachine(RuleBasedStateMachine):
    kinds: tuple[str, ...] = ("classic", "consumer")
    shard_type: type[GroupShard] = GroupShard

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(self.shard_type)

    def _client(self, pick: int, *, live: bool) -> Any:
        candidates = [client for client in self.fleet.clients if client.is_live == live]
        return candidates[pick % len(candidates)] if candidates else None

    @precondition(lambda self: len(self.fleet.live) < LIVE_MAX)
    @rule(data=st.data(), is_static=st.booleans())
    def start(self, data: st.DataObject, is_static: bool) -> None:
        kind = data.draw(st.sampled_from(self.kinds))
        self.fleet.start(kind, f"i{len(self.fleet.clients)}" if is_static else None)

    @rule(duration_ms=st.integers(0, 3_000))
    def run(self, duration_ms: int) -> None:
        self.fleet.round(duration_ms)

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def step_one(self, pick: int) -> None:
        self._client(pick, live=True).step()

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def commit(self, pick: int) -> None:
        self._client(pick, live=True).commit()

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def leave(self, pick: int) -> None:
        self._client(pick, live=True).leave()

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def crash(self, pick: int) -> None:
        self._client(pick, live=True).is_live = False

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def oversleep(self, pick: int) -> None:
        """Long enough for others to take over; then it goes on as if nothing had happened."""
        sleeper = self._client(pick, live=True)
        sleeper.is_live = False
        for _ in range(8):
            self.fleet.round(2_000)
            for client in self.fleet.live:
                client.commit()
        sleeper.wake()

    @precondition(lambda self: any(not c.is_live for c in self.fleet.clients))
    @rule(pick=st.integers(0, 9))
    def wake(self, pick: int) -> None:
        if len(self.fleet.live) < LIVE_MAX:
            self._client(pick, live=False).wake()

    @precondition(lambda self: self.fleet.live)
    @rule(pick=st.integers(0, 9))
    def restart_client(self, pick: int) -> None:
        self._client(pick, live=True).restart()

    @rule(compacted=st.booleans())
    def restart_broker(self, compacted: bool) -> None:
        if compacted:
            self.fleet.driver.compact()
        self.fleet.restart_broker()

    @rule()
    def wait_for_sessions_to_end(self) -> None:
        for _ in range(6):
            self.fleet.round(2_000)

    @invariant()
    def invariants_hold(self) -> None:
        self.fleet.check()

    def teardown(self) -> None:
        if not self.fleet.is_broken:
            self.fleet.check_convergence()


class GrowingFleetMachine(FleetMachine):
    """Consumer groups also follow their topics, which classic members must notice themselves."""

    kinds = ("consumer",)

    @rule(more=st.integers(1, 3))
    def grow_topic(self, more: int) -> None:
        view = self.fleet.driver.topics
        count = len(view.topics["orders"].partitions)
        if count < 9:
            self.fleet.driver.set_topics(view.with_topic("orders", count + more))


def machine(base: type[FleetMachine], **fields: Any) -> type[FleetMachine]:
    return type(base.__name__, (base,), fields)


MACHINES = {
    "classic": machine(FleetMachine, kinds=("classic",)),
    "consumer": machine(GrowingFleetMachine),
    "mixed": machine(FleetMachine),
}


@pytest.mark.parametrize("name", MACHINES)
def test_invariants_hold(name: str) -> None:
    run_state_machine_as_test(
        MACHINES[name],
        settings=settings(
            max_examples=40,
            report_multiple_bugs=False,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_what_the_last_member_of_the_new_protocol_had_is_read_after_a_restart() -> None:
    fleet = Fleet(GroupShard)
    fleet.start("consumer", None)
    fleet.start("classic", None)
    for _ in range(6):
        fleet.round(2_000)
    fleet.clients[0].leave()
    fleet.restart_broker()
    fleet.check_convergence()


def test_what_an_old_member_still_holds_is_not_given_away_after_a_restart() -> None:
    fleet = Fleet(GroupShard)
    fleet.start("classic", "i0")
    for _ in range(6):
        fleet.round(2_000)
    old = fleet.clients[0]
    fleet.start("consumer", None)
    fleet.clients[1].step()
    fleet.clients[1].leave()
    fleet.driver.compact()
    fleet.restart_broker()
    assert old.owned
    fleet.start("consumer", None)
    fleet.clients[2].step()
    fleet.check()
    fleet.check_convergence()


# --- planted bugs


class _WithoutOwners:
    """A group that does not say who owns what."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self.owners: dict[Any, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class HandsOutPartitionsThatAreOwned(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        real: Any = self._consumer.reconcile

        def reconcile(group: ConsumerGroup, member: ConsumerMember, owned: Any, **rest: Any) -> Any:
            return real(_WithoutOwners(group), member, owned, **rest)

        self._consumer.reconcile = reconcile  # type: ignore[method-assign]


class AnswersSyncBeforeTheLeader(GroupShard):
    """With whatever the member had before."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        real = self._classic_protocol.sync

        def sync(group: ClassicGroup, request: Any, ticket: Ticket) -> None:
            member = group.members.get(request.member_id)
            if member is not None and member.assignment and group.leader_id != member.member_id:
                group.pending_syncs.pop(member.member_id, None)
                self._journal.reply(ticket, SyncReply(ErrorCode.none, member.assignment))
            else:
                real(group, request, ticket)

        self._classic_protocol.sync = sync  # type: ignore[method-assign]


class TakesCommitsFromZombies(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def check(group: Group | None, request: CommitRequest) -> None:
            if isinstance(group, ClassicGroup):
                request_member = group.members.get(request.member_id)
                if request_member is None and group.members:
                    # Whoever it is, somebody's session is extended below.
                    object.__setattr__(request, "member_id", next(iter(group.members)))

        self._offsets._check_commit = check  # type: ignore[assignment,method-assign]


class ForgetsToReassignAfterALoss(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def fence(group: ConsumerGroup, member_ids: Collection[str]) -> None:
            for member_id in member_ids:
                self._consumer.remove_member(group, member_id)

        self._consumer_protocol.fence = fence  # type: ignore[method-assign]


class LosesOneAssignment(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        real = self._classic_protocol._assign

        def assign(group: ClassicGroup, assignments: dict[str, bytes]) -> None:
            real(group, dict(sorted(assignments.items())[1:]))

        self._classic_protocol._assign = assign  # type: ignore[method-assign]


class IgnoresConsumerHeartbeats(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        real = self._consumer.extend_session

        def extend(group_id: str, member: ConsumerMember) -> None:
            from ottla.coordinator.groups.consumer_rebalance import SESSION
            from ottla.coordinator.host.timers import Timer

            if Timer(SESSION, group_id, member.member_id) not in self.timers:
                real(group_id, member)

        self._consumer.extend_session = extend  # type: ignore[method-assign]


class IgnoresClassicHeartbeats(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        real = self._classic.extend_session

        def extend(group: ClassicGroup, member: ClassicMember, timeout_ms: int = 0) -> None:
            from ottla.coordinator.groups.classic import SESSION
            from ottla.coordinator.host.timers import Timer

            if Timer(SESSION, group.group_id, member.member_id) not in self.timers:
                real(group, member, timeout_ms)

        self._classic.extend_session = extend  # type: ignore[method-assign]


class ForgetsParkedRequests(GroupShard):
    """The join timer is never set."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._classic._schedule_join = lambda group, delay_ms: None  # type: ignore[method-assign]


class ForgetsToStoreAnEmptiedGroup(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def store(group: ClassicGroup) -> None:
            if group.members:
                ClassicRebalance.store(self._classic, group)

        self._classic.store = store  # type: ignore[method-assign]


class ForgetsToStoreTargets(GroupShard):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

        def put_target(group: ConsumerGroup, member_id: str, target: Any) -> None:
            group.target[member_id] = target

        self._consumer.put_target = put_target  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("invariant_name", "kind", "shard_type"),
    [
        ("OneOwnerPerPartition", "consumer", HandsOutPartitionsThatAreOwned),
        ("OneOwnerPerPartition", "classic", AnswersSyncBeforeTheLeader),
        ("CommittedOffsetsNeverGoBack", "classic", TakesCommitsFromZombies),
        ("CommittedOffsetsNeverGoBack", "consumer", TakesCommitsFromZombies),
        ("AssignmentsConverge", "consumer", ForgetsToReassignAfterALoss),
        ("AssignmentsConverge", "classic", LosesOneAssignment),
        ("LiveMembersStay", "consumer", IgnoresConsumerHeartbeats),
        ("LiveMembersStay", "classic", IgnoresClassicHeartbeats),
        ("EveryRequestIsAnswered", "classic", ForgetsParkedRequests),
        ("RestartFindsTheSameState", "classic", ForgetsToStoreAnEmptiedGroup),
        ("RestartFindsTheSameState", "consumer", ForgetsToStoreTargets),
    ],
)
def test_a_planted_bug_is_caught(invariant_name: str, kind: str, shard_type: type[GroupShard]) -> None:
    planted = machine(MACHINES[kind], shard_type=shard_type)
    with pytest.raises(Violation, match=invariant_name):
        run_state_machine_as_test(
            planted,
            settings=settings(
                max_examples=300,
                stateful_step_count=30,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
