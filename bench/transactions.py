"""What idempotence and transactions cost: `python -m bench.transactions`.

    plain           batches without a producer id
    idempotent      the same batches with producer id, epoch and sequence numbers
    transactional   the same in transactions, each committed after 100 ms (KIP-890: no request but EndTxn)

Four producers on a connection each write 16 kB batches of 1 kB records to a partition of their own, five
requests in flight, acks=all. All three loads do the same work in the generator, checksums included, and take
turns within a round, so that what differs is what the broker does.
"""

from __future__ import annotations

import argparse
import io
import statistics
import struct
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from crc32c import crc32c
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.serial import entity_reader

from bench import encoding, kafka_peer
from bench.admin import BrokerRefused, end_offsets, throw_away_topic
from bench.brokers import BrokerFailed, BrokerKind, RunningBroker, ottla, running
from bench.connection import Connection
from bench.groups import frame
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from bench.replay import Measured

PRODUCERS = 4
IN_FLIGHT = 5
RECORD_BYTES = 1000
RECORDS_PER_BATCH = 16
COMMIT_EVERY_S = 0.1
RETRY_S = 0.002
CONCURRENT_TRANSACTIONS = 51
TRANSACTION_TIMEOUT = timedelta(seconds=60)
LOADS = ("plain", "idempotent", "transactional")

CRC_AT, COVERED_AT, PRODUCER_AT = 17, 21, 43
TRANSACTIONAL = 0x10
PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
CRC = struct.Struct(">I")
SEQUENCE_MASK = 2**31 - 1
# What a broker answers while it sets its coordinators up, or ends the transaction before.
PASSING = {"coordinator_not_available", "coordinator_load_in_progress", "not_coordinator"}
PASSING |= {"concurrent_transactions", "not_enough_replicas"}


class Producer:
    """One connection and partition; always has something in flight."""

    def __init__(self, port: int, topic: str, partition: int, load: str) -> None:
        self.connection = Connection(port)
        self._transactional_id = f"{topic}-{partition}" if load == "transactional" else None
        self._id, self._epoch, self._sequence = -1, -1, -1
        if load != "plain":
            self._init()
        self._frame, self._batch_at = self._template(topic, partition)
        self._covered = memoryview(self._frame)[
            self._batch_at + COVERED_AT : self._batch_at + self._batch_bytes
        ]
        # Of a flexible answer about one partition: correlation id, tags, then lengths, name and index.
        self._error_at = 4 + 1 + 1 + 1 + len(topic) + 1 + 4
        self._waiting = 0
        self._is_ending = False
        self._is_opening = True
        self._commit_at = time.monotonic() + COMMIT_EVERY_S
        self.batches = 0
        self.commits = 0
        self._produce()

    def _init(self) -> None:
        if self._transactional_id is not None:
            found = FindCoordinatorRequest(key=self._transactional_id, key_type=1)
            _ask(self.connection, found, FindCoordinatorResponse)
        answer = _ask(
            self.connection,
            InitProducerIdRequest(
                transactional_id=self._transactional_id, transaction_timeout=TRANSACTION_TIMEOUT
            ),
            InitProducerIdResponse,
        )
        self._become(answer)

    def _become(self, answer: Any) -> None:
        self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0

    def _template(self, topic: str, partition: int) -> tuple[bytearray, int]:
        values = [bytes(RECORD_BYTES)] * RECORDS_PER_BATCH
        batch = bytearray(encoding.record_batch(values, int(time.time() * 1000)))
        if self._transactional_id is not None:
            batch[COVERED_AT + 1] |= TRANSACTIONAL
        self._batch_bytes = len(batch)
        data = PartitionProduceData(index=partition, records=bytes(batch))
        whole = frame(
            ProduceRequest(
                transactional_id=self._transactional_id,
                acks=encoding.ACKS_ALL,
                timeout=timedelta(seconds=30),
                topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
            )
        )
        return bytearray(whole), whole.rindex(batch)

    def _produce(self) -> None:
        PRODUCER.pack_into(self._frame, self._batch_at + PRODUCER_AT, self._id, self._epoch, self._sequence)
        CRC.pack_into(self._frame, self._batch_at + CRC_AT, crc32c(self._covered))
        if self._sequence >= 0:
            self._sequence = (self._sequence + RECORDS_PER_BATCH) & SEQUENCE_MASK
        self.connection.send(self._frame)
        self._waiting += 1
        self.batches += 1

    def _check(self, answer: memoryview) -> bool:
        """False: the first request of a transaction came too soon after the last, and was sent again."""
        (error,) = struct.unpack_from(">h", answer, self._error_at)
        if error == CONCURRENT_TRANSACTIONS and self._is_opening:
            time.sleep(RETRY_S)
            self.connection.send(self._frame)
            self._waiting += 1
            return False
        if error:
            raise BrokerRefused(f"a produce request failed with error code {error}")
        self._is_opening = False
        return True

    def _fill(self, batches_max: int) -> None:
        """A transaction begins with one request; others follow when that is answered."""
        in_flight = 1 if self._is_opening else IN_FLIGHT
        while self._waiting < in_flight and self.batches < batches_max:
            self._produce()

    def step(self, batches_max: int) -> bool:
        """Take one answer, and send what may follow it. False: all is done."""
        if not self._waiting:
            return False
        answer = self.connection.receive()
        self._waiting -= 1
        if self._is_ending:
            self._ended(bytes(answer), batches_max)
            return self._waiting > 0
        if not self._check(answer):
            return True
        is_due = time.monotonic() >= self._commit_at or self.batches >= batches_max
        if self._transactional_id is not None and is_due:
            if not self._waiting:
                self._end()
            return True
        self._fill(batches_max)
        return self._waiting > 0

    def _end(self) -> None:
        self._is_ending = True
        self.connection.send(frame(self._end_request()))
        self._waiting += 1

    def _end_request(self) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._id,
            producer_epoch=self._epoch,
            committed=True,
        )

    def _ended(self, data: bytes, batches_max: int) -> None:
        answer = _read(EndTxnResponse, data)
        if answer.error_code.value:
            raise BrokerRefused(f"EndTxn failed: {answer.error_code.name}")
        self._is_ending = False
        self.commits += 1
        self._become(answer)
        self._commit_at = time.monotonic() + COMMIT_EVERY_S
        self._is_opening = True
        self._fill(batches_max)


