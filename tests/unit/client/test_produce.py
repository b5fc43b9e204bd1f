"""Batches arrive once and in order, whatever happens to connections and answers on the way."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

from ottla.client.errors import is_retriable
from ottla.client.peer import PeerLost
from ottla.client.produce import IN_FLIGHT_MAX, PartitionProducer
from ottla.records.arrow_encode import RecordColumns, encode_columns
from ottla.records.batch import read_header
from ottla.records.stamp import stamped
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.produce import PartitionResult, encode, parse

T = TypeVar("T")


class FakeBroker:
    """One partition that remembers the last five batches of a producer, as brokers do."""

    def __init__(self, dice: random.Random | None) -> None:
        self.log: list[int] = []
        self._recent: deque[int] = deque(maxlen=5)
        self._dice = dice
        self.refuse_with: ErrorCode | None = None
        self.in_flight = self.in_flight_max = 0

    def append(self, sequence: int, count: int) -> ErrorCode:
        if self.refuse_with is not None:
            return self.refuse_with
        if sequence in self._recent:
            return ErrorCode.none
        if self.luck() < 0.1:
            return ErrorCode.not_enough_replicas
        # A producer that is not known may begin with any number.
        if self.log and sequence != self.log[-1] + count:
            return ErrorCode.out_of_order_sequence_number
        self.log.append(sequence)
        self._recent.append(sequence)
        return ErrorCode.none

    def luck(self) -> float:
        return self._dice.random() if self._dice is not None else 1.0


class FakePeer:
    """A connection: answers in order, dies now and then before or after the broker has seen a request."""

    address = "fake:1"

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._turn = asyncio.Lock()
        self.is_lost = False

    def version(self, api_key: ApiKey, version_max: int) -> int:
        return version_max

    def close(self) -> None:
        self.is_lost = True

    async def ask_raw(self, api_key: ApiKey, version: int, body: list[bytes]) -> memoryview:
        broker = self._broker
        broker.in_flight += 1
        broker.in_flight_max = max(broker.in_flight_max, broker.in_flight)
        try:
            async with self._turn:
                for _ in range(8):
                    await asyncio.sleep(0)
                if self.is_lost or broker.luck() < 0.1:
                    self.is_lost = True
                    raise PeerLost("lost before")
                frame = b"".join(body)
                request = parse(memoryview(frame), 0, version)
                assert (request.transactional_id, request.acks) == ("tx", -1)
                ((index, records),) = request.topics[0].partitions
                header = read_header(records)
                code = broker.append(header.base_sequence, header.record_count)
                if broker.luck() < 0.1:
                    self.is_lost = True
                    raise PeerLost("lost after")
                if broker.luck() < 0.05:
                    code = ErrorCode.request_timed_out
                result = PartitionResult(index, code, 0, -1, 0, None)
                return memoryview(encode(version, [(request.topics[0].topic, [result])]))
        finally:
            broker.in_flight -= 1


class FakeCluster:
    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._peer = FakePeer(broker)

    async def leader(self, topic: str, partition: int) -> FakePeer:
        if self._peer.is_lost:
            self._peer = FakePeer(self._broker)
        return self._peer

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await attempt()
            except PeerLost:
                continue
            except KafkaError as error:
                if not is_retriable(error.code):
                    raise


def batches(count: int) -> list[bytes]:
    columns = RecordColumns(None, pa.array([b"a", b"b"]), np.zeros(2, np.int64))
    (batch,) = encode_columns(columns)
    return [stamped(batch.data, 1, 0, 2 * number, transactional=True) for number in range(count)]


async def send_all(broker: FakeBroker, count: int) -> None:
    cluster: Any = FakeCluster(broker)
    producer = PartitionProducer(cluster, "t", 3, transactional_id="tx")
    for batch in batches(count):
        await producer.send(batch)
    await producer.flush()


@pytest.mark.parametrize("seed", range(40))
def test_each_batch_is_in_the_log_once_and_in_order(seed: int) -> None:
    broker = FakeBroker(random.Random(seed))
    asyncio.run(send_all(broker, 40))
    assert broker.log == list(range(0, 80, 2))
    assert broker.in_flight_max <= IN_FLIGHT_MAX


def test_several_batches_are_under_way_at_a_time() -> None:
    broker = FakeBroker(None)
    asyncio.run(send_all(broker, 20))
    assert broker.in_flight_max == IN_FLIGHT_MAX


def test_a_refusal_is_raised_and_says_where() -> None:
    broker = FakeBroker(None)
    broker.refuse_with = ErrorCode.invalid_producer_epoch
    with pytest.raises(KafkaError, match="produce to t-3: INVALID_PRODUCER_EPOCH"):
        asyncio.run(send_all(broker, 3))
