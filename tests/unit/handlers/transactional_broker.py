"""Partitions with real logs on a disk in memory, a coordinator that answers as told, and requests."""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.index import load_entity_module, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.config import BrokerConfig, LogConfig
from ottla.handlers.context import Broker
from ottla.handlers.fetch import fetch
from ottla.handlers.produce import produce
from ottla.handlers.reply import PendingReply
from ottla.handlers.session import Session
from ottla.log.recovery import open_log
from ottla.log.types import TopicPartition
from ottla.records.records import Record, encode_batch
from ottla.replication.appends import Appends
from ottla.replication.cold_reads import ColdReads
from ottla.replication.manager import HostedTopic
from ottla.replication.partition import Partition
from ottla.replication.preparation import Preparations
from ottla.replication.sessions import FetchSessions
from ottla.replication.turns import ProducerTurns
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import TaskScope, ThreadOffload
from ottla.sim.disk import SimDisk
from ottla.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition

NOW_MS = 1_750_000_000_000
PRODUCER_ID = 7
TOPIC_ID = UUID(int=1)
SESSION = Session("PLAINTEXT", "127.0.0.1", 40_000)


class StandingClock:
    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Replicas:
    def __init__(self, runtime: Runtime, topics: Collection[str]) -> None:
        self._runtime = runtime
        self.turns = ProducerTurns()
        self.preparations = Preparations()
        self.by_name: dict[bytes, HostedTopic] = {}
        self.by_id: dict[bytes, HostedTopic] = {}
        for number, topic in enumerate(topics):
            topic_id = UUID(int=number + 1)
            hosted = HostedTopic(topic_id)
            for index in range(2):
                name = TopicPartition(topic, index)
                log = open_log(runtime, f"/data/{name}", name, LogConfig(), clean=True, topic_id=topic_id)
                hosted[index] = Partition(log, topic_id, 1, (1,))
            self.by_name[topic.encode()] = self.by_id[topic_id.bytes] = hosted

    def recreate(self, topic: str) -> None:
        """Another topic takes the name, in one commit: what was there is gone, what is there is empty."""
        gone = self.by_name[topic.encode()]
        topic_id = UUID(int=100 + len(self.by_id))
        del self.by_id[gone[0].topic_id.bytes]
        hosted = HostedTopic(topic_id)
        for index, partition in gone.items():
            partition.go_offline()
            name = TopicPartition(topic, index)
            directory = f"/data/{topic_id}-{index}"
            log = open_log(self._runtime, directory, name, LogConfig(), clean=True, topic_id=topic_id)
            hosted[index] = Partition(log, topic_id, 1, (1,))
        self.by_name[topic.encode()] = self.by_id[topic_id.bytes] = hosted

    def partition(self, topic: str, index: int) -> Partition:
        found = self.by_name[topic.encode()].get(index) if topic.encode() in self.by_name else None
        if found is None:
            raise UnknownTopicOrPartition(f"{topic}-{index} is not here")
        return found

    def leading(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        return self.partition(topic, index)


class FakeCoordinator:
    """Answers each question with the next of `answers`, and agrees once these are used up."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, list[TopicPartition], bool]] = []
        self.answers: list[ErrorCode | KafkaError] = []
        self.gate: asyncio.Event | None = None

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer_id, producer_epoch, list(partitions), add))
        answer = self.answers.pop(0) if self.answers else ErrorCode.none
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(answer, KafkaError):
            raise answer
        return dict.fromkeys(partitions, answer)


class FakeGroups:
    def __init__(self) -> None:
        self.completed: list[tuple[int, int, int, int, bool]] = []
        self.error: KafkaError | None = None

    async def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int,
    ) -> None:
        if self.error is not None:
            raise self.error
        self.completed.append((partition, producer_id, producer_epoch, coordinator_epoch, committed))


class TransactionalBroker:
    def __init__(self, **properties: str) -> None:
        config = {key.replace("_", "."): value for key, value in properties.items()}
        self.disk = SimDisk()
        runtime = Runtime(StandingClock(), self.disk, AsyncioNetwork(), random.Random(3), ThreadOffload())
        self.coordinator: Any = FakeCoordinator()
        self.groups: Any = FakeGroups()
        self.replicas: Any = Replicas(runtime, ["a", "__consumer_offsets"])
        self.failures: list[BaseException] = []
        nothing: Any = None
        tasks = TaskScope("test", lambda _, error: self.failures.append(error))
        broker_config = BrokerConfig.from_properties({"node.id": "1", **config})
        self.broker = Broker(
            runtime=runtime,
            config=broker_config,
            node_id=1,
            cluster_id="c",
            replicas=self.replicas,
            appends=Appends(
                runtime,
                broker_config,
                self.replicas,
                lambda *arguments, add: self.coordinator.verify(*arguments, add=add),
                tasks,
            ),
            fetch_sessions=FetchSessions(runtime.clock, runtime.random, 10),
            cold_reads=ColdReads(runtime, tasks),
            nearest_replicas=None,
            metadata=nothing,
            leaders=nothing,
            quorum=nothing,
            controller=nothing,
            forwarding=None,
            producer_ids=nothing,
            groups=self.groups,
            transactions=self.coordinator,
            share=nothing,
            telemetry=nothing,
            tasks=tasks,
        )

    def partition(self, index: int = 0) -> Partition:
        return self.broker.replicas.partition("a", index)

    def send(
        self, *batches: bytes | tuple[int, bytes], version: int = 12, **options: Any
    ) -> list[ReadableBody] | PendingReply | None:
        return produce(self.broker, SESSION, version, produce_frame(*batches, version=version, **options), 0)

    async def produce(self, *batches: bytes | tuple[int, bytes], version: int = 12, **options: Any) -> Any:
        """(error, base offset) of each partition; by itself, of the only one."""
        rows = decode_produce(version, await finished(self.send(*batches, version=version, **options)))
        return rows[0] if len(rows) == 1 else rows

    def fetch(
        self,
        offset: int,
        *,
        committed: bool = True,
        version: int = 12,
        min_bytes: int = 1,
        max_wait_ms: int = 0,
        session: tuple[int, int] = (0, -1),
        index: int = 0,
        max_bytes: int = 1 << 20,
        topic_id: UUID = TOPIC_ID,
    ) -> list[ReadableBody] | PendingReply:
        """Of topic a, by id from version 13 on; with a negative offset of what the session has."""
        module = load_entity_module("fetch", version, EntityType.request)
        topic: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": "a"}
        partition = module.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        newer: dict[str, Any] = {}
        if version >= 7:
            newer = {"session_id": session[0], "session_epoch": session[1], "forgotten_topics_data": ()}
        if version < 15:
            newer["replica_id"] = -1
        request = module.FetchRequest(
            max_wait=timedelta(milliseconds=max_wait_ms),
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            topics=(module.FetchTopic(**topic, partitions=(partition,)),) if offset >= 0 else (),
            **newer,
        )
        return fetch(self.broker, SESSION, version, _written(request), 0)


ReadableBody = bytes | bytearray | memoryview


def batch(
    sequence: int = 0,
    *,
    records: int = 1,
    epoch: int = 0,
    producer_id: int = PRODUCER_ID,
    transactional: bool = True,
) -> bytes:
    return encode_batch(
        [Record(b"k", b"v%d" % index, NOW_MS) for index in range(records)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce_frame(
    *batches: bytes | tuple[int, bytes],
    version: int = 12,
    transactional_id: str | None = "t",
    acks: int = -1,
) -> memoryview:
    """One batch per partition; by itself, for partition 0."""
    module = load_entity_module("produce", version, EntityType.request)
    topic = {"topic_id": UUID(int=1)} if version >= 13 else {"name": "a"}
    request = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(seconds=1),
        topic_data=(
            module.TopicProduceData(
                **topic,
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=records)
                    for index, records in (b if isinstance(b, tuple) else (0, b) for b in batches)
                ),
            ),
        ),
    )
    return _written(request)


async def finished(reply: list[ReadableBody] | PendingReply | None) -> bytes:
    if isinstance(reply, PendingReply):
        done = asyncio.Event()
        if reply.body is None and reply.error is None:
            reply.bind(0, True, lambda _: done.set())
            await asyncio.wait_for(done.wait(), 5)
        if reply.error is not None:
            raise reply.error
        return b"".join(bytes(part) for part in reply.body or [])
    return b"".join(bytes(part) for part in reply or [])


def decode_produce(version: int, body: bytes) -> list[tuple[ErrorCode, int]]:
    response, _ = entity_reader(load_response_schema(0, version))(body, 0)
    return [
        (row.error_code, row.base_offset) for topic in response.responses for row in topic.partition_responses
    ]


def decode_fetch(version: int, body: bytes) -> Any:
    """The only partition, or None where nothing is said of it."""
    response, _ = entity_reader(load_response_schema(1, version))(body, 0)
    rows = [row for topic in response.responses for row in topic.partitions]
    return rows[0] if rows else None


def session_of(version: int, body: bytes) -> int:
    response, _ = entity_reader(load_response_schema(1, version))(body, 0)
    return int(response.session_id)


def _written(entity: Any) -> memoryview:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    # As a connection has it: reused for the next request.
    return memoryview(bytearray(buffer.getvalue()))
