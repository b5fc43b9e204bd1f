"""Committed offsets: who may commit, what comes back, when it goes."""

from __future__ import annotations

import pytest
from group_driver import EPOCH_MS, Driver, stabilise, topics

from ottla.coordinator.groups.commands import FetchOffsetsRequest, LeavingMember
from ottla.coordinator.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode, GroupIdNotFound, NonEmptyGroup, StaleMemberEpoch

DAY_MS = 24 * 60 * 60 * 1000
RETENTION = GroupSettings(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=60_000)


def stable_member(driver: Driver) -> str:
    member = driver.get_id()
    stabilise(driver, member)
    return member


def test_committed_offsets_survive_a_restart() -> None:
    driver = Driver()
    assert driver.commit("g", 42, metadata="note", leader_epoch=3) is ErrorCode.none
    driver.restart()
    assert driver.fetch("g") == 42
    stored = driver.shard.groups.offsets["g"]["orders"][0]
    assert (stored.metadata, stored.leader_epoch, stored.commit_timestamp) == ("note", 3, EPOCH_MS)
    assert driver.fetch("g", partition=1) is None
    assert driver.fetch("unheard-of") is None


def test_all_offsets_of_a_group_can_be_fetched() -> None:
    driver = Driver(view=topics(orders=2, more=1))
    driver.commit("g", 1, partition=1)
    driver.commit("g", 2, topic="more")
    fetched = driver.call("fetch_offsets", FetchOffsetsRequest("g", None))
    assert [(t.name, [(p, v.offset) for p, v in t.partitions]) for t in fetched] == [
        ("orders", [(1, 1)]),
        ("more", [(0, 2)]),
    ]


def test_a_group_with_members_takes_commits_from_them_only() -> None:
    driver = Driver()
    member = stable_member(driver)
    assert driver.commit("g", 1, member_id=member, generation=1) is ErrorCode.none
    assert driver.commit("g", 2) is ErrorCode.unknown_member_id
    assert driver.commit("g", 2, member_id="who", generation=1) is ErrorCode.unknown_member_id
    assert driver.commit("g", 2, member_id=member, generation=0) is ErrorCode.illegal_generation
    assert driver.fetch("g") == 1


def test_a_member_that_has_not_synced_yet_cannot_commit() -> None:
    driver = Driver()
    member = stable_member(driver)
    driver.join(member_id=member)
    assert driver.commit("g", 1, member_id=member, generation=2) is ErrorCode.rebalance_in_progress


def test_during_a_rebalance_members_may_still_commit_what_they_own() -> None:
    driver = Driver()
    member = stable_member(driver)
    driver.join(member_id=driver.get_id())
    assert driver.heartbeat("g", member, 1) is ErrorCode.rebalance_in_progress
    assert driver.commit("g", 9, member_id=member, generation=1) is ErrorCode.none


def test_a_commit_keeps_the_session_alive() -> None:
    driver = Driver()
    member = stable_member(driver)
    for _ in range(5):
        driver.advance(9_000)
        assert driver.commit("g", 1, member_id=member, generation=1) is ErrorCode.none


def test_a_generation_without_group_tells_the_member_to_rejoin() -> None:
    driver = Driver()
    assert driver.commit("gone", 1, member_id="m", generation=3) is ErrorCode.group_id_not_found
    assert driver.commit("gone", 1, member_id="m", generation=3, version=8) is ErrorCode.illegal_generation
    assert "gone" not in driver.shard.groups.by_id


def test_too_much_metadata_is_refused_for_that_partition() -> None:
    driver = Driver(GroupSettings(offset_metadata_max_bytes=4))
    assert driver.commit("g", 1, metadata="12345") is ErrorCode.offset_metadata_too_large
    assert driver.commit("g", 1, metadata="1234") is ErrorCode.none


def test_offsets_of_a_deleted_topic_are_not_inherited_by_its_successor() -> None:
    driver = Driver()
    driver.commit("g", 42)
    deleted = driver.topics.without_topic("orders")
    driver.set_topics(deleted.with_topic("orders", 4))
    assert driver.fetch("g") is None
    assert "g" not in driver.shard.groups.offsets


def test_an_offset_of_another_topic_of_that_name_is_not_handed_out() -> None:
    driver = Driver()
    driver.commit("g", 42)
    driver.topics = driver.topics.without_topic("orders").with_topic("orders", 4)
    assert driver.fetch("g") is None, "the id tells them apart even before the tombstone is written"


def test_offsets_can_be_deleted_unless_someone_reads_the_topic() -> None:
    driver = Driver(view=topics(orders=1, other=1))
    member = stable_member(driver)
    driver.commit("g", 1, member_id=member, generation=1)
    driver.commit("g", 2, topic="other", member_id=member, generation=1)
    assert driver.call("delete_offsets", "g", [("orders", [0]), ("other", [0, 7])]) == [
        [ErrorCode.group_subscribed_to_topic],
        [ErrorCode.none, ErrorCode.none],
    ]
    assert driver.fetch("g") == 1
    driver.restart()
    assert driver.fetch("g", topic="other") is None
    with pytest.raises(GroupIdNotFound):
        driver.call("delete_offsets", "gone", [("orders", [0])])


