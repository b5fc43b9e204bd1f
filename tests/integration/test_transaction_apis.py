"""Transactions on the wire: every version of their requests, the old protocol and the new (KIP-890)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from raw_client import RawConnection

import ottla.testing
from ottla.handlers.registry import REGISTRY
from ottla.records.records import Record, encode_batch
from ottla.wire.api import ApiKey

NAMES = (f"tx-{n}" for n in itertools.count())
NEW_PRODUCE = 12
OLD_PRODUCE = 11
NONE = ErrorCode.none
SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with ottla.testing.broker(set=SETTINGS) as started:
        yield started.bootstrap_servers


class Producer:
    """A transactional producer made of single requests."""

    def __init__(self, broker: str, name: str | None = None) -> None:
        self.connection = RawConnection(broker)
        self.name = name or next(NAMES)
        self.identity = (-1, -1)
        self.sequences: dict[tuple[str, int], int] = {}

    def call(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        return self.connection.call(key, version, load_request_schema(key, version)(**values))

    def find(self, version: int = 6) -> Any:
        if version < 4:
            return self.call(ApiKey.FIND_COORDINATOR, version, key=self.name, key_type=1)
        found = self.call(ApiKey.FIND_COORDINATOR, version, key_type=1, coordinator_keys=(self.name,))
        return found.coordinators[0]

    def init(self, version: int = 5, timeout_ms: int = 60_000, **fields: Any) -> ErrorCode:
        if version >= 3:
            fields.setdefault("producer_id", -1)
            fields.setdefault("producer_epoch", -1)
        if version >= 6:
            fields.setdefault("enable2_pc", False)
            fields.setdefault("keep_prepared_txn", False)
        for _ in range(100):
            reply = self.call(
                ApiKey.INIT_PRODUCER_ID,
                version,
                transactional_id=self.name,
                transaction_timeout=timedelta(milliseconds=timeout_ms),
                **fields,
            )
            if reply.error_code is not ErrorCode.coordinator_load_in_progress:
                break
            time.sleep(0.01)
        if reply.error_code is NONE:
            self.identity = (reply.producer_id, reply.producer_epoch)
            self.sequences = {}
        return ErrorCode(reply.error_code)

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        module = load_request_schema(ApiKey.ADD_PARTITIONS_TO_TXN, version).__module__
        entities = __import__(module, fromlist=["x"])
        topics = (entities.AddPartitionsToTxnTopic(name=topic, partitions=partitions),)
        if version < 4:
            reply = self.call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                version,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.identity[0],
                v3_and_below_producer_epoch=self.identity[1],
                v3_and_below_topics=topics,
            )
            results = reply.results_by_topic_v3_and_below
        else:
            transaction = entities.AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                verify_only=False,
                topics=topics,
            )
            reply = self.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=(transaction,))
            results = reply.results_by_transaction[0].topic_results
        return [item.partition_error_code for item in results[0].results_by_partition]

    def produce(self, topic: str, partition: int, *values: str, version: int) -> ErrorCode:
        module = load_request_schema(ApiKey.PRODUCE, version).__module__
        entities = __import__(module, fromlist=["x"])
        sequence = self.sequences.get((topic, partition), 0)
        batch = encode_batch(
            [Record(None, value.encode(), 1_700_000_000_000) for value in values],
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            base_sequence=sequence,
            transactional=True,
        )
        reply = self.call(
            ApiKey.PRODUCE,
            version,
            transactional_id=self.name,
            acks=-1,
            timeout=timedelta(seconds=5),
            topic_data=(
                entities.TopicProduceData(
                    name=topic,
                    partition_data=(entities.PartitionProduceData(index=partition, records=batch),),
                ),
            ),
        )
        code = ErrorCode(reply.responses[0].partition_responses[0].error_code)
        if code is NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return code

    def end(self, *, committed: bool, version: int) -> ErrorCode:
        reply = self.call(
            ApiKey.END_TXN,
            version,
            transactional_id=self.name,
            producer_id=self.identity[0],
            producer_epoch=self.identity[1],
            committed=committed,
        )
        if version >= 5 and reply.error_code is NONE:
            self.identity = (reply.producer_id, reply.producer_epoch)
            self.sequences = {}
        return ErrorCode(reply.error_code)

    def describe(self) -> Any:
        reply = self.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(self.name,))
        return reply.transaction_states[0]


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = f"topic-{next(NAMES)}"
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    return name


@pytest.fixture
def producer(broker: str) -> Iterator[Producer]:
    made = Producer(broker)
    assert made.find().error_code is NONE
    yield made
    made.connection.close()


def committed_values(broker: str, topic: str, count: int) -> list[str]:
    """Those a reader of committed records gets, up to the end of both partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"reader-{next(NAMES)}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    ended = 0
    deadline = time.monotonic() + 20
    while ended < 2 and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            ended += 1
        else:
            values.append((message.value() or b"").decode())
    consumer.close()
    assert len(values) >= count
    return sorted(values)


