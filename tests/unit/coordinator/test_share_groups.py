"""Share groups as a state machine: members come and go, states are begun, partitions are shared out."""

from __future__ import annotations

import uuid
from random import Random
from typing import Any

import pytest
from group_driver import Driver, topics

from ottla.coordinator.groups.commands import InitializeStates, ShareHeartbeatReply, ShareHeartbeatRequest
from ottla.coordinator.groups.inspection import list_groups
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.share_assignor import assign_simple
from ottla.coordinator.groups.share_group import ShareGroup, TopicShare
from ottla.wire.errors import (
    ErrorCode,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidRequest,
    KafkaError,
    NonEmptyGroup,
    UnknownMemberId,
)

NO_DELAY = GroupSettings(consumer_assignment_interval_ms=0)
A, B = uuid.UUID(int=1), uuid.UUID(int=2)


def beat(driver: Driver, member: str, epoch: int, group: str = "g", **fields: Any) -> ShareHeartbeatReply:
    if epoch == 0:
        fields.setdefault("topics", ("orders",))
    reply: ShareHeartbeatReply = driver.call(
        "share_heartbeat", ShareHeartbeatRequest(group, member, epoch, **fields)
    )
    return reply


def begin_states(driver: Driver, wanted: InitializeStates | None) -> None:
    assert wanted is not None
    done = {topic_id: frozenset(starts) for topic_id, starts in wanted.start_offsets.items()}
    driver.call("states_initialized", wanted.group_id, done)


def join(driver: Driver, member: str, group: str = "g", **fields: Any) -> ShareHeartbeatReply:
    """With the states it takes."""
    reply = beat(driver, member, 0, group, **fields)
    if reply.initialize is not None:
        begin_states(driver, reply.initialize)
        reply = beat(driver, member, reply.member_epoch, group, **fields)
    return reply


def group_of(driver: Driver, group: str = "g") -> ShareGroup:
    found = driver.shard.groups.by_id[group]
    assert isinstance(found, ShareGroup)
    return found


def shown(driver: Driver) -> Any:
    group = group_of(driver)
    return group.epoch, group.assignment_epoch, group.members, group.target, group.states


def partitions(driver: Driver, reply: ShareHeartbeatReply, topic: str = "orders") -> set[int]:
    assert reply.assignment is not None
    return set(reply.assignment.get(driver.topics.topics[topic].id, ()))


def test_a_member_reads_once_states_have_begun() -> None:
    driver = Driver(NO_DELAY)
    first = beat(driver, "m", 0)
    assert (first.member_epoch, first.assignment) == (1, {})
    topic_id = driver.topics.topics["orders"].id
    assert first.initialize == InitializeStates("g", 1, {topic_id: dict.fromkeys(range(4), -1)})
    assert beat(driver, "m", 1).initialize is None, "they are being asked for"
    begin_states(driver, first.initialize)
    second = beat(driver, "m", 1)
    assert (second.member_epoch, partitions(driver, second)) == (2, {0, 1, 2, 3})
    assert beat(driver, "m", 2).assignment is None, "it knows"
    assert partitions(driver, beat(driver, "m", 1)) == {0, 1, 2, 3}, "the answer may have got lost"


def test_partitions_that_nobody_reads_need_not_wait_for_the_next_assignment() -> None:
    driver = Driver(GroupSettings(consumer_assignment_interval_ms=1000))
    first = join(driver, "m")
    assert first.assignment, "the one before was of no partitions"
    driver.set_topics(driver.topics.with_topic("more", 1))
    more = beat(driver, "m", first.member_epoch, topics=("orders", "more"))
    begin_states(driver, more.initialize)
    reply = beat(driver, "m", more.member_epoch)
    assert reply.assignment is not None
    assert len(reply.assignment) == 2


def test_states_that_could_not_begin_are_asked_for_again() -> None:
    driver = Driver(NO_DELAY)
    first = beat(driver, "m", 0)
    driver.call("states_initialized", "g", {})
    assert beat(driver, "m", 1).initialize == first.initialize
    driver.restart()
    assert beat(driver, "m", 1).initialize == first.initialize, "whoever asked may be gone"


def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    driver = Driver(NO_DELAY)
    join(driver, "m")
    driver.set_topics(driver.topics.with_topic("orders", 6))
    reply = beat(driver, "m", 2)
    topic_id = driver.topics.topics["orders"].id
    assert reply.initialize is not None
    assert reply.initialize.start_offsets == {topic_id: {4: 0, 5: 0}}
    begin_states(driver, reply.initialize)
    assert partitions(driver, beat(driver, "m", reply.member_epoch)) == {0, 1, 2, 3, 4, 5}


