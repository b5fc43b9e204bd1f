"""SimClient against a small broker that keeps its records in memory."""

from __future__ import annotations

import asyncio
import datetime
import io
import struct
from typing import Any

import kio.schema.create_topics.v7.response as create_topics
import kio.schema.fetch.v12.response as fetch
import kio.schema.metadata.v12.response as metadata
import kio.schema.produce.v9.response as produce
import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from ottla.records.batch import HEADER_BYTES, read_header
from ottla.runtime import Runtime
from ottla.sim.client import RequestFailed, SimClient
from ottla.sim.world import SimWorld, simulate
from ottla.wire.errors import ErrorCode

PORT = 9092
NO_TIME = datetime.timedelta(0)


class FakeBroker:
    """Knows one topic, "t", with partition 0."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.requests: list[Any] = []
        self.connections = 0
        self.mute = False

    async def run(self, runtime: Runtime) -> None:
        await runtime.net.listen(lambda: FakeConnection(self), "b1", PORT)
        await asyncio.Event().wait()

    @property
    def end(self) -> int:
        return sum(read_header(batch).record_count for batch in self.batches)

    def answer(self, request: Any) -> Any:
        self.requests.append(request)
        return getattr(self, type(request).__name__)(request)

    def ProduceRequest(self, request: Any) -> Any:
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        known, base = topic.name == "t" and data.index == 0, self.end
        if known:
            self.batches.append(struct.pack(">q", base) + data.records[8:])
        outcome = produce.PartitionProduceResponse(
            index=data.index,
            error_code=ErrorCode.none if known else ErrorCode.unknown_topic_or_partition,
            base_offset=base,
            record_errors=(),
            error_message="no such partition",
        )
        answered = produce.TopicProduceResponse(name=topic.name, partition_responses=(outcome,))
        return (
            None
            if request.acks == 0
            else produce.ProduceResponse(responses=(answered,), throttle_time=NO_TIME)
        )

    def FetchRequest(self, request: Any) -> Any:
        topic = request.topics[0]
        offset = topic.partitions[0].fetch_offset
        data = b"".join(batch for batch in self.batches if read_header(batch).last_offset >= offset)
        # A broker may cut its answer in the middle of a batch.
        data += self.batches[0][: HEADER_BYTES + 1] if data else b""
        outcome = fetch.PartitionData(
            partition_index=topic.partitions[0].partition,
            error_code=ErrorCode.none if offset <= self.end else ErrorCode.offset_out_of_range,
            high_watermark=self.end,
            log_start_offset=0,
            aborted_transactions=None,
            records=data,
        )
        answered = fetch.FetchableTopicResponse(topic=topic.topic, partitions=(outcome,))
        return fetch.FetchResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, responses=(answered,))

    def MetadataRequest(self, request: Any) -> Any:
        names = ["t", "u"] if request.topics is None else [topic.name for topic in request.topics]
        topics = tuple(
            metadata.MetadataResponseTopic(
                error_code=ErrorCode.none, name=name, topic_id=None, is_internal=False, partitions=()
            )
            for name in names
        )
        return metadata.MetadataResponse(
            throttle_time=NO_TIME, brokers=(), cluster_id="c", controller_id=1, topics=topics
        )

    def CreateTopicsRequest(self, request: Any) -> Any:
        exists = request.topics[0].name == "t"
        outcome = create_topics.CreatableTopicResult(
            name=request.topics[0].name,
            topic_id=None,
            error_code=ErrorCode.topic_already_exists if exists else ErrorCode.none,
            error_message="it exists" if exists else None,
            configs=(),
        )
        return create_topics.CreateTopicsResponse(throttle_time=NO_TIME, topics=(outcome,))


class FakeConnection(asyncio.Protocol):
    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.broker.connections += 1
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) - 4 >= int.from_bytes(self.buffer[:4]):
            size = int.from_bytes(self.buffer[:4])
            frame, self.buffer = self.buffer[4 : 4 + size], self.buffer[4 + size :]
            request_type = load_request_schema(*struct.unpack_from(">hh", frame))
            header, at = entity_reader(request_type.__header_schema__)(frame, 0)
            request, _ = entity_reader(request_type)(frame, at)
            assert header.client_id == "sim-client"
            response = self.broker.answer(request)
            if response is not None and not self.broker.mute:
                self.send(header.correlation_id, response)

    def send(self, correlation_id: int, response: Any) -> None:
        header_type = response.__header_schema__
        body = io.BytesIO()
        entity_writer(header_type)(body, header_type(correlation_id=correlation_id))
        entity_writer(type(response))(body, response)
        self.transport.write(struct.pack(">i", body.tell()) + body.getvalue())


def _start(world: SimWorld) -> tuple[FakeBroker, SimClient]:
    broker = FakeBroker()
    world.start("b1", broker.run)
    return broker, SimClient(world.runtime("c"), "b1", PORT, timeout_s=5)


def test_produce_and_fetch() -> None:
    async def scenario(world: SimWorld) -> None:
        broker, client = _start(world)
        assert await client.produce("t", 0, [b"a", b"b"]) == 0
        assert await client.produce("t", 0, [b"c"]) == 2
        assert await client.produce("t", 0, [b"d"], acks=0) == -1
        fetched = await client.fetch("t", 0, 1, max_wait_ms=7)
        assert [(record.offset, record.value) for record in fetched.records] == [
            (1, b"b"),
            (2, b"c"),
            (3, b"d"),
        ]
        assert (fetched.high_watermark, fetched.log_start_offset) == (4, 0)
        assert [record.value for record in await client.read_all("t", 0)] == [b"a", b"b", b"c", b"d"]
        assert broker.requests[3].max_wait == datetime.timedelta(milliseconds=7)
        assert broker.connections == 1

    for seed in range(5):
        simulate(scenario, seed=seed)


def test_errors_are_raised_with_their_code() -> None:
    async def scenario(world: SimWorld) -> None:
        _, client = _start(world)
        with pytest.raises(RequestFailed, match="unknown_topic_or_partition: no such partition"):
            await client.produce("t", 1, [b"a"])
        with pytest.raises(RequestFailed) as caught:
            await client.fetch("t", 0, 99)
        assert caught.value.code is ErrorCode.offset_out_of_range
        with pytest.raises(RequestFailed, match="topic_already_exists: it exists"):
            await client.create_topic("t")

    simulate(scenario)


def test_metadata_and_topic_creation() -> None:
    async def scenario(world: SimWorld) -> None:
        broker, client = _start(world)
        assert [topic.name for topic in (await client.metadata()).topics] == ["t", "u"]
        assert [topic.name for topic in (await client.metadata("x")).topics] == ["x"]
        await client.create_topic("new", partitions=3, configs={"flush.messages": "1"})
        (topic,) = broker.requests[-1].topics
        assert (topic.name, topic.num_partitions) == ("new", 3)
        assert [(config.name, config.value) for config in topic.configs] == [("flush.messages", "1")]

    simulate(scenario)


def test_pipelined_requests_get_their_own_answers() -> None:
    async def scenario(world: SimWorld) -> None:
        broker, client = _start(world)
        offsets = await asyncio.gather(*(client.produce("t", 0, [b"%d" % number]) for number in range(20)))
        values = [record.value for record in await client.read_all("t", 0)]
        assert [values[offset] for offset in offsets] == [b"%d" % number for number in range(20)]
        assert broker.connections == 1

    for seed in range(5):
        simulate(scenario, seed=seed)


def test_a_silent_broker_times_out_and_the_next_request_reconnects() -> None:
    async def scenario(world: SimWorld) -> None:
        broker, client = _start(world)
        broker.mute = True
        started = world.loop.time()
        with pytest.raises(TimeoutError):
            await client.metadata()
        assert world.loop.time() - started == pytest.approx(5)
        broker.mute = False
        await client.metadata()
        assert broker.connections == 2
        client.close()
        await client.metadata()
        assert broker.connections == 3

    simulate(scenario, free_turns=True)


def test_lost_connections_are_errors_and_a_restarted_broker_answers_again() -> None:
    async def scenario(world: SimWorld) -> None:
        broker, client = _start(world)
        broker.mute = True
        waiting = asyncio.create_task(client.metadata())
        await asyncio.sleep(1)
        world.crash("b1", power_loss=False)
        with pytest.raises(ConnectionResetError):
            await waiting
        with pytest.raises(ConnectionRefusedError):
            await client.metadata()
        broker.mute = False
        world.restart("b1")
        await asyncio.sleep(0.1)
        await client.metadata()

    simulate(scenario)
