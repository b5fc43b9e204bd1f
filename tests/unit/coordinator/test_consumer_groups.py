"""The consumer group protocol, one behaviour at a time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
from group_driver import Driver, topics

from ottla.coordinator.groups.commands import LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from ottla.coordinator.groups.consumer_group import ConsumerGroup, MemberState
from ottla.coordinator.groups.settings import GroupSettings
from ottla.wire.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)


def group_of(driver: Driver, group_id: str = "g") -> ConsumerGroup:
    group = driver.shard.groups.by_id[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


class Client:
    """A well-behaved consumer: gives up what it is told to and reports what it owns."""

    def __init__(self, driver: Driver, member_id: str, **fields: object) -> None:
        self.driver = driver
        self.member_id = member_id
        self.fields = fields
        self.epoch = 0
        self.owned: Mapping[uuid.UUID, frozenset[int]] = {}

    def join(self) -> Client:
        self.epoch, self.owned = 0, {}
        self._take(self.driver.consumer("g", self.member_id, 0, **self.fields))
        return self

    def beat(self, **fields: object) -> Client:
        instance = {"instance_id": self.fields["instance_id"]} if "instance_id" in self.fields else {}
        self._take(
            self.driver.consumer(
                "g", self.member_id, self.epoch, **{"owned": self.owned, **instance, **fields}
            )
        )
        return self

    def _take(self, reply: object) -> None:
        self.epoch = reply.member_epoch  # type: ignore[attr-defined]
        if reply.assignment is not None:  # type: ignore[attr-defined]
            self.owned = reply.assignment  # type: ignore[attr-defined]

    @property
    def partitions(self) -> set[tuple[str, int]]:
        names = self.driver.topics.topic_names
        return {(names[t], p) for t, parts in self.owned.items() for p in parts if t in names}


def settle(*clients: Client) -> None:
    for _ in range(6):
        for client in clients:
            client.beat()


def test_a_lone_member_gets_everything_at_once() -> None:
    driver = Driver()
    member = Client(driver, "m").join()
    assert member.epoch == 1
    assert member.partitions == {("orders", n) for n in range(4)}
    assert group_of(driver).state == "Stable"


def test_a_partition_changes_hands_only_after_it_was_given_up() -> None:
    driver = Driver()
    first = Client(driver, "m1").join()
    second = Client(driver, "m2").join()
    assert second.partitions == set()
    assert group_of(driver).members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    held = first.owned
    first.beat(owned=held)
    assert group_of(driver).members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert len(first.partitions) == 2
    second.beat()
    assert second.partitions == set(), "m1 has not confirmed yet"
    first.beat()
    second.beat()
    assert len(second.partitions) == 2
    assert not first.partitions & second.partitions
    assert group_of(driver).state == "Stable"


def test_six_members_on_four_partitions() -> None:
    driver = Driver()
    clients = [Client(driver, f"m{n}").join() for n in range(6)]
    settle(*clients)
    assert sorted(len(client.partitions) for client in clients) == [0, 0, 1, 1, 1, 1]
    assert set().union(*(c.partitions for c in clients)) == {("orders", n) for n in range(4)}


def test_a_heartbeat_without_news_writes_nothing() -> None:
    driver = Driver()
    clients = [Client(driver, f"m{n}").join() for n in range(3)]
    settle(*clients)
    size = len(driver.log)
    settle(*clients)
    assert len(driver.log) == size


def test_a_restart_in_the_middle_of_a_rebalance_goes_on_where_it_was() -> None:
    driver = Driver()
    first = Client(driver, "m1").join()
    second = Client(driver, "m2").join()
    first.beat()
    driver.compact()
    driver.restart()
    settle(first, second)
    assert len(first.partitions) == len(second.partitions) == 2


def test_a_silent_member_is_fenced_and_its_partitions_move() -> None:
    driver = Driver()
    first, second = Client(driver, "m1").join(), Client(driver, "m2").join()
    settle(first, second)
    for _ in range(10):
        driver.advance(5_000)
        first.beat()
    assert list(group_of(driver).members) == ["m1"]
    settle(first)
    assert len(first.partitions) == 4
    with pytest.raises(UnknownMemberId):
        second.beat()


def test_a_member_that_keeps_what_it_should_give_up_is_fenced() -> None:
    driver = Driver()
    first = Client(driver, "m1", rebalance_timeout_ms=20_000).join()
    held = first.owned
    second = Client(driver, "m2").join()
    first.beat(owned=held)
    for _ in range(5):
        driver.advance(5_000)
        second.beat()
    assert list(group_of(driver).members) == ["m2"]
    settle(second)
    assert len(second.partitions) == 4


def test_leaving_bumps_the_epoch_and_an_empty_group_remains() -> None:
    driver = Driver()
    first, second = Client(driver, "m1").join(), Client(driver, "m2").join()
    settle(first, second)
    driver.consumer("g", "m2", LEAVE_EPOCH)
    settle(first)
    assert len(first.partitions) == 4
    driver.consumer("g", "m1", LEAVE_EPOCH)
    assert group_of(driver).state == "Empty"
    driver.call("delete_group", "g")
    driver.compact()
    assert driver.log == []


def test_wrong_epochs_are_fenced_but_a_lost_reply_is_not() -> None:
    driver = Driver()
    first = Client(driver, "m1").join()
    Client(driver, "m2").join()
    with pytest.raises(FencedMemberEpoch):
        driver.consumer("g", "m1", 9)
    first.beat()
    old_epoch, kept = first.epoch, first.owned
    first.beat()
    assert first.epoch == old_epoch + 1
    again = driver.consumer("g", "m1", old_epoch, owned=kept)
    assert again.member_epoch == first.epoch
    with pytest.raises(FencedMemberEpoch):
        driver.consumer("g", "m1", old_epoch, owned={next(iter(kept)): frozenset(range(4))})
    with pytest.raises(FencedMemberEpoch):
        driver.consumer("g", "m1", old_epoch)


def test_a_fenced_member_rejoins_with_epoch_0() -> None:
    driver = Driver()
    first = Client(driver, "m1").join()
    again = Client(driver, "m1").join()
    assert again.epoch == first.epoch
    assert again.partitions == first.partitions


def test_changing_the_subscription_takes_effect_on_that_heartbeat() -> None:
    driver = Driver(view=topics(orders=2, payments=2))
    member = Client(driver, "m").join()
    member.beat(topics=("payments",))
    settle(member)
    assert member.partitions == {("payments", 0), ("payments", 1)}


def test_topics_that_come_grow_or_go_rebalance_the_group() -> None:
    driver = Driver(view=topics(orders=1))
    member = Client(driver, "m", topics=("orders", "later")).join()
    assert member.partitions == {("orders", 0)}
    driver.set_topics(driver.topics.with_topic("later", 1).with_topic("orders", 2))
    settle(member)
    assert member.partitions == {("orders", 0), ("orders", 1), ("later", 0)}
    driver.set_topics(driver.topics.without_topic("orders"))
    settle(member)
    assert member.partitions == {("later", 0)}
    driver.set_topics(driver.topics.with_topic("unrelated", 1))
    epoch = member.epoch
    settle(member)
    assert member.epoch == epoch


def test_a_regular_expression_follows_topics() -> None:
    driver = Driver(view=topics(**{"orders-eu": 1, "other": 1}))
    member = Client(driver, "m", regex="orders-.*").join()
    settle(member)
    assert member.partitions == {("orders-eu", 0)}
    driver.set_topics(driver.topics.with_topic("orders-us", 1))
    settle(member)
    assert member.partitions == {("orders-eu", 0), ("orders-us", 0)}
    driver.restart()
    settle(member)
    assert group_of(driver).regexes["orders-.*"].topics == {"orders-eu", "orders-us"}
    member.beat(regex="other")
    settle(member)
    assert member.partitions == {("other", 0)}
    assert list(group_of(driver).regexes) == ["other"]
    driver.consumer("g", "m", LEAVE_EPOCH)
    assert not group_of(driver).regexes


def test_names_and_expression_can_be_combined() -> None:
    driver = Driver(view=topics(**{"a-1": 1, "b": 1, "c": 1}))
    member = Client(driver, "m", regex="a-.*", topics=("b",)).join()
    settle(member)
    assert member.partitions == {("a-1", 0), ("b", 0)}


def test_a_bad_expression_is_refused_and_changes_nothing() -> None:
    driver = Driver()
    with pytest.raises(InvalidRegularExpression, match=r"`\(`.*missing \)"):
        driver.consumer("g", "m", 0, regex="(")
    assert "g" not in driver.shard.groups.by_id
    assert driver.log == []


def test_the_range_assignor_can_be_asked_for() -> None:
    driver = Driver()
    first = Client(driver, "m1", assignor="range").join()
    second = Client(driver, "m2", assignor="range").join()
    settle(first, second)
    assert first.partitions == {("orders", 0), ("orders", 1)}
    assert group_of(driver).preferred_assignor("uniform") == "range"
    with pytest.raises(UnsupportedAssignor, match="range, uniform"):
        driver.consumer("g", "m3", 0, assignor="mine")


def test_a_static_member_that_will_be_back_keeps_its_partitions() -> None:
    driver = Driver()
    old = Client(driver, "m1", instance_id="i").join()
    other = Client(driver, "m2").join()
    settle(old, other)
    mine = old.partitions
    driver.consumer("g", "m1", LEAVE_STATIC_EPOCH, instance_id="i")
    settle(other)
    assert len(other.partitions) == 2
    back = Client(driver, "m1-again", instance_id="i").join()
    settle(back, other)
    assert back.partitions == mine
    assert sorted(group_of(driver).members) == ["m1-again", "m2"]
    with pytest.raises(FencedInstanceId):
        old.beat()


def test_a_static_member_that_does_not_come_back_is_fenced() -> None:
    driver = Driver()
    Client(driver, "m1", instance_id="i").join()
    driver.consumer("g", "m1", LEAVE_STATIC_EPOCH, instance_id="i")
    driver.advance(45_001)
    assert group_of(driver).is_empty
    assert not group_of(driver).static_members


def test_an_instance_id_in_use_is_not_given_away() -> None:
    driver = Driver()
    Client(driver, "m1", instance_id="i").join()
    with pytest.raises(UnreleasedInstanceId, match="m1"):
        driver.consumer("g", "m2", 0, instance_id="i")
    assert Client(driver, "m1", instance_id="i").join().epoch == 1, "its own retry is welcome"
    driver.consumer("g", "m1", LEAVE_EPOCH, instance_id="i")
    assert Client(driver, "m2", instance_id="i").join().partitions


def test_the_group_size_is_limited_but_not_for_those_who_are_in() -> None:
    driver = Driver(GroupSettings(consumer_max_size=1))
    Client(driver, "m1", instance_id="i").join()
    with pytest.raises(GroupMaxSizeReached):
        driver.consumer("g", "m2", 0)
    driver.consumer("g", "m1", LEAVE_STATIC_EPOCH, instance_id="i")
    assert Client(driver, "m1b", instance_id="i").join().partitions


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"member_epoch": -3},
        {"instance_id": ""},
        {"rack_id": " "},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {uuid.UUID(int=1): frozenset({0})}},
        {"topics": None},
        {"member_epoch": LEAVE_STATIC_EPOCH},
    ],
)
def test_malformed_heartbeats_are_refused(fields: dict[str, object]) -> None:
    driver = Driver()
    request: dict[str, object] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1,
        "topics": (),
        "owned": {},
        **fields,
    }
    group, member, epoch = request.pop("group_id"), request.pop("member_id"), request.pop("member_epoch")
    with pytest.raises(InvalidRequest):
        driver.consumer(group, member, epoch, **request)  # type: ignore[arg-type]


def test_version_0_members_may_leave_their_id_to_the_broker() -> None:
    driver = Driver()
    reply = driver.consumer("g", "", 0, requires_member_id=False)
    assert reply.member_id == "id0001"


def test_heartbeats_to_groups_that_are_not_there() -> None:
    driver = Driver()
    with pytest.raises(GroupIdNotFound):
        driver.consumer("g", "m", 3)
    driver.commit("g", 5)
    assert Client(driver, "m").join().epoch == 1
    assert driver.fetch("g") == 5, "offsets stay when the group gets members"


def test_a_member_subscribed_to_nothing_is_a_member() -> None:
    driver = Driver()
    member = Client(driver, "m", topics=()).join()
    assert member.epoch == 1
    assert member.partitions == set()
    member.beat(topics=("orders",))
    settle(member)
    assert len(member.partitions) == 4
