"""Rolling an application from the classic to the consumer protocol and back, one member at a time."""

from __future__ import annotations

import pytest
from group_driver import Driver, assignment, subscription, topics
from test_consumer_groups import Client, group_of, settle

from ottla.coordinator.groups.classic_group import ClassicGroup, State
from ottla.coordinator.groups.commands import LEAVE_EPOCH, JoinReply, LeavingMember, SyncReply
from ottla.coordinator.groups.consumer_group import ConsumerGroup
from ottla.coordinator.groups.embedded import parse_assignment
from ottla.coordinator.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode, GroupIdNotFound, InconsistentGroupProtocol

NO_DELAY = GroupSettings(group_initial_rebalance_delay_ms=0)


class Classic:
    """A cooperative consumer of the classic protocol; the leader deals out partitions in order."""

    def __init__(self, driver: Driver, instance_id: str | None = None) -> None:
        self.driver = driver
        self.instance_id = instance_id
        self.member_id = "" if instance_id else driver.get_id(protocols=self._protocols({}))
        self.generation = -1
        self.owned: dict[str, tuple[int, ...]] = {}
        self.ticket: int | None = None

    def _protocols(self, owned: dict[str, tuple[int, ...]]) -> tuple[tuple[str, bytes], ...]:
        lists = {topic: list(parts) for topic, parts in owned.items()}
        return (("cooperative-sticky", subscription("orders", version=1, owned=lists)),)

    def join(self) -> Classic:
        self.ticket = self.driver.join(
            member_id=self.member_id,
            protocols=self._protocols(self.owned),
            instance_id=self.instance_id,
        )
        return self

    def sync(self) -> None:
        assert self.ticket is not None
        reply: JoinReply = self.driver.result(self.ticket)
        self.member_id = reply.member_id
        if reply.error is not ErrorCode.none:
            self.join()
            return
        self.generation = reply.generation
        members = [m for m, _, _ in reply.members]
        count = len(self.driver.topics.topics["orders"].partitions)
        shares = {
            m: assignment(self.driver.topics, {"orders": list(range(n, count, len(members)))})
            for n, m in enumerate(members)
        }
        ticket = self.driver.sync(
            "g",
            self.member_id,
            self.generation,
            assignments=tuple(shares.items()),
            instance_id=self.instance_id,
        )
        self.driver.advance(0)
        if not self.driver.is_parked(ticket):
            self.synced(ticket)
        else:
            self.parked_sync = ticket

    def synced(self, ticket: int) -> None:
        reply: SyncReply = self.driver.result(ticket)
        assert reply.error is ErrorCode.none
        self.owned = parse_assignment(reply.assignment)[0]

    def beat(self) -> None:
        error = self.driver.heartbeat("g", self.member_id, self.generation, self.instance_id)
        if error is not ErrorCode.none:
            self.join()
            self.driver.advance(0)
            if self.ticket is not None and not self.driver.is_parked(self.ticket):
                self.sync()

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(topic, p) for topic, parts in self.owned.items() for p in parts}


def stable_pair(driver: Driver) -> tuple[Classic, Classic]:
    first, second = Classic(driver).join(), Classic(driver).join()
    driver.advance(0)
    second.sync()
    first.sync()
    second.synced(second.parked_sync)
    assert len(first.partitions) == len(second.partitions) == 2
    return first, second


def roll(*clients: Client | Classic) -> None:
    for _ in range(8):
        for client in clients:
            client.beat()


def test_a_consumer_of_the_new_protocol_upgrades_the_group() -> None:
    driver = Driver(NO_DELAY)
    first, second = stable_pair(driver)
    driver.commit("g", 7, member_id=first.member_id, generation=first.generation)
    third = Client(driver, "new").join()
    group = group_of(driver)
    assert group.classic_count == 2
    roll(third, first, second)
    assert sorted(len(c.partitions) for c in (first, second, third)) == [1, 1, 2]
    assert len(first.partitions | second.partitions | third.partitions) == 4
    assert group.state == "Stable"
    assert driver.fetch("g") == 7


def test_an_upgraded_group_survives_a_restart() -> None:
    driver = Driver(NO_DELAY)
    first, second = stable_pair(driver)
    third = Client(driver, "new").join()
    driver.compact()
    driver.restart()
    roll(third, first, second)
    assert len(first.partitions | second.partitions | third.partitions) == 4


def test_when_the_last_classic_member_has_gone_nothing_classic_is_left() -> None:
    driver = Driver(NO_DELAY)
    first, second = stable_pair(driver)
    new = Client(driver, "new").join()
    for old in (first, second):
        assert driver.leave("g", LeavingMember(old.member_id)) == [ErrorCode.none]
    settle(new)
    assert len(new.partitions) == 4
    assert group_of(driver).classic_count == 0


