"""Three brokers without a network between them: what they ask each other is the real bytes of Fetch."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from immutables import Map
from kio.index import load_entity_module, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.client import replica_fetch
from ottla.client.replica_fetch import ReplicaFetched
from ottla.config import BrokerConfig, LogConfig
from ottla.handlers.context import Broker
from ottla.handlers.fetch import fetch
from ottla.handlers.figures import RequestFigures
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.log.manager import LogManager
from ottla.metadata.change import between
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.metadata.records import Endpoint
from ottla.records.records import Record, encode_batch
from ottla.replication.appends import Appends
from ottla.replication.cold_reads import ColdReads
from ottla.replication.fetcher import _Fetcher
from ottla.replication.fetching import FetchSession, Followed
from ottla.replication.manager import ReplicaManager
from ottla.replication.nearest import replica_selector
from ottla.replication.partition import Partition
from ottla.replication.sessions import FetchSessions
from ottla.runtime import Runtime
from ottla.runtime.disk import ReadableBuffer
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
FETCH = 1


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


async def answer_of(reply: PendingReply) -> list[ReadableBuffer]:
    """Once it is there."""
    if reply.body is None:
        done = asyncio.Event()
        reply.bind(0, True, lambda _: done.set())
        await asyncio.wait_for(done.wait(), 10)
    assert reply.body is not None
    return reply.body


class Node:
    def __init__(self, node_id: int, clock: SteadyClock, settings: Mapping[str, str]) -> None:
        self.id = node_id
        self.disk = SimDisk()
        runtime = Runtime(clock, self.disk, AsyncioNetwork(), random.Random(node_id), InlineOffload())
        config = BrokerConfig.from_properties(
            {"node.id": str(node_id), "log.dirs": "/disk", "metadata.log.dir": "/metadata", **settings}
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
            "nearest_replicas": replica_selector(config, self.replicas.in_sync),
            "figures": RequestFigures(),
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
    """Topic a has one partition, of brokers 1, 2 and 3; 1 leads in epoch 5, and all are in sync.

    Each is in a rack of its own: rack-1, rack-2 and rack-3.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.clock = SteadyClock()
        self.nodes = {node_id: Node(node_id, self.clock, settings or {}) for node_id in (1, 2, 3)}
        self.state = PartitionImage((1, 2, 3), (1, 2, 3), 1, 5, 0, (UUID(int=99),) * 3)
        self.topic_settings: dict[str, str] = {}

    async def commit(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        topic = TopicImage("a", TOPIC_ID, (self.state,))
        brokers = {
            node_id: BrokerImage(
                node_id,
                100 + node_id,
                UUID(int=node_id),
                (Endpoint(name="PLAINTEXT", host="127.0.0.1", port=9092 + node_id, security_protocol=0),),
                (),
                f"rack-{node_id}",
                False,
                False,
                (),
            )
            for node_id in self.nodes
        }
        image = MetadataImage(
            topics=Map({"a": topic}),
            topic_names=Map({TOPIC_ID: "a"}),
            brokers=brokers,
            configs=Map({(ResourceType.TOPIC, "a"): Map(self.topic_settings)}),
        )
        for node in self.nodes.values():
            await node.commit(image)

    async def ask(
        self, follower: int, fetcher: _Fetcher | None = None, max_wait_ms: int = 0, bytes_max: int = 1 << 20
    ) -> list[ReplicaFetched]:
        """One fetch of a follower, over the wire format, from whoever leads."""
        node, leader = self.nodes[follower], self.nodes[self.state.leader]
        key = (TOPIC_ID, 0)
        followed = node.session._followed.get(key)
        if followed is None or not followed.is_current:
            node.session.reset()
            node.session.add(Followed(node.partition))
        request = node.session.next_request(self.clock.seconds, node.replicas.throttles.holds_back)
        if request is None:
            return []
        body = replica_fetch.encode(
            request.positions,
            request.forgotten,
            replica_id=follower,
            broker_epoch=100 + follower,
            session=request.session,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            partition_max_bytes=bytes_max,
        )
        reply = fetch(leader.broker, SESSION, VERSION, memoryview(bytearray(body)), 0)
        if isinstance(reply, PendingReply):
            assert max_wait_ms > 0
            reply = await answer_of(reply)
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
                followed.is_behind = node.partition.log.next_offset < row.high_watermark
                node.replicas.throttles.fetched(node.partition, len(row.records))
            node.session.done(followed)
        return taken


def run(scenario: Callable[[Cluster], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        cluster = Cluster({name.replace("_", "."): value for name, value in settings.items()})
        await cluster.commit()
        await scenario(cluster)
        for node in cluster.nodes.values():
            assert node.failures == []

    asyncio.run(main())


def ask(cluster: Cluster, broker: int, offset: int, version: int = 12, **options: Any) -> Any:
    """A consumer's fetch: the answer, or a reply that waits."""
    module = load_entity_module("fetch", version, EntityType.request)
    partition = module.FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1 << 20,
        current_leader_epoch=options.get("leader_epoch", -1),
        **({"last_fetched_epoch": options.get("last_fetched_epoch", -1)} if version >= 12 else {}),
    )
    request = module.FetchRequest(
        replica_id=options.get("replica_id", -1),
        max_wait=timedelta(milliseconds=options.get("max_wait_ms", 0)),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(module.FetchTopic(topic="a", partitions=(partition,)),),
        forgotten_topics_data=(),
        **({"rack_id": options.get("rack", "")} if version >= 11 else {}),
    )
    buffer = io.BytesIO()
    entity_writer(type(request))(buffer, request)
    return fetch(cluster.nodes[broker].broker, SESSION, version, memoryview(bytearray(buffer.getvalue())), 0)


def row(reply: Any, version: int = 12) -> Any:
    assert not isinstance(reply, PendingReply)
    body = b"".join(bytes(part) for part in reply)
    answer, _ = entity_reader(load_response_schema(FETCH, version))(body, 0)
    return answer.responses[0].partitions[0]


def read(cluster: Cluster, broker: int, offset: int, version: int = 12, **options: Any) -> Any:
    return row(ask(cluster, broker, offset, version, **options), version)


def code_of(results: Any) -> ErrorCode:
    return ErrorCode(results[0][1][0].error_code)