_readers: dict[type, Callable[..., Any]] = {}


def _read(response_type: Any, data: bytes) -> Any:
    reader = _readers.setdefault(response_type, entity_reader(response_type))
    return reader(io.BytesIO(data).getbuffer().toreadonly(), 5)[0]  # behind correlation id and tagged fields


def _ask(connection: Connection, request: Any, response_type: Any) -> Any:
    deadline = time.monotonic() + 30
    while True:
        connection.send(frame(request))
        answer = _read(response_type, bytes(connection.receive()))
        if not answer.error_code.value:
            return answer
        if answer.error_code.name not in PASSING or time.monotonic() > deadline:
            raise BrokerRefused(f"{type(request).__name__} failed: {answer.error_code.name}")
        time.sleep(RETRY_S)


def measure(broker: RunningBroker, load: str, total_bytes: int, number: int) -> Measured:
    batches = max(total_bytes // (RECORD_BYTES * RECORDS_PER_BATCH * PRODUCERS), IN_FLIGHT + 1)
    with throw_away_topic(broker.port, f"{load}-{number}", PRODUCERS) as topic:
        producers = [Producer(broker.port, topic, partition, load) for partition in range(PRODUCERS)]
        cpu, begin = broker.cpu_seconds(), time.monotonic()
        active = list(producers)
        while active:
            active = [producer for producer in active if producer.step(batches)]
        seconds, used = time.monotonic() - begin, broker.cpu_seconds() - cpu
        written = sum(end_offsets(broker.port, topic, PRODUCERS))
        commits = sum(producer.commits for producer in producers)
        for producer in producers:
            producer.connection.close()
    records = PRODUCERS * batches * RECORDS_PER_BATCH
    # The last markers may still be on their way.
    if not records <= written <= records + commits:
        raise BrokerRefused(f"{load}: the logs hold {written} records and markers, not {records} + {commits}")
    return Measured(records * RECORD_BYTES, PRODUCERS * batches, seconds, used)


def compare(broker: RunningBroker, rounds: int, total_bytes: int) -> None:
    measured: dict[str, list[Measured]] = {load: [] for load in LOADS}
    for load in LOADS:
        measure(broker, load, total_bytes // 4, -1)  # warms up
    for number in range(rounds):
        for load in LOADS:
            measured[load].append(measure(broker, load, total_bytes, number))
    print(f"  {'':14}{'MB/s':>8}{'share':>8}{'CPU µs/request':>16}{'share':>8}")
    for load in LOADS:
        rate = statistics.median(each.mb_per_s for each in measured[load])
        cost = statistics.median(each.cpu_us_per_request for each in measured[load])
        # Of the same round: what else the machine does changes between rounds.
        rate_share = statistics.median(
            each.mb_per_s / plain.mb_per_s
            for each, plain in zip(measured[load], measured["plain"], strict=True)
        )
        cost_share = statistics.median(
            each.cpu_us_per_request / plain.cpu_us_per_request
            for each, plain in zip(measured[load], measured["plain"], strict=True)
        )
        print(f"  {load:14}{rate:8,.0f}{rate_share:8.0%}{cost:16.1f}{cost_share:8.0%}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.transactions", description=__doc__.split("\n")[0])
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="ottla")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=int, default=800, help="record values per load and round")
    options = parser.parse_args()
    try:
        kinds: list[BrokerKind] = [] if options.broker == "kafka" else [ottla()]
        if options.broker != "ottla":
            kinds.append(ApacheKafka(kafka_peer.fetch()))
        for kind in kinds:
            with running(kind) as broker:
                print(f"{kind.name}:")
                compare(broker, options.rounds, options.mb * 10**6)
    except (BrokerFailed, BrokerRefused, PeerUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