def test_when_the_last_consumer_member_leaves_the_group_is_classic_again() -> None:
    driver = Driver(NO_DELAY)
    first, second = stable_pair(driver)
    new = Client(driver, "new").join()
    roll(new, first, second)
    driver.consumer("g", "new", LEAVE_EPOCH)
    group = driver.shard.groups.by_id["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING
    first.join()
    second.join()
    driver.advance(0)
    second.sync()
    first.sync()
    second.synced(second.parked_sync)
    assert first.partitions | second.partitions == {("orders", n) for n in range(4)}
    driver.compact()
    driver.restart()
    assert driver.heartbeat("g", first.member_id, first.generation) is ErrorCode.none


def test_a_consumer_member_that_falls_silent_downgrades_the_group_too() -> None:
    driver = Driver(NO_DELAY)
    first = Classic(driver).join()
    driver.advance(0)
    first.sync()
    Client(driver, "new").join()
    for _ in range(10):
        driver.advance(5_000)
        if isinstance(driver.shard.groups.by_id["g"], ConsumerGroup):
            first.beat()
    assert isinstance(driver.shard.groups.by_id["g"], ClassicGroup)


def test_a_classic_member_told_to_rejoin_that_does_not_is_fenced() -> None:
    driver = Driver(NO_DELAY)
    first, second = stable_pair(driver)
    new = Client(driver, "new").join()
    for _ in range(13):
        driver.advance(5_000)
        second.beat()
        new.beat()
        if first.member_id in group_of(driver).members:
            driver.heartbeat("g", first.member_id, first.generation)
    assert first.member_id not in group_of(driver).members
    roll(second, new)
    assert len(second.partitions | new.partitions) == 4


def test_a_static_member_is_rolled_in_place() -> None:
    driver = Driver(NO_DELAY)
    old = Classic(driver, "i").join()
    driver.advance(0)
    old.sync()
    assert len(old.partitions) == 4
    new = Client(driver, "new", instance_id="i").join()
    assert list(group_of(driver).members) == ["new"]
    settle(new)
    assert len(new.partitions) == 4
    back = Classic(driver, "i").join()
    driver.advance(0)
    back.sync()
    assert isinstance(driver.shard.groups.by_id["g"], ClassicGroup)
    assert len(back.partitions) == 4
    assert driver.heartbeat("g", back.member_id, back.generation, "i") is ErrorCode.none


def test_parked_classic_members_are_sent_back_on_upgrade() -> None:
    driver = Driver()
    waiting = Classic(driver).join()
    assert waiting.ticket is not None and driver.is_parked(waiting.ticket)
    new = Client(driver, "new").join()
    assert driver.result(waiting.ticket).error is ErrorCode.rebalance_in_progress
    waiting.join()
    waiting.sync()
    roll(new, waiting)
    assert len(new.partitions) == len(waiting.partitions) == 2


def test_empty_groups_change_type_freely() -> None:
    driver = Driver(NO_DELAY)
    driver.commit("g", 3)
    Client(driver, "new").join()
    driver.consumer("g", "new", LEAVE_EPOCH)
    classic = Classic(driver).join()
    driver.advance(0)
    classic.sync()
    assert driver.fetch("g") == 3
    driver.leave("g", LeavingMember(classic.member_id))
    assert Client(driver, "newer").join().epoch == 1
    driver.compact()
    driver.restart()
    assert list(group_of(driver).members) == ["newer"]
    assert driver.fetch("g") == 3


def test_other_kinds_of_groups_are_not_upgraded() -> None:
    driver = Driver(NO_DELAY)
    worker = driver.get_id(protocol_type="connect")
    driver.join(member_id=worker, protocol_type="connect")
    with pytest.raises(GroupIdNotFound, match="connect"):
        driver.consumer("g", "new", 0)


def test_an_assignor_with_data_of_its_own_prevents_the_upgrade() -> None:
    driver = Driver(NO_DELAY, topics(orders=1))
    member = driver.get_id()
    driver.join(member_id=member)
    driver.advance(0)
    driver.sync("g", member, 1, assignments=((member, b"\0\0" + b"\0\0\0\0" + b"\0\0\0\1x"),))
    with pytest.raises(GroupIdNotFound, match="assignor"):
        driver.consumer("g", "new", 0)
    assert driver.heartbeat("g", member, 1) is ErrorCode.none


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_the_upgrade(policy: str) -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=0, consumer_migration_policy=policy))
    stable_pair(driver)
    with pytest.raises(GroupIdNotFound, match="policy"):
        driver.consumer("g", "new", 0)


def test_the_policy_can_forbid_the_downgrade() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=0, consumer_migration_policy="upgrade"))
    first, second = stable_pair(driver)
    Client(driver, "new").join()
    driver.consumer("g", "new", LEAVE_EPOCH)
    roll(first, second)
    assert group_of(driver).classic_count == 2


def test_with_migration_disabled_classic_members_cannot_join_a_consumer_group() -> None:
    driver = Driver(GroupSettings(consumer_migration_policy="disabled"))
    Client(driver, "new").join()
    with pytest.raises(InconsistentGroupProtocol, match="disabled"):
        driver.result(driver.join())


def test_a_classic_member_with_nothing_in_common_is_refused() -> None:
    driver = Driver(NO_DELAY)
    stable_pair(driver)
    Client(driver, "new").join()
    with pytest.raises(InconsistentGroupProtocol, match="roundrobin"):
        driver.result(driver.join(protocols=(("roundrobin", subscription("orders")),)))
    with pytest.raises(InconsistentGroupProtocol):
        driver.result(driver.join(protocols=(("cooperative-sticky", b"\xff\xff"),)))


def test_a_group_whose_last_classic_member_has_just_left_is_taken_over() -> None:
    driver = Driver()
    joining = Classic(driver).join()
    driver.leave("g", LeavingMember(joining.member_id))
    group = driver.shard.groups.by_id["g"]
    assert isinstance(group, ClassicGroup)
    assert group.state is State.PREPARING and not group.members
    assert driver.consumer("g", "m", 0).member_epoch == 1
    driver.advance(60_000)
    assert isinstance(driver.shard.groups.by_id["g"], ConsumerGroup)
