"""Replicas that are behind are held back to a rate; those in sync never are."""

from __future__ import annotations

import pytest
from tests.unit.replication.wired_replicas import Cluster, SteadyClock, answer_of, ask, read, row, run

from ottla.log.throttle import Throttle

RATE = "1000"
SENDING = {"leader_replication_throttled_rate": RATE}
FETCHING = {"follower_replication_throttled_rate": RATE}
BYTES = 3000


def test_a_rate_is_an_average_over_the_last_windows() -> None:
    clock = SteadyClock()
    throttle = Throttle(clock)
    throttle.configure(100, windows_max=3, window_seconds=1)
    assert not throttle.is_exceeded
    throttle.count(100)
    assert not throttle.is_exceeded
    throttle.count(50)
    assert throttle.is_exceeded
    clock.seconds = 1.5
    assert not throttle.is_exceeded
    throttle.count(100)
    assert throttle.is_exceeded
    # What is older than all the windows does not count any more.
    clock.seconds = 4.6
    assert not throttle.is_exceeded
    throttle.configure(0, windows_max=3, window_seconds=1)
    throttle.count(1)
    assert throttle.is_exceeded
    throttle.configure(1000, windows_max=3, window_seconds=1)
    assert not throttle.is_exceeded


@pytest.mark.parametrize(
    ("settings", "topic_setting", "replicas"),
    [
        (SENDING, "leader.replication.throttled.replicas", "0:1"),
        (SENDING, "leader.replication.throttled.replicas", "*"),
        (FETCHING, "follower.replication.throttled.replicas", "0:3"),
        (FETCHING, "follower.replication.throttled.replicas", "*"),
    ],
)
def test_who_is_behind_is_held_back(settings: dict[str, str], topic_setting: str, replicas: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.topic_settings = {topic_setting: replicas}
        await cluster.commit(isr=(1, 2), partition_epoch=1)
        for _ in range(3):
            cluster.nodes[1].produce(b"x" * BYTES, acks=1)
        late = cluster.nodes[3].partition.log
        for _ in range(2):
            await cluster.ask(2)
        assert cluster.nodes[1].partition.high_watermark == 3
        for _ in range(3):
            await cluster.ask(3, bytes_max=BYTES)
        # What those in sync were sent counts as well, at the leader; at a follower what it got itself.
        assert late.next_offset == (0 if settings is SENDING else 1)
        # In sync, it is as fast as it can be.
        cluster.nodes[1].produce(b"x" * BYTES, acks=1)
        await cluster.ask(2)
        assert cluster.nodes[2].partition.log.next_offset == 4
        cluster.clock.seconds = 5.0
        await cluster.ask(3, bytes_max=BYTES)
        assert late.next_offset == (0 if settings is SENDING else 2)
        cluster.clock.seconds = 25.0
        await cluster.ask(3, bytes_max=BYTES)
        assert late.next_offset == (1 if settings is SENDING else 3)

    run(scenario, **settings)


@pytest.mark.parametrize("lifted_by", ["topic", "rate"])
def test_a_throttle_is_lifted(lifted_by: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.topic_settings = {"leader.replication.throttled.replicas": "*"}
        await cluster.commit(isr=(1, 2), partition_epoch=1)
        for _ in range(2):
            cluster.nodes[1].produce(b"x" * BYTES, acks=1)
            await cluster.ask(3)
        late, leader = cluster.nodes[3].partition.log, cluster.nodes[1]
        assert late.next_offset == 1
        if lifted_by == "topic":
            cluster.topic_settings = {}
            await cluster.commit(partition_epoch=2)
        else:
            leader.replicas.update_config(
                leader.broker.config.with_dynamic({}, {"leader.replication.throttled.rate": "1000000"}),
                leader.image,
            )
        await cluster.ask(3)
        assert late.next_offset == 2

    run(scenario, **SENDING)


def test_replicas_that_are_not_named_are_not_held_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.topic_settings = {
            "leader.replication.throttled.replicas": "0:2,1:1",
            "follower.replication.throttled.replicas": "0:2,1:3",
        }
        await cluster.commit(isr=(1, 2), partition_epoch=1)
        for _ in range(3):
            cluster.nodes[1].produce(b"x" * BYTES, acks=1)
            await cluster.ask(3)
        assert cluster.nodes[3].partition.log.next_offset == 3

    run(scenario, **SENDING, **FETCHING)


def test_what_a_follower_without_a_session_waited_for_counts_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.topic_settings = {"leader.replication.throttled.replicas": "*"}
        await cluster.commit(isr=(1, 2), partition_epoch=1)
        waiting = ask(cluster, 1, 0, replica_id=3, max_wait_ms=60_000)
        cluster.nodes[1].produce(b"x" * BYTES, acks=1)
        assert row(await answer_of(waiting)).records
        cluster.nodes[1].produce(b"x" * BYTES, acks=1)
        assert not read(cluster, 1, 1, replica_id=3).records

    run(scenario, **SENDING)