def test_members_share_what_there_is() -> None:
    driver = Driver(NO_DELAY)
    epochs = {"a": join(driver, "a").member_epoch}
    for member in ("b", "c", "d", "e", "f"):
        epochs[member] = join(driver, member).member_epoch
    read: dict[int, int] = dict.fromkeys(range(4), 0)
    for member, epoch in epochs.items():
        reply = beat(driver, member, epoch, topics=("orders",))
        for partition in partitions(driver, reply):
            read[partition] += 1
        assert 1 <= len(partitions(driver, reply)) <= 2
    assert all(1 <= count <= 2 for count in read.values())
    beat(driver, "a", -1)
    assert "a" not in group_of(driver).members


def test_members_that_fall_silent_go() -> None:
    driver = Driver(NO_DELAY)
    epoch = join(driver, "a").member_epoch
    join(driver, "b")
    driver.advance(NO_DELAY.consumer_session_timeout_ms - 1)
    epoch = beat(driver, "a", epoch).member_epoch
    driver.advance(1)
    assert set(group_of(driver).members) == {"a"}
    assert partitions(driver, beat(driver, "a", epoch)) == {0, 1, 2, 3}
    driver.restart()
    driver.advance(NO_DELAY.consumer_session_timeout_ms)
    assert group_of(driver).state == "Empty"
    assert group_of(driver).states.initialized


@pytest.mark.parametrize(
    ("epoch", "fields", "error"),
    [
        (0, {"topics": ()}, InvalidRequest),
        (-2, {}, InvalidRequest),
        (0, {"rack_id": " "}, InvalidRequest),
        (7, {}, GroupIdNotFound),
    ],
)
def test_what_is_refused(epoch: int, fields: dict[str, Any], error: type[KafkaError]) -> None:
    driver = Driver(NO_DELAY)
    with pytest.raises(error):
        beat(driver, "m", epoch, **fields)
    with pytest.raises(InvalidRequest):
        beat(driver, "", 0)
    assert driver.log == []


def test_members_are_known_by_their_epochs() -> None:
    driver = Driver(GroupSettings(share_max_size=1))
    epoch = join(driver, "m").member_epoch
    with pytest.raises(FencedMemberEpoch):
        beat(driver, "m", epoch + 1)
    for act in (lambda: beat(driver, "other", epoch), lambda: beat(driver, "other", -1)):
        with pytest.raises(UnknownMemberId):
            act()
    with pytest.raises(GroupMaxSizeReached, match="limit of 1 members"):
        join(driver, "other")
    assert join(driver, "m").member_epoch == epoch, "it comes back"


def test_a_group_is_of_one_type() -> None:
    driver = Driver(NO_DELAY)
    join(driver, "m", "shared")
    for act in (
        lambda: driver.consumer("shared", "c", 0),
        lambda: driver.call("describe_consumer_group", "shared"),
        lambda: driver.call("describe_group", "shared"),
        lambda: driver.call("delete_offsets", "shared", [("orders", [0])]),
    ):
        with pytest.raises(GroupIdNotFound):
            act()
    with pytest.raises(InconsistentGroupProtocol):
        driver.result(driver.join("shared"))
    assert driver.commit("shared", 5) is ErrorCode.group_id_not_found
    driver.consumer("consumed", "c", 0)
    assert driver.commit("committed", 5) is ErrorCode.none
    for group in ("consumed", "committed"):
        with pytest.raises(GroupIdNotFound, match="not a share group"):
            beat(driver, "m", 0, group)
    listed = list_groups(driver.shard.groups, (), ("share",))
    assert [(group.group_id, group.protocol_type, group.state) for group in listed] == [
        ("shared", "share", "Stable")
    ]


def test_topics_that_are_deleted_are_forgotten() -> None:
    driver = Driver(NO_DELAY, topics(orders=2, events=1))
    epoch = join(driver, "m", topics=("events", "orders")).member_epoch
    driver.set_topics(driver.topics.without_topic("orders"))
    reply = beat(driver, "m", epoch)
    assert partitions(driver, reply, "events") == {0}
    assert reply.assignment is not None
    assert len(reply.assignment) == 1
    assert [topic.name for topic in group_of(driver).states.initialized.values()] == ["events"]


