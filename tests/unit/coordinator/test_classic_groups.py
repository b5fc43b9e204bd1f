"""The classic protocol, one behaviour at a time."""

from __future__ import annotations

import pytest
from group_driver import Driver, stabilise, subscription

from ottla.coordinator.groups.classic_group import ClassicGroup, State
from ottla.coordinator.groups.commands import JoinReply, LeavingMember, SyncReply
from ottla.coordinator.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from ottla.wire.errors import (
    ErrorCode,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    UnknownMemberId,
)

NO_DELAY = GroupSettings(group_initial_rebalance_delay_ms=0)


def group_of(driver: Driver, group_id: str = "g") -> ClassicGroup:
    group = driver.shard.groups.by_id[group_id]
    assert isinstance(group, ClassicGroup)
    return group


def stable_pair(driver: Driver) -> tuple[str, str]:
    first, second = driver.get_id(), driver.get_id()
    stabilise(driver, first, second)
    return first, second


def test_a_dynamic_member_must_come_back_with_the_id_it_was_given() -> None:
    driver = Driver()
    reply: JoinReply = driver.result(driver.join())
    assert reply.error is ErrorCode.member_id_required
    assert reply.member_id == "client-id0001"
    assert not group_of(driver).members


def test_before_version_4_a_member_joins_at_once() -> None:
    driver = Driver()
    ticket = driver.join(requires_known_member_id=False)
    assert driver.is_parked(ticket)
    assert list(group_of(driver).members) == ["client-id0001"]


def test_an_unknown_member_id_without_group_is_told_to_start_over() -> None:
    driver = Driver()
    with pytest.raises(UnknownMemberId):
        driver.result(driver.join(member_id="who"))
    assert "g" not in driver.shard.groups.by_id


def test_the_first_rebalance_waits_for_more_members_and_extends_while_they_come() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    first, second = driver.get_id(), driver.get_id()
    one = driver.join(member_id=first)
    driver.advance(2_999)
    two = driver.join(member_id=second)
    driver.advance(2)
    assert driver.is_parked(one), "the second member extends the delay"
    driver.advance(3_000)
    replies: list[JoinReply] = [driver.result(one), driver.result(two)]
    assert [r.generation for r in replies] == [1, 1]
    assert replies[0].leader == first
    assert {member_id for member_id, _, _ in replies[0].members} == {first, second}
    assert replies[1].members == (), "followers are not told who else is in"


def test_the_delay_never_exceeds_the_rebalance_time_out() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=3_000))
    tickets = []
    for _ in range(20):
        tickets.append(
            driver.join(member_id=driver.get_id(rebalance_timeout_ms=9_000), rebalance_timeout_ms=9_000)
        )
        driver.advance(1_000)
    assert not driver.is_parked(tickets[0])


def test_followers_wait_for_the_leader_and_get_what_it_assigned() -> None:
    driver = Driver(NO_DELAY)
    first, second = driver.get_id(), driver.get_id()
    one, two = driver.join(member_id=first), driver.join(member_id=second)
    driver.advance(0)
    assert driver.result(one).leader == first
    follower = driver.sync("g", second, 1)
    assert driver.is_parked(follower)
    leader = driver.sync("g", first, 1, assignments=((first, b"A"), (second, b"B")))
    assert driver.result(leader) == SyncReply(ErrorCode.none, b"A", "consumer", "range")
    assert driver.result(follower).assignment == b"B"
    assert group_of(driver).state is State.STABLE
    assert driver.result(two).generation == 1


def test_a_stable_group_survives_a_restart_as_it_was() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    before = group_of(driver)
    driver.restart()
    after = group_of(driver)
    assert after.state is State.STABLE
    assert after.to_record() == before.to_record()
    assert driver.heartbeat("g", first, 1) is ErrorCode.none
    assert driver.heartbeat("g", second, 1) is ErrorCode.none


def test_a_new_member_makes_everybody_rejoin() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    third = driver.get_id()
    joining = driver.join(member_id=third)
    assert driver.heartbeat("g", first, 1) is ErrorCode.rebalance_in_progress
    rejoined = [driver.join(member_id=first), driver.join(member_id=second)]
    assert driver.result(joining).generation == 2
    assert all(driver.result(ticket).generation == 2 for ticket in rejoined)


def test_a_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    rejoining = driver.join(member_id=first)  # the leader may force a rebalance
    for _ in range(12):
        driver.advance(5_000)
        assert driver.heartbeat("g", second, 1) in (
            ErrorCode.rebalance_in_progress,
            ErrorCode.unknown_member_id,
        )
    assert driver.result(rejoining).generation == 2
    assert list(group_of(driver).members) == [first]
    assert driver.heartbeat("g", second, 1) is ErrorCode.unknown_member_id


