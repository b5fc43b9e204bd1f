"""Settings of single consumer groups, and how often partitions are assigned."""

from __future__ import annotations

import pytest
from group_driver import Driver

from ottla.config import BrokerConfig, ConfigError, GroupTimes, group_times, validate_group
from ottla.coordinator.groups.consumer_group import ConsumerGroup
from ottla.coordinator.groups.settings import GroupSettings

INTERVAL_MS = 1_000


def group_of(driver: Driver) -> ConsumerGroup:
    group = driver.shard.groups.by_id["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def test_partitions_are_not_assigned_more_often_than_the_interval() -> None:
    driver = Driver(GroupSettings(consumer_assignment_interval_ms=INTERVAL_MS))
    first = driver.consumer("g", "m1", 0)
    assert first.member_epoch == 1, "there is no assignment that the first could follow too soon"
    driver.advance(INTERVAL_MS - 2)
    second = driver.consumer("g", "m2", 0)
    third = driver.consumer("g", "m3", 0)
    assert (second.member_epoch, third.member_epoch) == (1, 1)
    assert not second.assignment
    assert (group_of(driver).epoch, group_of(driver).assignment_epoch) == (3, 1)
    assert group_of(driver).state == "Assigning"
    driver.advance(2)
    driver.consumer("g", "m1", 1)
    assert group_of(driver).assignment_epoch == 3
    assert set(group_of(driver).target) == {"m1", "m2", "m3"}, "both newcomers are looked at together"


def test_an_interval_of_zero_assigns_at_once() -> None:
    driver = Driver(GroupSettings(consumer_assignment_interval_ms=0))
    driver.consumer("g", "m1", 0)
    driver.consumer("g", "m2", 0)
    assert group_of(driver).assignment_epoch == 2


def test_a_new_heartbeat_interval_is_told_with_the_next_heartbeat() -> None:
    driver = Driver()
    times = driver.settings.consumer_times
    own: dict[str, GroupTimes] = {}
    driver.shard._consumer.times_of = lambda group_id: own.get(group_id, times)
    assert driver.consumer("g", "m", 0).heartbeat_interval_ms == 5_000
    own["g"] = replace_times(times, heartbeat_interval_ms=7_000)
    assert driver.consumer("g", "m", 1).heartbeat_interval_ms == 7_000


def test_a_new_session_time_out_counts_from_the_next_heartbeat() -> None:
    driver = Driver()
    times = driver.settings.consumer_times
    own: dict[str, GroupTimes] = {}
    driver.shard._consumer.times_of = lambda group_id: own.get(group_id, times)
    driver.consumer("g", "m", 0)
    own["g"] = replace_times(times, session_timeout_ms=50_000)
    driver.consumer("g", "m", 1)
    driver.advance(times.session_timeout_ms + 1)
    assert "m" in group_of(driver).members
    driver.advance(50_000)
    assert "m" not in group_of(driver).members


def replace_times(times: GroupTimes, **values: int) -> GroupTimes:
    return times._replace(**values)


def test_values_outside_of_the_bounds() -> None:
    broker = BrokerConfig.from_properties({})
    times = group_times(broker, {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "x"})
    assert times == GroupTimes(45_000, 5_000, 1_000), "what is stored is brought inside, or left alone"
    for name, value, told in (
        ("consumer.session.timeout.ms", "1", "in the range 45000 to 60000"),
        ("consumer.heartbeat.interval.ms", "16000", "in the range 5000 to 15000"),
        ("consumer.assignment.interval.ms", "15001", "in the range 0 to 15000"),
        ("consumer.assignment.interval.ms", "often", "must be a whole number"),
        ("consumer.sesion.timeout.ms", "50000", "did you mean consumer.session.timeout.ms"),
    ):
        with pytest.raises(ConfigError, match=told):
            validate_group(broker, {name: value}, {name})


def test_a_session_must_outlast_a_heartbeat() -> None:
    low = {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
    }
    broker = BrokerConfig.from_properties(low)
    wanted = {"consumer.session.timeout.ms": "5000"}
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        validate_group(broker, wanted, wanted)
    wanted["consumer.heartbeat.interval.ms"] = "2000"
    validate_group(broker, wanted, wanted)