def test_offsets_are_altered_in_a_new_epoch() -> None:
    driver = Driver(NO_DELAY)
    epoch = join(driver, "m").member_epoch
    with pytest.raises(NonEmptyGroup):
        driver.call("alter_share_offsets", "g", {"orders": {0: 5}})
    beat(driver, "m", -1)
    wanted = driver.call("alter_share_offsets", "g", {"orders": {0: 5}, "gone": {0: 1}})
    topic_id = driver.topics.topics["orders"].id
    assert wanted.start_offsets == {topic_id: {0: 5}}
    assert wanted.state_epoch > epoch
    begin_states(driver, wanted)
    fresh = driver.call("alter_share_offsets", "new", {"orders": {1: 7}})
    assert fresh == InitializeStates("new", 1, {topic_id: {1: 7}})
    begin_states(driver, fresh)
    assert driver.call("shared_topics", "new") == {topic_id: TopicShare("orders", frozenset({1}))}


def test_states_are_deleted_before_their_group() -> None:
    driver = Driver(NO_DELAY, topics(orders=2, events=1))
    join(driver, "m", topics=("events", "orders"))
    with pytest.raises(NonEmptyGroup):
        driver.call("begin_forgetting_states", "g", None)
    beat(driver, "m", -1)
    topic_id = driver.topics.topics["orders"].id
    wanted = {"orders": (topic_id, frozenset({0, 1}))}
    assert driver.call("begin_forgetting_states", "g", ["orders", "gone"]) == wanted
    assert driver.call("begin_forgetting_states", "g", ["orders"]) == wanted, "it was not finished"
    driver.restart()
    assert driver.call("begin_forgetting_states", "g", ["orders"]) == wanted
    driver.call("states_forgotten", "g", [topic_id])
    assert driver.call("begin_forgetting_states", "g", ["orders"]) == {}
    assert set(driver.call("begin_forgetting_states", "g", None)) == {"events"}
    driver.call("delete_group", "g")
    driver.compact()
    assert driver.log == []


def test_replaying_the_log_gives_the_same_group() -> None:
    random = Random(3)
    driver = Driver(NO_DELAY, topics(orders=3, events=2))
    epochs: dict[str, int] = {}
    for _ in range(300):
        member = f"m{random.randrange(5)}"
        try:
            match random.randrange(8):
                case 0:
                    beat(driver, member, -1)
                    epochs.pop(member, None)
                case 1:
                    driver.set_topics(driver.topics.with_topic("orders", random.randint(3, 6)))
                case 2 if random.random() < 0.3:
                    driver.set_topics(driver.topics.without_topic("events").with_topic("events", 2))
                case 3:
                    driver.advance(random.randrange(20_000))
                case _:
                    reply = beat(
                        driver,
                        member,
                        epochs.get(member, 0),
                        topics=random.choice((("orders",), ("events", "orders"))),
                    )
                    epochs[member] = reply.member_epoch
                    if reply.initialize is not None and random.random() < 0.8:
                        begin_states(driver, reply.initialize)
        except KafkaError:
            epochs.pop(member, None)
        if "g" in driver.shard.groups.by_id:
            before = shown(driver)
            if random.random() < 0.2:
                driver.compact()
            driver.restart()
            assert shown(driver) == before


def spread(given: dict[str, Any]) -> list[int]:
    return sorted(sum(len(some) for some in each.values()) for each in given.values())


def test_assignments_are_even_sticky_and_whole() -> None:
    random = Random(5)
    before: dict[str, Any] = {}
    for _ in range(200):
        members = [f"m{index}" for index in range(random.randint(1, 12))]
        counts = {A: frozenset(range(random.randint(1, 6))), B: frozenset(range(random.randint(1, 6)))}
        given = assign_simple({member: frozenset((A, B)) for member in members}, before, counts)
        sizes = spread(given)
        assert sizes[-1] - sizes[0] <= 1
        assert sizes[0] >= 1 or len(members) > 1
        read = {(t, p) for each in given.values() for t, some in each.items() for p in some}
        assert read == {(t, p) for t, some in counts.items() for p in some}
        again = assign_simple({member: frozenset((A, B)) for member in members}, given, counts)
        assert again == given
        before = given


def test_nobody_is_given_what_it_does_not_subscribe_to() -> None:
    counts = {A: frozenset(range(3)), B: frozenset(range(2))}
    given = assign_simple({"a": frozenset((A,)), "b": frozenset((A, B)), "c": frozenset((B,))}, {}, counts)
    assert set(given["a"]) == {A}
    assert set(given["c"]) == {B}
    read = {(t, p) for each in given.values() for t, some in each.items() for p in some}
    assert read == {(t, p) for t, some in counts.items() for p in some}
    assert assign_simple({}, {}, {}) == {}
    assert assign_simple({"a": frozenset()}, {}, {}) == {"a": {}}