def test_a_silent_member_is_removed_after_its_session_time_out() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    driver.advance(5_000)
    driver.heartbeat("g", first, 1)
    driver.advance(5_001)
    assert list(group_of(driver).members) == [first]
    assert driver.heartbeat("g", first, 1) is ErrorCode.rebalance_in_progress
    assert driver.heartbeat("g", second, 1) is ErrorCode.unknown_member_id


def test_a_parked_member_need_not_heartbeat() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    waiting = driver.join(member_id=first)
    for _ in range(4):
        driver.advance(8_000)
        driver.heartbeat("g", second, 1)
    assert driver.is_parked(waiting)
    assert first in group_of(driver).members


def test_a_new_members_parked_join_ends_after_five_minutes() -> None:
    driver = Driver()
    first = driver.get_id()
    stabilise(driver, first, rebalance_timeout_ms=3_600_000)
    second = driver.get_id()
    ticket = driver.join(member_id=second)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        driver.advance(5_000)
        driver.heartbeat("g", first, 1)
    driver.advance(1)
    assert driver.result(ticket).error is ErrorCode.unknown_member_id
    assert second not in group_of(driver).members


def test_a_member_that_joins_but_never_syncs_is_removed() -> None:
    driver = Driver(NO_DELAY)
    first, second = driver.get_id(), driver.get_id()
    driver.join(member_id=first, session_timeout_ms=300_000)
    driver.join(member_id=second, session_timeout_ms=300_000)
    driver.advance(0)
    done = driver.sync("g", first, 1, assignments=((first, b"A"),))
    assert driver.result(done).assignment == b"A"
    driver.advance(60_000)
    assert list(group_of(driver).members) == [first]
    assert group_of(driver).state is State.PREPARING


def test_leaving_rebalances_and_the_last_one_out_leaves_an_empty_group() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    assert driver.leave("g", LeavingMember(second)) == [ErrorCode.none]
    ticket = driver.join(member_id=first)
    assert driver.result(ticket).generation == 2
    driver.sync("g", first, 2, assignments=((first, b"A"),))
    assert driver.leave("g", LeavingMember(first), LeavingMember("who")) == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert group_of(driver).state is State.EMPTY
    assert group_of(driver).generation == 3
    driver.restart()
    assert group_of(driver).state is State.EMPTY
    assert group_of(driver).generation == 3
    assert driver.leave("nowhere", LeavingMember(first)) == [ErrorCode.unknown_member_id]


def test_stale_generations_are_fenced() -> None:
    driver = Driver()
    first, _ = stable_pair(driver)
    with pytest.raises(IllegalGeneration):
        driver.result(driver.sync("g", first, 7))
    assert driver.heartbeat("g", first, 7) is ErrorCode.illegal_generation
    assert driver.commit("g", 5, member_id=first, generation=7) is ErrorCode.illegal_generation


def test_the_protocol_with_most_votes_among_common_ones_wins() -> None:
    driver = Driver(NO_DELAY)
    data = subscription("orders")
    a, b, c = driver.get_id(), driver.get_id(), driver.get_id()
    tickets = [
        driver.join(member_id=a, protocols=(("sticky", data), ("range", data))),
        driver.join(member_id=b, protocols=(("range", data), ("sticky", data))),
        driver.join(member_id=c, protocols=(("only-mine", data), ("range", data), ("sticky", data))),
    ]
    driver.advance(0)
    assert {driver.result(ticket).protocol_name for ticket in tickets} == {"range"}
    with pytest.raises(InconsistentGroupProtocol):
        driver.result(driver.join(protocols=(("only-mine", data),)))
    with pytest.raises(InconsistentGroupProtocol):
        driver.result(driver.join(protocol_type="connect", protocols=(("range", data),)))
    with pytest.raises(InconsistentGroupProtocol):
        driver.result(driver.join(group="fresh", protocols=()))
    assert "fresh" not in driver.shard.groups.by_id


def test_rejoining_with_nothing_new_is_answered_without_a_rebalance() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    reply: JoinReply = driver.result(driver.join(member_id=second))
    assert (reply.error, reply.generation) == (ErrorCode.none, 1)
    assert group_of(driver).state is State.STABLE
    changed = driver.join(member_id=second, protocols=(("range", subscription("orders", "more")),))
    assert driver.is_parked(changed)
    assert group_of(driver).state is State.PREPARING
    assert driver.heartbeat("g", first, 1) is ErrorCode.rebalance_in_progress


def test_a_lost_join_answer_can_be_asked_for_again() -> None:
    driver = Driver(NO_DELAY)
    first = driver.get_id()
    driver.join(member_id=first)
    driver.advance(0)
    again: JoinReply = driver.result(driver.join(member_id=first))
    assert again.generation == 1
    assert [member_id for member_id, _, _ in again.members] == [first]


