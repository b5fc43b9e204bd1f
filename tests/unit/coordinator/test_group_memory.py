"""What members may make a broker keep: bytes of one group, bytes of all."""

from __future__ import annotations

import logging

import pytest
from group_driver import Driver, stabilise, subscription, topics

from ottla.coordinator.groups.classic_group import ClassicGroup
from ottla.coordinator.groups.commands import LeavingMember
from ottla.coordinator.groups.embedded import NAMES_MAX, MalformedProtocol, subscribed_topics
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.wire.errors import ErrorCode, GroupMaxSizeReached

KIB = 1024
LIMITED = GroupSettings(group_initial_rebalance_delay_ms=1_000, group_bytes_max=100 * KIB)
LARGE = (("range", bytes(40 * KIB)),)


def group_of(driver: Driver, group: str = "g") -> ClassicGroup:
    found = driver.shard.groups.by_id[group]
    assert isinstance(found, ClassicGroup)
    return found


def join_large(driver: Driver, group: str = "g") -> int:
    member_id = driver.get_id(group, protocol_type="x", protocols=LARGE)
    return driver.join(group, member_id, protocol_type="x", protocols=LARGE)


def test_members_that_wait_for_a_rebalance_count(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(LIMITED)
    parked = [join_large(driver) for _ in range(2)]
    assert all(driver.is_parked(ticket) for ticket in parked)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            refused = driver.result(driver.join(protocol_type="x", protocols=LARGE))
            assert refused.error is ErrorCode.group_max_size_reached
    (message,) = [record.getMessage() for record in caplog.records]
    assert "group g" in message
    assert "ottla.group.max.bytes=102400" in message
    assert group_of(driver).size_bytes <= LIMITED.group_bytes_max
    driver.advance(3_000)
    assert len(driver.result(parked[0]).members) == 2


def test_ids_given_out_to_members_that_never_come_back_count() -> None:
    driver = Driver(LIMITED)
    given = 0
    while driver.result(driver.join()).error is ErrorCode.member_id_required:
        given += 1
        assert given < 1_000
    assert given > 10
    driver.advance(10_001)
    assert group_of(driver).size_bytes == 0
    assert driver.result(driver.join()).error is ErrorCode.member_id_required


def test_who_leaves_makes_room() -> None:
    driver = Driver(LIMITED)
    first, second = join_large(driver), join_large(driver)
    driver.advance(3_000)
    gone = driver.result(second).member_id
    assert driver.result(driver.join(protocol_type="x", protocols=LARGE)).error is not ErrorCode.none
    driver.leave("g", LeavingMember(gone))
    assert driver.result(first).generation == 1
    assert driver.is_parked(join_large(driver))


def test_a_member_that_asks_for_too_much_later_keeps_its_place() -> None:
    driver = Driver(LIMITED)
    member = stabilise(driver, driver.get_id())
    (member_id,) = member
    before = group_of(driver).size_bytes
    with pytest.raises(GroupMaxSizeReached, match="group g would take"):
        driver.result(driver.join(member_id=member_id, protocols=(("range", bytes(200 * KIB)),)))
    assert group_of(driver).size_bytes == before
    assert driver.heartbeat("g", member_id, 1) is ErrorCode.none
    modest = driver.join(member_id=member_id, protocols=(("range", subscription("a", "b")),))
    assert driver.result(modest).generation == 2


def test_assignments_count() -> None:
    driver = Driver(LIMITED)
    ticket = join_large(driver)
    driver.advance(3_000)
    joined = driver.result(ticket)
    too_much = ((joined.member_id, bytes(61 * KIB)),)
    with pytest.raises(GroupMaxSizeReached):
        driver.result(driver.sync("g", joined.member_id, 1, assignments=too_much))
    enough = (("nobody", bytes(200 * KIB)), (joined.member_id, bytes(20 * KIB)))
    assert driver.result(driver.sync("g", joined.member_id, 1, assignments=enough)).error is ErrorCode.none
    assert 60 * KIB < group_of(driver).size_bytes < 70 * KIB
    driver.restart()
    assert 60 * KIB < group_of(driver).size_bytes < 70 * KIB


def test_subscriptions_of_consumers_count() -> None:
    driver = Driver(LIMITED)
    names = tuple(f"name-{i}" for i in range(300))
    driver.consumer("g", "one", 0, topics=names)
    with pytest.raises(GroupMaxSizeReached, match=r"ottla\.group\.max\.bytes"):
        for member in range(100):
            driver.consumer("g", f"member-{member}", 0, topics=names)
    with pytest.raises(GroupMaxSizeReached):
        driver.consumer("g", "one", 1, topics=tuple(f"name-{i}" for i in range(3_000)))
    assert len(driver.shard.groups.get("g").members) == 2
    driver.consumer("g", "one", -1)
    assert driver.consumer("g", "three", 0).member_epoch > 0


def test_what_expressions_stand_for_counts() -> None:
    view = topics(**{f"orders-{i}": 1 for i in range(200)})
    driver = Driver(LIMITED, view)
    with pytest.raises(GroupMaxSizeReached):
        for member in range(50):
            driver.consumer("g", f"m{member}", 0, regex=f"orders-.*|{member}")
    assert driver.shard.groups.get("g").size_bytes < 2 * LIMITED.group_bytes_max


def test_classic_members_of_a_consumer_group_count() -> None:
    driver = Driver(LIMITED)
    driver.consumer("g", "one", 0)
    huge = subscription("orders") + bytes(200 * KIB)
    with pytest.raises(GroupMaxSizeReached):
        driver.result(driver.join(member_id="two", protocols=(("range", huge),)))
    joined = driver.result(driver.join(member_id="two"))
    assert joined.error is ErrorCode.none


def test_all_groups_together() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=1_000, groups_bytes_max=100 * KIB))
    join_large(driver, "a")
    ticket = join_large(driver, "b")
    with pytest.raises(GroupMaxSizeReached, match=r"group c .*ottla\.groups\.max\.bytes=102400"):
        driver.result(driver.join("c", protocol_type="x", protocols=LARGE))
    driver.advance(3_000)
    driver.leave("b", LeavingMember(driver.result(ticket).member_id))
    assert driver.is_parked(join_large(driver, "c"))


