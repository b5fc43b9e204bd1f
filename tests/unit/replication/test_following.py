"""A leader and its followers over the real bytes of Fetch: what is acknowledged, copied and cut off."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import pytest
from immutables import Map

from ottla.client import replica_fetch
from ottla.client.replica_fetch import ReplicaFetched
from ottla.config import BrokerConfig, LogConfig
from ottla.handlers.context import Broker
from ottla.handlers.fetch import fetch
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.log.manager import LogManager
from ottla.metadata.change import between
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.records.records import Record, encode_batch
from ottla.replication.appends import Appends, PendingAppend
from ottla.replication.cold_reads import ColdReads
from ottla.replication.fetcher import _Fetcher
from ottla.replication.fetching import FetchSession, Followed
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.replication.sessions import FetchSessions
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import TaskScope
from ottla.sim.disk import SimDisk
from ottla.wire.errors import ErrorCode
from ottla.wire.produce import TopicData

P = ParamSpec("P")
T = TypeVar("T")
TOPIC_ID = UUID(int=7)
SESSION = Session("PLAINTEXT", "127.0.0.1", 40_000)
VERSION = 17


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


class SteadyClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return 1_750_000_000_000

    def monotonic(self) -> float:
        return self.seconds


class Node:
    def __init__(self, node_id: int, clock: SteadyClock) -> None:
        self.id = node_id
        self.disk = SimDisk()
        runtime = Runtime(clock, self.disk, AsyncioNetwork(), random.Random(node_id), InlineOffload())
        config = BrokerConfig.from_properties(
            {"node.id": str(node_id), "log.dirs": "/disk", "metadata.log.dir": "/metadata"}
        )
        self.logs = LogManager(runtime, config, ("/disk",))
        self.logs.lock()
        self.logs.open(lambda name: LogConfig())
        self.replicas = ReplicaManager(node_id, config, self.logs, runtime.offload)
        self.failures: list[BaseException] = []
        tasks = TaskScope("test", lambda _, error: self.failures.append(error))
        nothing: Any = None
        self.appends = Appends(runtime, config, self.replicas, nothing, tasks)
        parts: dict[str, Any] = dict.fromkeys(Broker.__dataclass_fields__)
        parts |= {
            "runtime": runtime,
            "config": config,
            "node_id": node_id,
            "replicas": self.replicas,
            "appends": self.appends,
            "fetch_sessions": FetchSessions(clock, runtime.random, 10),
            "cold_reads": ColdReads(runtime, tasks),
            "tasks": tasks,
        }
        self.broker = Broker(**parts)
        self.session = FetchSession()
        self.image = MetadataImage()

    async def commit(self, image: MetadataImage) -> None:
        before, self.image = self.image, image
        self.replicas.apply(between(before, image))
        await self.replicas.catch_up()

    @property
    def partition(self) -> Partition:
        return self.replicas.partition("a", 0)

    @property
    def data(self) -> bytes:
        log = self.partition.log
        return bytes(log.read(log.start_offset, 1 << 30, upto=log.next_offset))

    def produce(self, value: bytes, acks: int = -1, timeout_ms: int = 1000) -> Any:
        records = memoryview(encode_batch([Record(b"k", value, 1_750_000_000_000)]))
        return self.appends.append(12, acks, timeout_ms, [TopicData(b"a", [(0, records)])], False)


class Cluster:
    """Topic a has one partition, of brokers 1, 2 and 3; 1 leads in epoch 5, and all are in sync."""

    def __init__(self) -> None:
        self.clock = SteadyClock()
        self.nodes = {node_id: Node(node_id, self.clock) for node_id in (1, 2, 3)}
        self.state = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 0, (UUID(int=99),) * 3)

    async def commit(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        topic = TopicImage("a", TOPIC_ID, (self.state,))
        brokers = {
            node_id: BrokerImage(node_id, 100 + node_id, UUID(int=node_id), (), (), None, False, False, ())
            for node_id in self.nodes
        }
        image = MetadataImage(topics=Map({"a": topic}), topic_names=Map({TOPIC_ID: "a"}), brokers=brokers)
        for node in self.nodes.values():
            await node.commit(image)

    async def ask(self, follower: int, fetcher: _Fetcher | None = None) -> list[ReplicaFetched]:
        """One fetch of a follower, over the wire format, from whoever leads."""
        node, leader = self.nodes[follower], self.nodes[self.state.leader]
        key = (TOPIC_ID, 0)
        followed = node.session._followed.get(key)
        if followed is None or not followed.is_current:
            node.session.reset()
            node.session.add(Followed(node.partition))
        request = node.session.next_request(self.clock.seconds)
        assert request is not None
        body = replica_fetch.encode(
            request.positions,
            request.forgotten,
            replica_id=follower,
            broker_epoch=100 + follower,
            session=request.session,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 20,
            partition_max_bytes=1 << 20,
        )
        reply = fetch(leader.broker, SESSION, VERSION, memoryview(bytearray(body)), 0)
        assert not isinstance(reply, PendingReply)
        error, session_id, rows = replica_fetch.decode(memoryview(b"".join(bytes(part) for part in reply)))
        taken = []
        for followed, row in node.session.take(error, session_id, rows):
            taken.append(row)
            if fetcher is not None:
                nobody: Any = None
                await fetcher._apply(nobody, followed, row)
            elif row.diverging is not None:
                offset = node.partition.log.truncation_offset(*row.diverging)
                await node.logs.truncate(node.partition.topic_partition, offset)
                node.partition.truncated()
            elif not row.error_code:
                node.partition.append_as_follower(row.records, row.high_watermark, row.log_start_offset)
            node.session.done(followed)
        return taken


def run(scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = Cluster()
        await cluster.commit()
        await scenario(cluster)
        for node in cluster.nodes.values():
            assert node.failures == []

    asyncio.run(main())


def code_of(results: Any) -> ErrorCode:
    return ErrorCode(results[0][1][0].error_code)


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
