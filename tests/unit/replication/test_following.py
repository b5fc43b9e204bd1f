"""A leader and its followers over the real bytes of Fetch: what is acknowledged, copied and cut off."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.replication.wired_replicas import TOPIC_ID, Cluster, Node, code_of, run

from ottla.client.replica_fetch import ReplicaFetched
from ottla.records.records import Record, encode_batch
from ottla.replication.appends import PendingAppend
from ottla.replication.fetcher import _Fetcher
from ottla.replication.fetching import FetchSession, Followed
from ottla.wire.errors import ErrorCode


def test_acks_all_waits_until_everybody_in_sync_has_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.nodes[1]
        assert isinstance(leader.produce(b"one", acks=1), list)
        pending = leader.produce(b"two")
        assert isinstance(pending, PendingAppend)
        done: list[Exception | None] = []
        pending.when_done(done.append)
        await cluster.ask(2)
        await cluster.ask(3)
        assert leader.partition.high_watermark == 0
        await cluster.ask(2)
        assert done == []
        await cluster.ask(3)
        assert done == [None] and code_of(pending.results) is ErrorCode.none
        assert leader.partition.high_watermark == 2
        await cluster.ask(2)
        await cluster.ask(3)
        for node_id in (2, 3):
            follower = cluster.nodes[node_id]
            assert follower.data == leader.data
            assert follower.partition.high_watermark == 2

    run(scenario)


def test_a_producer_is_told_when_its_time_is_up_and_when_leadership_moves() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.nodes[1]
        late, lost = leader.produce(b"late", timeout_ms=1), leader.produce(b"lost")
        done = asyncio.Event()
        late.when_done(lambda error: done.set())
        await asyncio.wait_for(done.wait(), 5)
        assert code_of(late.results) is ErrorCode.request_timed_out
        assert len(leader.partition.leadership.commits) == 1  # type: ignore[union-attr]
        await cluster.commit(leader=2, leader_epoch=6, partition_epoch=1)
        assert code_of(lost.results) is ErrorCode.not_leader_or_follower
        assert code_of(leader.produce(b"more")) is ErrorCode.not_leader_or_follower

    run(scenario)


def test_consumers_see_what_is_committed_and_followers_all_there_is() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.nodes[1]
        leader.produce(b"one", acks=1)
        (row,) = await cluster.ask(2)
        assert len(row.records) > 0 and row.high_watermark == 0
        assert leader.partition.last_stable_offset == 0

    run(scenario)


def test_what_a_leader_wrote_alone_is_cut_off_and_replaced() -> None:
    async def scenario(cluster: Cluster) -> None:
        old, new = cluster.nodes[1], cluster.nodes[2]
        old.produce(b"shared", acks=1)
        for _ in range(2):
            await cluster.ask(2)
            await cluster.ask(3)
        old.produce(b"alone", acks=1)
        await cluster.commit(leader=2, leader_epoch=6, partition_epoch=1, isr=(2, 3))
        new.produce(b"other", acks=1)
        new.produce(b"another", acks=1)
        (row,) = await cluster.ask(1)
        assert row.diverging == (5, 1)
        assert old.partition.log.next_offset == 1
        for node_id in (1, 3, 3, 1):
            await cluster.ask(node_id)
        assert cluster.nodes[1].data == cluster.nodes[3].data == new.data
        assert new.partition.high_watermark == 3

    run(scenario)


def test_a_new_leader_that_has_written_nothing_cuts_off_what_came_between() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].produce(b"shared", acks=1)
        for _ in range(2):
            await cluster.ask(2)
            await cluster.ask(3)
        await cluster.commit(leader=3, leader_epoch=6, partition_epoch=1)
        cluster.nodes[3].produce(b"alone", acks=1)
        await cluster.commit(leader=2, leader_epoch=7, partition_epoch=2)
        (row,) = await cluster.ask(3)
        assert row.diverging is not None
        assert cluster.nodes[3].partition.log.next_offset == 1
        assert await cluster.ask(3) == [], "the same, and nothing new"

    run(scenario)


def test_too_few_in_sync_refuse_acks_all_and_commit_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.nodes[1]
        log = leader.partition.log
        log.update_config(replace(log.config, min_insync_replicas=2))
        await cluster.commit(isr=(1,), partition_epoch=1)
        assert code_of(leader.produce(b"no")) is ErrorCode.not_enough_replicas
        assert code_of(leader.produce(b"yes", acks=1)) is ErrorCode.none
        assert leader.partition.high_watermark == 0
        await cluster.commit(isr=(1, 2), partition_epoch=2)
        await cluster.ask(2)
        await cluster.ask(2)
        assert leader.partition.high_watermark == 1

    run(scenario)


def test_who_catches_up_is_proposed_and_who_falls_behind_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = cluster.nodes[1]
        proposed = leader.replicas.in_sync._proposals
        await cluster.commit(isr=(1, 2), partition_epoch=1)
        await cluster.ask(2)
        await cluster.ask(3)
        (proposal,) = proposed
        assert [member for member, _ in proposal.isr] == [1, 2, 3]
        proposed.clear()
        await cluster.commit(isr=(1, 2, 3), partition_epoch=2)
        leader.produce(b"more", acks=1)
        cluster.clock.seconds += 20
        await cluster.ask(2)
        await cluster.ask(2)
        cluster.clock.seconds += 20
        leader.partition.shrink_isr()
        (proposal,) = proposed
        assert [member for member, _ in proposal.isr] == [1, 2]

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"leader_epoch": 6, "partition_epoch": 1, "leader": 3}, ErrorCode.fenced_leader_epoch),
        ({"replicas": (1, 3), "isr": (1, 3), "partition_epoch": 1}, ErrorCode.unknown_leader_epoch),
    ],
)
def test_followers_of_another_time_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.ask(2)
        # The leader hears of it before the follower does.
        follower = cluster.nodes.pop(2)
        await cluster.commit(**changes)
        cluster.nodes[2] = follower
        cluster.state = replace(cluster.state, leader=1)
        follower.session.reset()
        (row,) = await cluster.ask(2)
        assert row.error_code == error

    run(scenario)


def fetcher_of(node: Node, leader: int) -> _Fetcher:
    fetchers: Any = SimpleNamespace(
        runtime=node.broker.runtime,
        config=node.broker.config,
        logs=node.logs,
        throttles=node.replicas.throttles,
        in_sync=SimpleNamespace(node_id=node.id),
    )
    return _Fetcher(fetchers, leader)


async def catch_up(cluster: Cluster, follower: int) -> None:
    node = cluster.nodes[follower]
    fetcher = fetcher_of(node, cluster.state.leader)
    for _ in range(10):
        await cluster.ask(follower, fetcher)
        if node.partition.log.next_offset == cluster.nodes[cluster.state.leader].partition.log.next_offset:
            return
    raise AssertionError("it never gets there")


def three(value: bytes, **options: Any) -> memoryview:
    return memoryview(encode_batch([Record(b"k", value, 1_750_000_000_000)] * 3, **options))


def test_a_follower_that_begins_within_a_batch_takes_it_whole() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        await cluster.commit()
        leader, follower = cluster.nodes[1], cluster.nodes[2]
        for value in (b"a", b"b", b"c"):
            leader.partition.log.append(three(value), leader_epoch=5)
        leader.partition.log.delete_records_before(4)
        await follower.logs.truncate_fully_and_start_at(follower.partition.topic_partition, 4)
        await catch_up(cluster, 2)
        assert follower.data == leader.data
        assert (follower.partition.log.start_offset, follower.partition.log.next_offset) == (4, 9)

    asyncio.run(scenario())


def test_what_claims_to_be_of_a_later_leader_is_sent_again() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        await cluster.commit()
        leader, follower = cluster.nodes[1], cluster.nodes[2]
        leader.partition.log.append(three(b"a"), leader_epoch=5)
        await catch_up(cluster, 2)
        leader.partition.log.append(three(b"b"), leader_epoch=5)
        # As a power cut may leave it: no CRC covers the epoch.
        follower.partition.log.append_as_follower(three(b"b", base_offset=3, leader_epoch=181))
        leader.partition.log.append(three(b"c"), leader_epoch=5)
        await catch_up(cluster, 2)
        assert follower.data == leader.data
        assert follower.partition.log.epochs.entries == [(5, 0)]

    asyncio.run(scenario())


def test_an_answer_to_the_question_of_an_earlier_epoch_does_not_hold_back_the_next_one() -> None:
    async def scenario(cluster: Cluster) -> None:
        node = cluster.nodes[2]
        session = FetchSession()
        session.add(Followed(node.partition))
        assert session.next_request(0.0) is not None
        # Led anew, by the same broker, while the question of the epoch before is under way.
        await cluster.commit(leader_epoch=6, partition_epoch=1)
        followed = Followed(node.partition)
        session.add(followed)
        fenced = ReplicaFetched(
            TOPIC_ID, 0, ErrorCode.fenced_leader_epoch.value, -1, -1, None, memoryview(b"")
        )
        for taken, _ in session.take(0, 1, [fenced]):
            session.back_off(taken, 1.0)
        request = session.next_request(0.0)
        assert request is not None
        assert [position.leader_epoch for position in request.positions.values()] == [6]

    run(scenario)