def test_the_sum_is_counted_only_near_the_limit() -> None:
    counted = []

    def measure() -> int:
        counted.append(1)
        return 0

    memory = GroupMemory(GroupSettings(groups_bytes_max=1_000), measure)
    instant = Driver().instant
    for _ in range(100):
        memory.check("g", 0, 99, instant)
    assert 5 < len(counted) < 15


def test_more_names_than_can_be_read_in_a_moment_are_not_read() -> None:
    claim = b"\0\0" + (NAMES_MAX + 1).to_bytes(4, "big") + bytes(2 * NAMES_MAX + 2)
    with pytest.raises(MalformedProtocol, match="100001 topics are named"):
        subscribed_topics(claim)


def test_the_count_follows_every_change() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=0))
    one, two = driver.get_id(), driver.get_id()
    stabilise(driver, one, two)
    stabilise(driver, one, two, protocols=(("range", subscription("orders", "payments")),))
    driver.join(instance_id="static")
    driver.advance(1_000)
    driver.join(instance_id="static", protocols=(("range", subscription("payments")),))
    driver.advance(200_000)
    group = group_of(driver)
    pending = sum(1024 + len(member_id) for member_id in group.pending_joins)
    assert group.size_bytes == pending + sum(m.size_bytes for m in group.members.values())


def storing_at_most(size: int) -> Driver:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=1_000))
    memory = GroupMemory(driver.settings, lambda: 0, lambda: size)
    driver.shard = GroupShard(driver.settings, driver.topics, driver._new_id, memory=memory)
    return driver


def test_a_group_that_could_not_be_stored_is_told_before_anything_changes() -> None:
    driver = storing_at_most(60 * KIB)
    tickets = [join_large(driver) for _ in range(2)]
    driver.advance(3_000)
    joined = driver.result(tickets[0])
    stored = len(driver.log)
    with pytest.raises(GroupMaxSizeReached, match=r"max\.message\.bytes=61440 of __consumer_offsets"):
        driver.result(driver.sync("g", joined.leader, 1, assignments=((joined.leader, b"some"),)))
    assert len(driver.log) == stored
    driver.leave("g", LeavingMember(joined.leader))
    other = driver.result(tickets[1]).member_id
    again = driver.result(driver.join(member_id=other, protocol_type="x", protocols=LARGE))
    synced = driver.sync("g", other, again.generation, assignments=((other, b"some"),))
    assert driver.result(synced).assignment == b"some"
    key, value = driver.log[-1]
    assert 40 * KIB < len(key) + len(value or b"") < 60 * KIB


def test_a_subscription_that_could_not_be_stored_is_refused() -> None:
    driver = storing_at_most(60 * KIB)
    with pytest.raises(GroupMaxSizeReached, match="group g cannot be stored"):
        driver.consumer("g", "m", 0, topics=tuple(f"name-{i}" for i in range(10_000)))
    assert driver.log == []
    assert driver.consumer("g", "m", 0, topics=tuple(f"name-{i}" for i in range(1_000))).member_epoch == 1


def test_a_static_member_that_comes_back_with_too_much_to_store_is_refused() -> None:
    driver = storing_at_most(60 * KIB)
    ticket = driver.join(instance_id="static")
    driver.advance(3_000)
    first = driver.result(ticket)
    driver.result(driver.sync("g", first.member_id, 1, instance_id="static"))
    too_large = driver.join(instance_id="static", protocols=(("range", bytes(70 * KIB)),))
    assert driver.result(too_large).error is ErrorCode.group_max_size_reached
    assert driver.heartbeat("g", first.member_id, 1, "static") is ErrorCode.none
    assert driver.result(driver.join(instance_id="static")).error is ErrorCode.none