def test_an_empty_group_can_be_deleted_with_its_offsets() -> None:
    driver = Driver()
    member = stable_member(driver)
    driver.commit("g", 1, member_id=member, generation=1)
    with pytest.raises(NonEmptyGroup):
        driver.call("delete_group", "g")
    driver.leave("g", LeavingMember(member))
    driver.call("delete_group", "g")
    assert driver.fetch("g") is None
    driver.restart()
    assert not driver.shard.groups.by_id
    with pytest.raises(GroupIdNotFound):
        driver.call("delete_group", "g")
    driver.compact()
    assert driver.log == [], "tombstones for every key that was written"


def test_offsets_of_a_group_without_members_expire_from_their_commit() -> None:
    driver = Driver(RETENTION)
    driver.commit("g", 1, partition=0)
    driver.advance(DAY_MS // 2)
    driver.commit("g", 2, partition=1)
    driver.advance(DAY_MS // 2 + 60_000)
    assert driver.fetch("g", partition=0) is None
    assert driver.fetch("g", partition=1) == 2
    driver.advance(DAY_MS)
    assert "g" not in driver.shard.groups.by_id


def test_offsets_of_an_emptied_group_expire_from_when_it_became_empty() -> None:
    driver = Driver(RETENTION)
    member = stable_member(driver)
    driver.commit("g", 1, member_id=member, generation=1)
    for _ in range(2 * DAY_MS // 8_000):
        driver.advance(8_000)
        driver.heartbeat("g", member, 1)
    assert driver.fetch("g") == 1, "a live group's offsets do not expire"
    driver.leave("g", LeavingMember(member))
    driver.advance(DAY_MS - 120_000)
    assert driver.fetch("g") == 1
    driver.restart()
    driver.advance(240_000)
    assert driver.fetch("g") is None
    assert "g" not in driver.shard.groups.by_id


def test_a_live_group_loses_offsets_of_topics_it_no_longer_reads() -> None:
    driver = Driver(RETENTION, view=topics(orders=1, old=1))
    member = driver.get_id(session_timeout_ms=10 * DAY_MS)
    stabilise(driver, member, session_timeout_ms=10 * DAY_MS)
    driver.commit("g", 1, member_id=member, generation=1)
    driver.commit("g", 2, topic="old", member_id=member, generation=1)
    driver.advance(DAY_MS + 60_000)
    assert driver.fetch("g") == 1
    assert driver.fetch("g", topic="old") is None


def test_an_old_client_may_ask_for_retention_for_ever() -> None:
    driver = Driver(settings=RETENTION)
    assert driver.commit("g", 1, retention_ms=2**63 - 1) is ErrorCode.none
    driver.restart()
    driver.advance(2 * DAY_MS)
    assert driver.fetch("g") == 1


def test_an_old_client_may_ask_for_its_own_retention() -> None:
    driver = Driver(RETENTION)
    driver.commit("g", 1, retention_ms=120_000)
    driver.restart()
    driver.advance(60_000)
    assert driver.fetch("g") == 1
    driver.advance(120_000)
    assert driver.fetch("g") is None


def test_members_of_consumer_groups_commit_with_their_epoch() -> None:
    driver = Driver()
    epoch = driver.consumer("g", "m", 0).member_epoch
    assert driver.commit("g", 1, member_id="m", generation=epoch) is ErrorCode.none
    assert driver.commit("g", 1, member_id="m", generation=epoch + 1) is ErrorCode.stale_member_epoch
    assert driver.commit("g", 1, member_id="who", generation=epoch) is ErrorCode.unknown_member_id
    assert driver.commit("g", 1, member_id="m", generation=epoch, version=8) is ErrorCode.unsupported_version
    assert driver.fetch("g", member_id="m", member_epoch=epoch) == 1
    with pytest.raises(StaleMemberEpoch):
        driver.fetch("g", member_id="m", member_epoch=epoch + 1)


def test_a_commit_of_an_older_epoch_counts_for_partitions_owned_since() -> None:
    driver = Driver()
    first = driver.consumer("g", "m1", 0).member_epoch
    driver.consumer("g", "m2", 0)
    reply = driver.consumer("g", "m1", first, owned={driver.topics.topics["orders"].id: frozenset(range(4))})
    assert reply.assignment is not None
    (kept,) = reply.assignment.values()
    assert len(kept) == 2
    moved = driver.consumer("g", "m1", first, owned=reply.assignment)
    assert moved.member_epoch > first
    given_up = next(p for p in range(4) if p not in kept)
    assert driver.commit("g", 5, partition=min(kept), member_id="m1", generation=first) is ErrorCode.none
    assert (
        driver.commit("g", 5, partition=given_up, member_id="m1", generation=first)
        is ErrorCode.stale_member_epoch
    )
