"""What a consumer can subscribe to, where it starts, and every way to commit, with both group protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions
from group_members.consumers import HEARTBEAT_INTERVAL_MS, POLL_TIMEOUT_MS, SESSION_TIMEOUT_MS
from kafka import KafkaConsumer, OffsetAndMetadata
from kafka import TopicPartition as KafkaPythonPartition
from kafka.errors import NoOffsetForPartitionError, OffsetMetadataTooLargeError

WAIT_S_MAX = 30.0

# Keywords: settings with underscores for dots, and callbacks.
NewConsumer = Callable[..., Consumer]


@pytest.fixture(params=["classic", "consumer"])
def new_consumer(request: pytest.FixtureRequest, bootstrap_servers: str, group: str) -> Iterator[NewConsumer]:
    opened: list[Consumer] = []

    def open_consumer(**settings: object) -> Consumer:
        merged: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": request.param,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": POLL_TIMEOUT_MS,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
        if request.param == "classic":
            merged["session.timeout.ms"] = SESSION_TIMEOUT_MS
            merged["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
        merged |= {
            name if callable(value) else name.replace("_", "."): value for name, value in settings.items()
        }
        opened.append(Consumer(merged))
        return opened[-1]

    yield open_consumer
    for consumer in opened:
        consumer.close()


@pytest.fixture
def group(names: Iterator[str]) -> str:
    return f"group-{next(names)}"


@pytest.fixture(scope="session")
def produce(bootstrap_servers: str) -> Callable[..., None]:
    def send(topic: str, *values: str, partition: int = 0) -> None:
        # A new one each time, because it knows all partitions there are now.
        producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_S_MAX) == 0

    return send


def receive(consumer: Consumer, count: int) -> list[Message]:
    received: list[Message] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(received) < count:
        assert time.monotonic() < deadline, f"{len(received)} of {count} records"
        message = consumer.poll(POLL_TIMEOUT_MS / 1000)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            received.append(message)
    return received


def values(messages: list[Message]) -> list[str]:
    return [message.value().decode() for message in messages]


def poll_until(consumer: Consumer, condition: Callable[[], bool], what: str) -> list[Message]:
    received = []
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {WAIT_S_MAX} s: {what}"
        message = consumer.poll(POLL_TIMEOUT_MS / 1000)
        if message is not None and not message.error():
            received.append(message)
    return received


def assigned_to(consumer: Consumer) -> set[tuple[str, int]]:
    return {(item.topic, item.partition) for item in consumer.assignment()}


def committed(consumer: Consumer, topic: str) -> tuple[int, str | None]:
    found = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S_MAX)[0]
    assert found.error is None
    return found.offset, found.metadata


def test_several_topics(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topics = [new_topic(partitions=2), new_topic(partitions=1), new_topic(partitions=1)]
    for topic in topics:
        produce(topic, f"in {topic}")
    consumer = new_consumer()
    consumer.subscribe(topics[:2])

    assert sorted(values(receive(consumer, 2))) == sorted(f"in {topic}" for topic in topics[:2])
    assert assigned_to(consumer) == {(topics[0], 0), (topics[0], 1), (topics[1], 0)}

    consumer.subscribe(topics[1:])
    poll_until(
        consumer,
        lambda: assigned_to(consumer) == {(topics[1], 0), (topics[2], 0)},
        "the partitions of the new subscription",
    )


def test_a_regular_expression_finds_new_topics(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None], group: str
) -> None:
    first, other = new_topic(prefix=f"orders-{group}"), new_topic(prefix=f"not-orders-{group}")
    consumer = new_consumer()
    consumer.subscribe([f"^orders-{group}-.*"])
    produce(first, "first")
    produce(other, "other")
    assert values(receive(consumer, 1)) == ["first"]
    consumer.commit(asynchronous=False)
    assert assigned_to(consumer) == {(first, 0)}

    second = new_topic(prefix=f"orders-{group}", partitions=2)
    produce(second, "second", partition=1)
    assert values(receive(consumer, 1)) == ["second"]
    assert assigned_to(consumer) == {(first, 0), (second, 0), (second, 1)}


def test_new_partitions_are_assigned(
    new_consumer: NewConsumer,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    admin: AdminClient,
) -> None:
    topic = new_topic(partitions=1)
    produce(topic, "before")
    consumer = new_consumer()
    consumer.subscribe([topic])
    assert values(receive(consumer, 1)) == ["before"]
    consumer.commit(asynchronous=False)

    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(WAIT_S_MAX)
    produce(topic, "after", partition=2)
    assert values(receive(consumer, 1)) == ["after"]
    assert assigned_to(consumer) == {(topic, 0), (topic, 1), (topic, 2)}


def test_a_paused_partition_waits(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    consumer = new_consumer()
    consumer.subscribe([topic])
    poll_until(consumer, lambda: len(assigned_to(consumer)) == 2, "an assignment")

    consumer.pause([TopicPartition(topic, 0)])
    produce(topic, "paused", partition=0)
    produce(topic, *(f"goes on {number}" for number in range(20)), partition=1)
    assert {message.partition() for message in receive(consumer, 20)} == {1}

    consumer.resume([TopicPartition(topic, 0)])
    assert values(receive(consumer, 1)) == ["paused"]


def test_the_group_does_not_touch_what_is_assigned_by_hand(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic(partitions=2)
    produce(topic, "a", "b", partition=1)
    member = new_consumer()
    member.subscribe([topic])
    assert values(receive(member, 2)) == ["a", "b"]
    member.commit(asynchronous=False)

    by_hand = new_consumer()
    by_hand.assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    assert values(receive(by_hand, 2)) == ["a", "b"]
    assert assigned_to(member) == {(topic, 0), (topic, 1)}


def test_a_commit_is_awaited(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, "a", "b", "c")
    consumer = new_consumer()
    consumer.subscribe([topic])
    second = receive(consumer, 2)[-1]

    answer = consumer.commit(message=second, asynchronous=False)

    assert [(item.topic, item.partition, item.offset) for item in answer] == [(topic, 0, 2)]
    consumer.close()
    successor = new_consumer()
    successor.subscribe([topic])
    assert values(receive(successor, 1)) == ["c"]


def test_a_commit_is_answered_later(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    answers: list[tuple[KafkaError | None, list[TopicPartition]]] = []
    topic = new_topic()
    produce(topic, "a", "b")
    consumer = new_consumer(on_commit=lambda error, partitions: answers.append((error, partitions)))
    consumer.subscribe([topic])
    consumer.commit(message=receive(consumer, 2)[-1], asynchronous=True)

    poll_until(consumer, lambda: bool(answers), "the answer to the commit")

    assert [(error, partitions[0].offset) for error, partitions in answers] == [(None, 2)]
    assert committed(consumer, topic)[0] == 2


def test_commits_go_out_on_their_own(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, "a", "b")
    consumer = new_consumer(enable_auto_commit=True, auto_commit_interval_ms=100)
    consumer.subscribe([topic])
    receive(consumer, 2)
    poll_until(consumer, lambda: committed(consumer, topic)[0] == 2, "a commit by the interval")

    produce(topic, "c")
    receive(consumer, 1)
    consumer.close()
    assert committed(new_consumer(), topic)[0] == 3


def test_metadata_of_a_commit_is_kept(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, "a", "b")
    consumer = new_consumer()
    consumer.subscribe([topic])
    receive(consumer, 1)
    # confluent-kafka adds a zero byte, so one less than the 4,096 of offset.metadata.max.bytes.
    longest = "x" * 4095
    for metadata in ("checksum ä1", "", longest):
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, metadata=metadata)], asynchronous=False)
        offset, kept = committed(consumer, topic)
        assert (offset, kept or "") == (1, metadata)

    with pytest.raises(KafkaException) as refusal:
        consumer.commit(offsets=[TopicPartition(topic, 0, 2, metadata=longest + "x")], asynchronous=False)
    assert refusal.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert committed(consumer, topic)[0] == 1


def test_the_start_without_a_commit(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None], group: str
) -> None:
    topic = new_topic()
    produce(topic, "old")

    earliest = new_consumer(group_id=f"{group}-earliest", auto_offset_reset="earliest")
    earliest.subscribe([topic])
    assert values(receive(earliest, 1)) == ["old"]

    none = new_consumer(group_id=f"{group}-none", auto_offset_reset="error")
    none.subscribe([topic])
    with pytest.raises(KafkaException) as refusal:
        receive(none, 1)
    assert refusal.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET

    latest = new_consumer(group_id=f"{group}-latest", auto_offset_reset="latest")
    latest.subscribe([topic])
    # Records from before it has looked for the end are not for it, so there have to be some after that.
    deadline = time.monotonic() + WAIT_S_MAX
    while (message := latest.poll(POLL_TIMEOUT_MS / 1000)) is None:
        assert time.monotonic() < deadline
        produce(topic, "new")
    assert values([message]) == ["new"]


def test_a_commit_beyond_the_log_falls_back_to_the_reset(
    new_consumer: NewConsumer, new_topic: Callable[..., str], produce: Callable[..., None]
) -> None:
    topic = new_topic()
    produce(topic, "a", "b")
    consumer = new_consumer()
    consumer.commit(offsets=[TopicPartition(topic, 0, 1000)], asynchronous=False)
    consumer.subscribe([topic])
    assert values(receive(consumer, 2)) == ["a", "b"]


def test_kafka_python_starts_and_commits(
    bootstrap_servers: str, new_topic: Callable[..., str], produce: Callable[..., None], group: str
) -> None:
    topic = new_topic()
    produce(topic, "a", "b")
    where = KafkaPythonPartition(topic, 0)

    def open_consumer(reset: str) -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            consumer_timeout_ms=int(WAIT_S_MAX * 1000),
        )

    strict = open_consumer("none")
    with pytest.raises(NoOffsetForPartitionError):
        next(strict)
    strict.close()

    consumer = open_consumer("earliest")
    assert next(consumer).value == b"a"
    with pytest.raises(OffsetMetadataTooLargeError):
        consumer.commit({where: OffsetAndMetadata(2, "x" * 4097, -1)})
    consumer.commit({where: OffsetAndMetadata(1, "x" * 4096, -1)})
    consumer.close()

    successor = open_consumer("none")
    assert next(successor).value == b"b"
    assert successor.committed(where, metadata=True) == OffsetAndMetadata(1, "x" * 4096, -1)
    successor.close()


def test_kafka_python_reads_without_a_group(
    bootstrap_servers: str, new_topic: Callable[..., str], produce: Callable[..., None], admin: AdminClient
) -> None:
    topic = new_topic()
    produce(topic, "a", "b")
    before = {group.group_id for group in admin.list_consumer_groups().result(WAIT_S_MAX).valid}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest"
    )
    assert [next(consumer).value for _ in range(2)] == [b"a", b"b"]
    consumer.close()
    assert {group.group_id for group in admin.list_consumer_groups().result(WAIT_S_MAX).valid} == before
