"""Consumers read from replicas that follow, and are sent to the nearest one (KIP-392)."""

from __future__ import annotations

import asyncio

from tests.unit.replication.wired_replicas import Cluster, answer_of, ask, read, row, run

from ottla.handlers.reply import PendingReply
from ottla.wire.errors import ErrorCode

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


async def replicate(cluster: Cluster, times: int = 3) -> None:
    for _ in range(times):
        for follower in 2, 3:
            await cluster.ask(follower)


def test_a_follower_gives_what_it_knows_to_be_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"one", acks=1)
        await replicate(cluster)
        cluster.nodes[1].produce(b"two", acks=1)
        await cluster.ask(2)
        follower = cluster.nodes[2].partition
        assert (follower.high_watermark, follower.log.next_offset) == (1, 2)
        got = read(cluster, 2, 0)
        assert (got.error_code, got.high_watermark) == (ErrorCode.none, 1)
        assert bytes(got.records) == bytes(follower.log.read(0, 1 << 20, upto=1))
        # It has more, of which it does not know yet whether that is committed; the next is out of range.
        assert read(cluster, 2, 1).error_code is ErrorCode.none and not read(cluster, 2, 1).records
        assert read(cluster, 2, 2).error_code is ErrorCode.none
        assert read(cluster, 2, 3).error_code is ErrorCode.offset_out_of_range

    run(scenario)


def test_who_compares_replicas_reads_from_followers_and_old_consumers_do_not() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"one", acks=1)
        await replicate(cluster)
        assert read(cluster, 3, 0, replica_id=-2).records
        assert read(cluster, 3, 0, version=11).records
        assert read(cluster, 3, 0, version=10).error_code is ErrorCode.not_leader_or_follower
        # Nor do those who replicate.
        assert read(cluster, 3, 0, replica_id=2).error_code is ErrorCode.not_leader_or_follower
        assert read(cluster, 3, 0, leader_epoch=4).error_code is ErrorCode.fenced_leader_epoch
        assert read(cluster, 3, 0, leader_epoch=6).error_code is ErrorCode.unknown_leader_epoch

    run(scenario)


def test_a_follower_tells_who_has_read_something_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"one", acks=1)
        await replicate(cluster)
        await cluster.commit(leader=2, leader_epoch=6, partition_epoch=1)
        cluster.nodes[2].produce(b"other", acks=1)
        for _ in range(3):
            await cluster.ask(3)
        got = read(cluster, 3, 2, last_fetched_epoch=5)
        assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == (5, 1)

    run(scenario)


def test_a_consumer_that_waits_at_a_follower_gets_what_becomes_known_as_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        waiting = ask(cluster, 2, 0, max_wait_ms=60_000)
        assert isinstance(waiting, PendingReply)
        cluster.nodes[1].produce(b"one", acks=1)
        await cluster.ask(2)
        await asyncio.sleep(0)
        assert waiting.body is None
        await replicate(cluster)
        assert row(await answer_of(waiting)).records

    run(scenario)


def test_a_consumer_that_waits_at_a_follower_is_told_when_that_follows_another() -> None:
    async def scenario(cluster: Cluster) -> None:
        waiting = ask(cluster, 3, 0, leader_epoch=5, max_wait_ms=60_000)
        await cluster.commit(leader=2, leader_epoch=6, partition_epoch=1)
        assert row(await answer_of(waiting)).error_code is ErrorCode.fenced_leader_epoch

    run(scenario)


def test_followers_are_told_at_once_how_far_it_is_committed_where_consumers_may_read_from_them() -> None:
    async def scenario(cluster: Cluster) -> None:
        await replicate(cluster)
        cluster.nodes[1].produce(b"one", acks=1)
        await cluster.ask(2)
        await cluster.ask(3)
        # Both have it; who asks first cannot know yet that the other has it, too.
        first = asyncio.ensure_future(cluster.ask(2, max_wait_ms=60_000))
        await asyncio.sleep(0)
        await cluster.ask(3, max_wait_ms=60_000)
        await asyncio.wait_for(first, 10)
        assert cluster.nodes[2].partition.high_watermark == 1

    run(scenario, replica_selector_class=RACK_AWARE)


def test_the_leader_sends_consumers_to_the_replica_in_their_rack() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"one", acks=1)
        await replicate(cluster)
        sent = read(cluster, 1, 0, rack="rack-2", max_wait_ms=60_000)
        assert (sent.preferred_read_replica, sent.high_watermark, bytes(sent.records)) == (2, 1, b"")
        assert read(cluster, 1, 0, version=11, rack="rack-3").preferred_read_replica == 3
        for rack in "rack-1", "nowhere", "":
            here = read(cluster, 1, 0, rack=rack)
            assert here.preferred_read_replica == -1 and here.records
        # What it does not have yet, it cannot give.
        cluster.nodes[1].produce(b"two", acks=1)
        await cluster.ask(2)
        await cluster.ask(2)
        assert read(cluster, 1, 2, rack="rack-2").preferred_read_replica == 2
        assert read(cluster, 1, 2, rack="rack-3").preferred_read_replica == -1
        # Nor is one chosen that is not in sync.
        await cluster.commit(isr=(1, 3), partition_epoch=1)
        assert read(cluster, 1, 0, rack="rack-2").preferred_read_replica == -1
        # Who replicates is not sent away.
        assert read(cluster, 1, 1, rack="rack-3", replica_id=3).preferred_read_replica == -1

    run(scenario, replica_selector_class=RACK_AWARE)


def test_without_a_selector_consumers_read_from_the_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"one", acks=1)
        await replicate(cluster)
        assert read(cluster, 1, 0, rack="rack-2").records

    run(scenario)