def test_a_superseded_parked_join_is_answered_too() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    given_up = driver.join(member_id=first)
    retried = driver.join(member_id=first)
    assert driver.result(given_up).error is ErrorCode.rebalance_in_progress
    driver.join(member_id=second)
    assert driver.result(retried).generation == 2


def test_a_static_member_comes_back_to_a_stable_group_without_a_rebalance() -> None:
    driver = Driver(NO_DELAY)
    ticket = driver.join(instance_id="worker-1")
    driver.advance(0)
    old: JoinReply = driver.result(ticket)
    driver.sync("g", old.member_id, 1, assignments=((old.member_id, b"mine"),), instance_id="worker-1")
    back: JoinReply = driver.result(driver.join(instance_id="worker-1"))
    assert back.generation == 1
    assert back.member_id != old.member_id
    assert back.leader == back.member_id
    assert back.skip_assignment
    synced: SyncReply = driver.result(driver.sync("g", back.member_id, 1, instance_id="worker-1"))
    assert synced.assignment == b"mine"
    assert driver.heartbeat("g", old.member_id, 1, "worker-1") is ErrorCode.fenced_instance_id
    with pytest.raises(FencedInstanceId):
        driver.result(driver.sync("g", old.member_id, 1, instance_id="worker-1"))
    driver.restart()
    assert driver.heartbeat("g", back.member_id, 1, "worker-1") is ErrorCode.none


def test_an_old_client_returning_as_static_leader_is_not_told_that_it_leads() -> None:
    driver = Driver(NO_DELAY)
    ticket = driver.join(instance_id="w")
    driver.advance(0)
    old: JoinReply = driver.result(ticket)
    driver.sync("g", old.member_id, 1, assignments=((old.member_id, b"mine"),), instance_id="w")
    back: JoinReply = driver.result(driver.join(instance_id="w", can_skip_assignment=False))
    assert back.leader == old.member_id
    assert not back.skip_assignment


def test_a_static_member_replaced_while_others_wait_is_fenced_at_once() -> None:
    driver = Driver(NO_DELAY)
    first = driver.get_id()
    stabilise(driver, first)
    parked = driver.join(instance_id="w")
    assert driver.is_parked(parked)
    again = driver.join(instance_id="w")
    assert driver.result(parked).error is ErrorCode.fenced_instance_id
    driver.join(member_id=first)
    assert driver.result(again).generation == 2


def test_a_static_member_replaced_during_assignment_starts_over() -> None:
    driver = Driver(NO_DELAY)
    one = driver.join(instance_id="w")
    driver.advance(0)
    assert driver.result(one).generation == 1
    again = driver.join(instance_id="w")
    assert driver.result(again).generation == 2


def test_a_static_member_keeps_its_place_while_it_restarts() -> None:
    driver = Driver(NO_DELAY)
    one, two = driver.join(instance_id="a"), driver.join(instance_id="b")
    driver.advance(0)
    first, second = driver.result(one).member_id, driver.result(two).member_id
    driver.sync("g", second, 1, instance_id="b")
    driver.sync("g", first, 1, assignments=((first, b"A"), (second, b"B")), instance_id="a")
    assert driver.leave("g", LeavingMember("", "b"), LeavingMember("", "c")) == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ], "an administrator may remove it by its instance id"
    assert list(group_of(driver).static_members) == ["a"]


def test_group_max_size_turns_members_away() -> None:
    driver = Driver(GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=1))
    first, second = driver.get_id(), driver.get_id()
    one = driver.join(member_id=first)
    assert driver.result(driver.join(member_id=second)).error is ErrorCode.group_max_size_reached
    driver.advance(0)
    assert driver.result(one).generation == 1
    assert list(group_of(driver).members) == [first]


def test_a_lowered_group_max_size_sheds_members_on_load() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    driver.settings = GroupSettings(group_max_size=1)
    driver.restart()
    assert driver.heartbeat("g", first, 1) is ErrorCode.rebalance_in_progress
    kept = driver.join(member_id=first)
    assert driver.result(driver.join(member_id=second)).error is ErrorCode.group_max_size_reached
    assert driver.result(kept).generation == 2


def test_if_the_leader_does_not_rejoin_another_is_elected() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    ticket = driver.join(member_id=second, protocols=(("range", subscription("orders", "x")),))
    driver.advance(60_000)
    reply: JoinReply = driver.result(ticket)
    assert reply.leader == second
    assert first not in group_of(driver).members


def test_an_interrupted_rebalance_falls_back_to_the_generation_before() -> None:
    driver = Driver()
    first, second = stable_pair(driver)
    driver.join(member_id=first)
    driver.join(member_id=second)
    assert group_of(driver).generation == 2
    driver.restart()
    assert (group_of(driver).generation, group_of(driver).state) == (1, State.STABLE)
    assert driver.heartbeat("g", first, 1) is ErrorCode.none
    assert driver.heartbeat("g", first, 2) is ErrorCode.illegal_generation
