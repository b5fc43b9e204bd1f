"""Offsets inside transactions: who may commit them, when they are seen, which of several counts."""

from __future__ import annotations

import pytest
from group_driver import stabilise, topics
from transaction_driver import TransactionDriver

from ottla.coordinator.groups.commands import FetchOffsetsRequest
from ottla.coordinator.groups.settings import GroupSettings
from ottla.wire.errors import ErrorCode

UNSTABLE = ErrorCode.unstable_offset_commit
DAY_MS = 24 * 60 * 60 * 1000
RETENTION = GroupSettings(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=60_000)
P1, P2 = 1001, 1002


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("committed", "seen"), [(True, 9), (False, 5)])
def test_offsets_are_seen_once_their_transaction_is_committed(
    committed: bool, seen: int, restarted: bool
) -> None:
    driver = TransactionDriver()
    driver.commit("g", 5)
    assert driver.commit_in(P1, "g", 9) is ErrorCode.none
    if restarted:
        driver.restart()
    assert driver.fetch("g") == 5
    assert driver.fetch_stable("g") is UNSTABLE
    assert driver.fetch_stable("g", partition=1) is None, "which no transaction touches"
    driver.end(P1, committed=committed)
    if restarted:
        driver.restart()
    assert driver.fetch("g") == seen
    assert driver.fetch_stable("g") == seen


def test_all_offsets_of_a_group_say_which_are_unstable() -> None:
    driver = TransactionDriver()
    driver.commit("g", 1, partition=0)
    driver.commit("g", 2, partition=1)
    driver.commit_in(P1, "g", 3, partition=1)
    driver.commit_in(P1, "g", 4, partition=2)
    (topic,) = driver.call("fetch_offsets", FetchOffsetsRequest("g", None, requires_stable=True))
    assert [index for index, _ in topic.partitions] == [0, 1], "partition 2 has nothing committed yet"
    assert topic.unstable == {1}
    (topic,) = driver.call("fetch_offsets", FetchOffsetsRequest("g", None))
    assert not topic.unstable


def test_the_offset_written_last_counts_whenever_its_transaction_ends() -> None:
    driver = TransactionDriver()
    driver.commit_in(P1, "g", 10)
    driver.commit("g", 20)
    assert driver.fetch("g") == 20
    assert driver.fetch_stable("g") is UNSTABLE
    driver.end(P1, committed=True)
    assert driver.fetch_stable("g") == 20, "the plain commit is newer than the one in the transaction"


@pytest.mark.parametrize("first", [P1, P2])
def test_of_two_transactions_the_later_offset_counts(first: int) -> None:
    driver = TransactionDriver()
    driver.commit_in(P1, "g", 10)
    driver.commit_in(P2, "g", 20)
    driver.end(first, committed=True)
    assert driver.fetch("g") == (10 if first == P1 else 20)
    assert driver.fetch_stable("g") is UNSTABLE
    driver.end(P2 if first == P1 else P1, committed=True)
    assert driver.fetch_stable("g") == 20


def test_an_offset_overtaken_in_vain_still_counts() -> None:
    driver = TransactionDriver()
    driver.commit_in(P1, "g", 10)
    driver.commit_in(P2, "g", 20)
    driver.end(P2, committed=False)
    driver.end(P1, committed=True)
    assert driver.fetch("g") == 10


def test_a_marker_without_offsets_changes_nothing() -> None:
    driver = TransactionDriver()
    driver.commit("g", 5)
    driver.end(P1, committed=True)
    assert driver.fetch_stable("g") == 5


def test_deleting_offsets_deletes_those_to_come() -> None:
    driver = TransactionDriver()
    driver.commit_in(P1, "g", 10)
    driver.commit_in(P1, "g", 11, partition=1)
    assert driver.call("delete_offsets", "g", [("orders", [0])]) == [[ErrorCode.none]]
    assert driver.fetch_stable("g") is None
    assert driver.fetch_stable("g", partition=1) is UNSTABLE
    driver.end(P1, committed=True)
    for _ in range(2):
        assert driver.fetch("g") is None
        assert driver.fetch("g", partition=1) == 11
        driver.restart()


def test_deleting_a_group_deletes_offsets_to_come() -> None:
    driver = TransactionDriver()
    driver.commit("g", 5)
    driver.commit_in(P1, "g", 10)
    driver.commit_in(P1, "g", 11, partition=1)
    driver.commit_in(P1, "other", 12)
    driver.call("delete_group", "g")
    driver.restart()
    driver.end(P1, committed=True)
    assert "g" not in driver.shard.groups.by_id
    assert driver.fetch("g") is None
    assert driver.fetch("g", partition=1) is None
    assert driver.fetch("other") == 12


