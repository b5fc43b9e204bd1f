"""What topics cost groups that subscribe to expressions: as much as changed, and never a long turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from group_driver import Driver, FakeTopic, FakeTopics, topics

from ottla.coordinator.groups import consumer_rebalance
from ottla.coordinator.groups.consumer_group import ConsumerGroup
from ottla.coordinator.groups.matching import NAMES_PER_TURN, Matching
from ottla.runtime.clock import SystemClock
from ottla.runtime.regex import compile_regex


class CountingRegex:
    def __init__(self, pattern: str, matched: list[str]) -> None:
        self._regex = compile_regex(pattern)
        self._matched = matched

    def matches(self, name: str) -> bool:
        self._matched.append(name)
        return self._regex.matches(name)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name that an expression was tried on inside a command."""
    names: list[str] = []
    monkeypatch.setattr(consumer_rebalance, "compile_regex", lambda pattern: CountingRegex(pattern, names))
    return names


def many_topics(count: int) -> FakeTopics:
    view = topics(orders=1)
    (template,) = view.topics.values()
    found = {f"orders-{i}": FakeTopic(f"orders-{i}", template.id, (0,)) for i in range(count)}
    return FakeTopics(1, {"orders": template, **found})


def group_of(driver: Driver) -> ConsumerGroup:
    group = driver.shard.groups.get("g")
    assert isinstance(group, ConsumerGroup)
    return group


@pytest.mark.parametrize("count", [10, 10_000])
def test_a_changed_topic_costs_the_same_however_many_there_are(
    count: int, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(view=many_topics(count))
    # Members of other kinds are about other topics: only what expressions are tried on is counted.
    epoch = driver.consumer("g", "m", 0, regex="other|payments-.*").member_epoch
    assert len(looked_at) == count + 1
    looked_at.clear()
    listed: list[str] = []
    everything = ConsumerGroup.subscribed_topics

    def subscribed_topics(group: ConsumerGroup) -> set[str]:
        listed.append(group.group_id)
        return everything(group)

    monkeypatch.setattr(ConsumerGroup, "subscribed_topics", subscribed_topics)
    driver.set_topics(driver.topics.with_topic("unrelated", 1))
    assert driver.consumer("g", "m", epoch).member_epoch == epoch
    assert looked_at == ["unrelated"]
    assert listed == []
    looked_at.clear()
    driver.set_topics(driver.topics.with_topic("payments-eu", 2))
    assert driver.consumer("g", "m", epoch).member_epoch == epoch + 1
    assert looked_at == ["payments-eu"]
    assert group_of(driver).regexes["other|payments-.*"].topics == {"payments-eu"}
    looked_at.clear()
    driver.set_topics(driver.topics.without_topic("payments-eu"))
    driver.consumer("g", "m", epoch + 1)
    assert looked_at == []
    assert group_of(driver).regexes["other|payments-.*"].topics == frozenset()


def test_a_silent_group_does_not_remember_every_topic(looked_at: list[str]) -> None:
    driver = Driver(view=many_topics(2))
    epoch = driver.consumer("g", "m", 0, regex="orders-.*").member_epoch
    looked_at.clear()
    driver.set_topics(many_topics(1_500))
    assert group_of(driver).unchecked_topics is None
    driver.consumer("g", "m", epoch)
    assert len(looked_at) == 1_501
    assert len(group_of(driver).regexes["orders-.*"].topics) == 1_500


def test_what_was_matched_before_the_command_is_not_matched_in_it(looked_at: list[str]) -> None:
    driver = Driver(view=many_topics(100))
    assert driver.shard.expressions_to_match("g", "orders-1.*", 0) == ["orders-1.*"]
    matched = {"orders-1.*": frozenset({"orders-1"})}
    shard = driver.shard
    real: Callable[..., object] = shard.consumer_heartbeat
    shard.consumer_heartbeat = lambda *args: real(*args, matched)  # type: ignore[method-assign, assignment]
    driver.consumer("g", "m", 0, regex="orders-1.*")
    assert looked_at == []
    assert group_of(driver).regexes["orders-1.*"].topics == {"orders-1"}
    assert shard.expressions_to_match("g", "orders-1.*", 0) == []
    assert shard.expressions_to_match("g", None, 0) == []
    driver.restart()
    assert driver.shard.expressions_to_match("g", None, 0) == ["orders-1.*"]


def test_matching_takes_turns_and_is_right_when_it_ends() -> None:
    view = many_topics(20 * NAMES_PER_TURN)
    current = view.topics
    turns = 0

    async def match() -> None:
        nonlocal turns, current
        matching = Matching(SystemClock(), lambda: current)
        found = asyncio.ensure_future(matching.run(["orders-.*", "(", "new"]))
        others = asyncio.ensure_future(matching.run(["orders"]))
        while not found.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 3:
                grown = view.with_topic("orders-new", 1).with_topic("new", 1)
                current = grown.without_topic("orders-7").topics
        names = current.keys() - {"orders", "new"}
        assert await found == {"orders-.*": names, "new": {"new"}}
        assert await others == {"orders": {"orders"}}

    asyncio.run(match())
    assert turns >= 20