@pytest.mark.parametrize("version", range(1, 7))
def test_finding_the_coordinator(broker: str, version: int) -> None:
    found = Producer(broker).find(version)
    assert (found.error_code, found.node_id) == (NONE, 1)
    assert f"{found.host}:{found.port}" == broker


@pytest.mark.parametrize("version", range(5))
def test_the_old_protocol(broker: str, topic: str, producer: Producer, version: int) -> None:
    assert producer.init(version) is NONE
    identity = producer.identity
    for committed in (True, False, True):
        assert producer.add(topic, 0, 1, version=min(version, 3)) == [NONE, NONE]
        for partition in (0, 1):
            value = f"{committed}-{partition}"
            assert producer.produce(topic, partition, value, version=OLD_PRODUCE) is NONE
        assert producer.describe().transaction_state == "Ongoing"
        assert producer.end(committed=committed, version=version) is NONE
        assert producer.end(committed=committed, version=version) is NONE, "sent again"
        assert producer.identity == identity
    assert producer.describe().transaction_state == "CompleteCommit"
    assert committed_values(broker, topic, 4) == ["True-0", "True-0", "True-1", "True-1"]


def test_the_new_protocol(broker: str, topic: str, producer: Producer) -> None:
    assert producer.init() is NONE
    producer_id, epoch = producer.identity
    for n, committed in enumerate((True, False, True)):
        for partition in (0, 1):
            value = f"{committed}-{partition}"
            assert producer.produce(topic, partition, value, version=NEW_PRODUCE) is NONE
        described = producer.describe()
        assert described.transaction_state == "Ongoing"
        assert [(entry.topic, entry.partitions) for entry in described.topics] == [(topic, (0, 1))]
        before = producer.identity
        assert producer.end(committed=committed, version=5) is NONE
        assert producer.identity == (producer_id, epoch + n + 1)
        after, producer.identity = producer.identity, before
        assert producer.end(committed=committed, version=5) is NONE, "sent again"
        assert producer.identity == after
    assert committed_values(broker, topic, 4) == ["True-0", "True-0", "True-1", "True-1"]


def test_an_abort_without_records_is_answered(producer: Producer) -> None:
    producer.init()
    assert producer.end(committed=True, version=5) is ErrorCode.invalid_txn_state
    assert producer.end(committed=False, version=5) is NONE
    assert producer.identity[1] == 1
    assert producer.end(committed=False, version=4) is NONE
    assert producer.identity[1] == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_who_is_fenced_learns_it_in_words_it_knows(
    broker: str, topic: str, producer: Producer, version: int
) -> None:
    producer.init(0)
    successor = Producer(broker, producer.name)
    assert successor.init() is NONE
    told = ErrorCode.invalid_producer_epoch if version < 2 else ErrorCode.producer_fenced
    assert producer.add(topic, 0, version=version) == [told]
    assert producer.end(committed=True, version=version) is told
    reply = producer.call(
        ApiKey.ADD_OFFSETS_TO_TXN,
        version,
        transactional_id=producer.name,
        producer_id=producer.identity[0],
        producer_epoch=producer.identity[1],
        group_id="g",
    )
    assert reply.error_code is told
    assert producer.produce(topic, 0, "late", version=NEW_PRODUCE) is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_going_on_after_an_error(producer: Producer, version: int) -> None:
    producer.init(version)
    producer_id, epoch = producer.identity
    assert producer.init(version, producer_id=producer_id, producer_epoch=epoch) is NONE
    assert producer.identity == (producer_id, epoch + 1)
    fenced = ErrorCode.invalid_producer_epoch if version < 4 else ErrorCode.producer_fenced
    assert producer.init(version, producer_id=producer_id, producer_epoch=epoch + 5) is fenced
    assert producer.init(version, producer_id=producer_id, producer_epoch=-1) is ErrorCode.invalid_request


def test_two_phase_commit_is_off_unless_enabled(producer: Producer) -> None:
    off = ErrorCode.transactional_id_authorization_failed
    assert producer.init(6, enable2_pc=True) is off
    assert producer.init(6, keep_prepared_txn=True) is ErrorCode.unsupported_version
    assert producer.init(6, timeout_ms=10**9) is ErrorCode.invalid_transaction_timeout