def test_offsets_to_come_of_a_deleted_topic_are_forgotten() -> None:
    driver = TransactionDriver(view=topics(orders=2, more=1))
    driver.commit_in(P1, "g", 10)
    driver.commit_in(P1, "g", 20, topic="more")
    driver.set_topics(driver.topics.without_topic("orders").with_topic("orders", 2))
    driver.restart()
    driver.end(P1, committed=True)
    assert driver.fetch("g") is None
    assert driver.fetch("g", topic="more") == 20


def test_nothing_expires_while_a_transaction_is_about_it() -> None:
    driver = TransactionDriver(RETENTION)
    driver.commit("g", 5)
    driver.commit("g", 6, partition=1)
    driver.commit_in(P1, "g", 9)
    driver.advance(2 * DAY_MS)
    assert driver.fetch("g") == 5
    assert driver.fetch("g", partition=1) is None
    driver.end(P1, committed=False)
    driver.advance(2 * DAY_MS)
    assert driver.fetch("g") is None
    assert "g" not in driver.shard.groups.by_id


def test_a_group_lives_as_long_as_offsets_may_come() -> None:
    driver = TransactionDriver(RETENTION)
    driver.commit_in(P1, "g", 9)
    driver.advance(2 * DAY_MS)
    assert "g" in driver.shard.groups.by_id
    driver.end(P1, committed=False)
    driver.advance(60_001)
    assert "g" not in driver.shard.groups.by_id, "nothing came of it"


# --- who may commit


def test_a_producer_alone_may_commit_for_a_group_with_members() -> None:
    driver = TransactionDriver()
    member = driver.get_id()
    stabilise(driver, member)
    assert driver.commit("g", 1) is ErrorCode.unknown_member_id
    assert driver.commit_in(P1, "g", 1) is ErrorCode.none


def test_a_producer_that_names_a_member_must_name_the_right_one() -> None:
    driver = TransactionDriver()
    member = driver.get_id()
    stabilise(driver, member)
    assert driver.commit_in(P1, "g", 1, member_id=member, generation=1) is ErrorCode.none
    assert driver.commit_in(P1, "g", 1, member_id="who", generation=1) is ErrorCode.unknown_member_id
    assert driver.commit_in(P1, "g", 1, member_id=member, generation=0) is ErrorCode.illegal_generation
    assert (
        driver.commit_in(P1, "g", 1, member_id=member, generation=1, instance_id="i")
        is ErrorCode.unknown_member_id
    )
    assert driver.commit_in(P1, "gone", 1, member_id="m", generation=3) is ErrorCode.illegal_generation
    assert "gone" not in driver.shard.groups.by_id


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    driver = TransactionDriver()
    old = driver.result(join_static(driver)).member_id
    new = driver.result(join_static(driver)).member_id
    assert new != old
    assert (
        driver.commit_in(P1, "g", 1, member_id=old, generation=1, instance_id="i")
        is ErrorCode.fenced_instance_id
    )


def join_static(driver: TransactionDriver) -> int:
    ticket = driver.join(instance_id="i")
    driver.advance(3_000)
    return ticket


def test_a_rebalance_does_not_stop_transactions() -> None:
    driver = TransactionDriver()
    member = driver.get_id()
    stabilise(driver, member)
    driver.join(member_id=member)
    assert driver.commit("g", 1, member_id=member, generation=2) is ErrorCode.rebalance_in_progress
    assert driver.commit_in(P1, "g", 1, member_id=member, generation=2) is ErrorCode.none


def test_a_transactional_commit_is_no_heartbeat() -> None:
    driver = TransactionDriver()
    member = driver.get_id()
    stabilise(driver, member)
    driver.advance(9_000)
    assert driver.commit_in(P1, "g", 1, member_id=member, generation=1) is ErrorCode.none
    driver.advance(2_000)
    assert driver.heartbeat("g", member, 1) is ErrorCode.unknown_member_id


def test_members_of_a_consumer_group_are_checked_by_epoch() -> None:
    driver = TransactionDriver()
    epoch = driver.consumer("g", "m", 0).member_epoch
    assert driver.commit_in(P1, "g", 1, member_id="m", generation=epoch) is ErrorCode.none
    assert driver.commit_in(P1, "g", 1) is ErrorCode.none, "the producer answers for it"
    assert driver.commit_in(P1, "g", 1, member_id="m", generation=epoch + 1) is ErrorCode.illegal_generation
    assert driver.commit_in(P1, "g", 1, member_id="m", generation=0) is ErrorCode.illegal_generation
    assert driver.commit_in(P1, "g", 1, member_id="who", generation=1) is ErrorCode.unknown_member_id


def test_too_much_metadata_is_refused_for_that_partition() -> None:
    driver = TransactionDriver(GroupSettings(offset_metadata_max_bytes=4))
    assert driver.commit_in(P1, "g", 1, metadata="12345") is ErrorCode.offset_metadata_too_large
    assert driver.fetch_stable("g") is None
