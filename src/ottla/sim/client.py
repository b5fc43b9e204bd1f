"""A client that speaks the Kafka protocol inside the simulation: `SimClient` to one broker, without retries.

`send` takes any request of kio; the methods beside it are what tests need over and over.
"""

from __future__ import annotations

import asyncio
import datetime
import io
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import kio.schema.create_topics.v7.request as create_topics
import kio.schema.fetch.v12.request as fetch
import kio.schema.metadata.v12.request as metadata
import kio.schema.produce.v9.request as produce
from kio.index import load_response_schema
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Runtime
from ottla.wire.errors import ErrorCode

TIMEOUT_S = 30.0
SIZE = struct.Struct(">i")


class RequestFailed(Exception):
    """The broker answered with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code


class Fetched(NamedTuple):
    records: list[Record]
    high_watermark: int
    log_start_offset: int


class _Connection(asyncio.Protocol):
    """Frames answers; they come in the order of the questions."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self.lost: Exception | None = None
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= SIZE.size:
            end = SIZE.size + SIZE.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            frame = bytes(self._buffer[SIZE.size : end])
            del self._buffer[:end]
            answer = self.waiting.popleft()
            if not answer.done():
                answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc or ConnectionResetError("the broker closed the connection")
        for answer in self.waiting:
            if not answer.done():
                answer.set_exception(self.lost)


class Client(ABC):
    """Whoever can have a request answered; what tests need over and over is made of that."""

    def __init__(self, runtime: Runtime, *, timeout_s: float = TIMEOUT_S) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s

    @abstractmethod
    async def send(self, request: Any, *, answered: bool = True) -> Any:
        """The response of the same version. OSError, TimeoutError included, when none comes."""

    @abstractmethod
    def close(self) -> None: ...

    async def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        topic = create_topics.CreatableTopic(
            name=TopicName(name),
            num_partitions=i32(partitions),
            replication_factor=i16(-1),
            assignments=(),
            configs=tuple(
                create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in sorted((configs or {}).items())
            ),
        )
        response = await self.send(create_topics.CreateTopicsRequest(topics=(topic,)))
        _raise_for(response.topics[0])

    async def metadata(self, *topics: str) -> MetadataResponse:
        """Of these topics, or of all if none is named."""
        wanted = tuple(metadata.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
        response: MetadataResponse = await self.send(
            metadata.MetadataRequest(
                topics=wanted or None,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        return response

    async def produce(self, topic: str, partition: int, values: Sequence[bytes], *, acks: int = -1) -> int:
        """The offset of the first record, -1 where acks=0 leaves it open."""
        now_ms = self._runtime.clock.now_ms()
        return await self.produce_batch(
            topic, partition, encode_batch([Record(None, value, now_ms) for value in values]), acks=acks
        )

    async def produce_batch(self, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> int:
        data = produce.PartitionProduceData(index=i32(partition), records=Records(batch))
        request = produce.ProduceRequest(
            transactional_id=None,
            acks=i16(acks),
            timeout=i32Timedelta.parse(datetime.timedelta(seconds=self._timeout_s)),
            topic_data=(produce.TopicProduceData(name=TopicName(topic), partition_data=(data,)),),
        )
        response = await self.send(request, answered=acks != 0)
        if response is None:
            return -1
        outcome = response.responses[0].partition_responses[0]
        _raise_for(outcome)
        return int(outcome.base_offset)

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 500, max_bytes: int = 1 << 20
    ) -> Fetched:
        wanted = fetch.FetchPartition(
            partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
        )
        response = await self.send(
            fetch.FetchRequest(
                max_wait=i32Timedelta.parse(datetime.timedelta(milliseconds=max_wait_ms)),
                min_bytes=i32(1),
                max_bytes=i32(max_bytes),
                topics=(fetch.FetchTopic(topic=TopicName(topic), partitions=(wanted,)),),
                forgotten_topics_data=(),
            )
        )
        _raise_for(response)
        outcome = response.responses[0].partitions[0]
        _raise_for(outcome)
        data = outcome.records or b""
        records = [
            record
            for at, header in iter_headers(data)
            if not header.is_control
            for record in iter_records(data[at : at + header.size])
            if record.offset >= offset
        ]
        return Fetched(records, outcome.high_watermark, outcome.log_start_offset)

    async def read_all(self, topic: str, partition: int, offset: int = 0) -> list[Record]:
        """Every record up to the high watermark of the moment."""
        records: list[Record] = []
        while True:
            fetched = await self.fetch(topic, partition, offset, max_wait_ms=0)
            records += fetched.records
            if not fetched.records:
                return records
            offset = fetched.records[-1].offset + 1


class SimClient(Client):
    """Connects when first used and again after its connection was lost."""

    def __init__(self, runtime: Runtime, host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(runtime, timeout_s=timeout_s)
        self._address = (host, port)
        self._transport: asyncio.Transport | None = None
        self._connection = _Connection()
        self._correlation_id = 0
        self._connecting = asyncio.Lock()

    async def send(self, request: Any, *, answered: bool = True) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                transport = await self._connect()
                correlation_id = self._correlation_id = self._correlation_id + 1
                transport.write(self._frame(request, correlation_id))
                if not answered:
                    return None
                answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
                self._connection.waiting.append(answer)
                return _read_response(request, correlation_id, await answer)
        except TimeoutError:
            # The connection may be dead without knowing it; the next request takes a new one.
            self.close()
            raise

    async def _connect(self) -> asyncio.Transport:
        async with self._connecting:
            if self._transport is None or self._connection.lost is not None or self._transport.is_closing():
                transport, connection = await self._runtime.net.connect(_Connection, *self._address)
                assert isinstance(connection, _Connection)
                self._transport, self._connection = transport, connection
            return self._transport

    def _frame(self, request: Any, correlation_id: int) -> bytes:
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=correlation_id,
            client_id="sim-client",
        )
        body = io.BytesIO()
        entity_writer(type(header))(body, header)
        entity_writer(type(request))(body, request)
        return SIZE.pack(body.tell()) + body.getvalue()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _read_response(request: Any, correlation_id: int, frame: bytes) -> Any:
    response_type = load_response_schema(request.__api_key__, request.__version__)
    header, size = entity_reader(response_type.__header_schema__)(frame, 0)
    if header.correlation_id != correlation_id:
        raise AssertionError(f"answer {header.correlation_id} came where {correlation_id} was due")
    response, body_size = entity_reader(response_type)(frame, size)
    if size + body_size != len(frame):
        raise AssertionError(f"{len(frame) - size - body_size} bytes are left behind the response")
    return response


def _raise_for(outcome: Any) -> None:
    if outcome.error_code is not ErrorCode.none:
        raise RequestFailed(outcome.error_code, getattr(outcome, "error_message", None))