def test_partitions_are_added_all_or_none(topic: str, producer: Producer) -> None:
    producer.init()
    for version in REGISTRY[ApiKey.ADD_PARTITIONS_TO_TXN].min_version, 3, 5:
        assert producer.add(topic, 0, 9, version=version) == [
            ErrorCode.operation_not_attempted,
            ErrorCode.unknown_topic_or_partition,
        ]
    assert producer.add(topic, 0, -1) == [
        ErrorCode.operation_not_attempted,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert producer.add("__transaction_state", 0) == [ErrorCode.topic_authorization_failed]
    assert producer.describe().transaction_state == "Empty"
    assert producer.describe().transaction_start_time is None
    assert producer.add(topic, 0, 1, version=5) == [NONE, NONE]


def test_a_dead_producer_is_fenced_after_its_time_out(broker: str, topic: str, producer: Producer) -> None:
    producer.init(timeout_ms=1)
    assert producer.produce(topic, 0, "lost", version=NEW_PRODUCE) is NONE
    deadline = time.monotonic() + 20
    while producer.describe().transaction_state != "CompleteAbort":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert producer.end(committed=True, version=5) is ErrorCode.invalid_txn_state
    assert producer.produce(topic, 0, "late", version=NEW_PRODUCE) is ErrorCode.invalid_producer_epoch
    assert committed_values(broker, topic, 0) == []


def test_initializing_aborts_what_was_left_open(broker: str, topic: str, producer: Producer) -> None:
    producer.init()
    assert producer.produce(topic, 0, "lost", version=NEW_PRODUCE) is NONE
    successor = Producer(broker, producer.name)
    assert successor.init() is NONE
    assert successor.identity == (producer.identity[0], producer.identity[1] + 2)
    assert successor.produce(topic, 0, "kept", version=NEW_PRODUCE) is NONE
    assert successor.end(committed=True, version=5) is NONE
    assert committed_values(broker, topic, 1) == ["kept"]


@pytest.mark.parametrize("version", range(3))
def test_listing(broker: str, topic: str, producer: Producer, version: int) -> None:
    producer.init()
    producer.produce(topic, 0, "open", version=NEW_PRODUCE)
    extra: dict[str, Any] = {}
    if version >= 1:
        extra["duration_filter"] = 0
    if version >= 2:
        extra["transactional_id_pattern"] = producer.name[:-1] + "."
    time.sleep(0.01)
    reply = producer.call(
        ApiKey.LIST_TRANSACTIONS,
        version,
        state_filters=("Ongoing", "Unheard"),
        producer_id_filters=(producer.identity[0],),
        **extra,
    )
    assert reply.error_code is NONE
    assert reply.unknown_state_filters == ("Unheard",)
    assert [(entry.transactional_id, entry.transaction_state) for entry in reply.transaction_states] == [
        (producer.name, "Ongoing")
    ]


def test_nobody_is_described() -> None:
    with ottla.testing.broker(set=SETTINGS) as started:
        producer = Producer(started.bootstrap_servers)
        assert producer.describe().error_code is ErrorCode.coordinator_not_available
        producer.find()
        deadline = time.monotonic() + 20
        while producer.describe().error_code is ErrorCode.coordinator_load_in_progress:
            assert time.monotonic() < deadline
        assert producer.describe().error_code is ErrorCode.transactional_id_not_found


def test_a_decision_survives_the_broker(tmp_path: Any) -> None:
    with ottla.testing.broker(set=SETTINGS, data_dir=str(tmp_path)) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
        producer = Producer(started.bootstrap_servers)
        producer.find()
        producer.init()
        producer.produce("orders", 0, "kept", version=NEW_PRODUCE)
        producer.end(committed=True, version=5)
        producer.produce("orders", 0, "open", version=NEW_PRODUCE)
        identity = producer.identity
    with ottla.testing.broker(set=SETTINGS, data_dir=str(tmp_path)) as started:
        again = Producer(started.bootstrap_servers, producer.name)
        again.find()
        assert again.init() is NONE
        assert again.identity == (identity[0], identity[1] + 2)
        assert committed_values(started.bootstrap_servers, "orders", 1) == ["kept"]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_that_are_announced_and_never_sent(version: int, committed: bool) -> None:
    """On a new broker: the topic they would be in does not exist, and does not come to be."""
    with ottla.testing.broker(set={"offsets.topic.num.partitions": 7}) as new:
        producer = Producer(new.bootstrap_servers)
        assert producer.find().error_code is NONE
        assert producer.init() is NONE
        for _ in range(2):
            reply = producer.call(
                ApiKey.ADD_OFFSETS_TO_TXN,
                3,
                transactional_id=producer.name,
                producer_id=producer.identity[0],
                producer_epoch=producer.identity[1],
                group_id="hello",
            )
            assert reply.error_code is NONE
            ((announced, partitions),) = [
                (topic.topic, topic.partitions) for topic in producer.describe().topics
            ]
            assert (announced, partitions) == ("__consumer_offsets", (99162322 % 7,))
            assert producer.end(committed=committed, version=version) is NONE
            deadline = time.monotonic() + 10
            while producer.describe().transaction_state != f"Complete{'Commit' if committed else 'Abort'}":
                assert time.monotonic() < deadline
        admin = AdminClient({"bootstrap.servers": new.bootstrap_servers})
        assert "__consumer_offsets" not in admin.list_topics(timeout=10).topics
        producer.connection.close()
