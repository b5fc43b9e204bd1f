"""One shape for the Python clients: poll a few records, commit exactly those, name the partitions owned."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

BATCH_RECORDS_MAX = 20
POLL_TIMEOUT_MS = 100
HEARTBEAT_INTERVAL_MS = 100
# Short, since tests wait it out when a member is killed; far above what a busy machine delays a heartbeat.
SESSION_TIMEOUT_MS = 2_000
REBALANCE_TIMEOUT_MS = 10_000


class At(NamedTuple):
    topic: str
    partition: int
    offset: int


class CommitRefused(Exception):
    """The group is rebalancing or the member is no longer in it: the records come again, to someone."""


class GroupConsumer(Protocol):
    def poll(self) -> list[At]: ...

    def commit(self, positions: list[At]) -> None: ...

    def assignment(self) -> list[tuple[str, int]]: ...

    def close(self) -> None: ...


class ConfluentConsumer:
    def __init__(
        self, bootstrap_servers: str, group: str, topics: list[str], protocol: str, assignor: str | None
    ) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": POLL_TIMEOUT_MS,
            "max.poll.interval.ms": REBALANCE_TIMEOUT_MS,
            "log_level": 0,
        }
        if protocol == "classic":
            settings["session.timeout.ms"] = SESSION_TIMEOUT_MS
            settings["heartbeat.interval.ms"] = HEARTBEAT_INTERVAL_MS
            settings["partition.assignment.strategy"] = assignor or "range"
        elif assignor is not None:
            settings["group.remote.assignor"] = assignor
        self._consumer = Consumer(settings)
        self._consumer.subscribe(topics)

    def poll(self) -> list[At]:
        from confluent_kafka import KafkaException

        received = []
        for message in self._consumer.consume(BATCH_RECORDS_MAX, POLL_TIMEOUT_MS / 1000):
            if message.error():
                raise KafkaException(message.error())
            received.append(At(message.topic(), message.partition(), message.offset()))
        return received

    def commit(self, positions: list[At]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            self._consumer.commit(
                offsets=[TopicPartition(*position) for position in positions], asynchronous=False
            )
        except KafkaException as error:
            raise CommitRefused(error.args[0].name()) from error

    def assignment(self) -> list[tuple[str, int]]:
        return [(item.topic, item.partition) for item in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonConsumer:
    def __init__(self, bootstrap_servers: str, group: str, topics: list[str]) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            max_poll_interval_ms=REBALANCE_TIMEOUT_MS,
        )
        # If it joins before it knows the partitions, it may lead a group in which nobody ever gets one.
        for topic in topics:
            self._consumer.partitions_for_topic(topic)
        self._consumer.subscribe(topics)

    def poll(self) -> list[At]:
        polled = self._consumer.poll(timeout_ms=POLL_TIMEOUT_MS, max_records=BATCH_RECORDS_MAX)
        return [At(r.topic, r.partition, r.offset) for records in polled.values() for r in records]

    def commit(self, positions: list[At]) -> None:
        from kafka import OffsetAndMetadata, TopicPartition
        from kafka.errors import CommitFailedError, KafkaError

        try:
            self._consumer.commit(
                {TopicPartition(t, p): OffsetAndMetadata(offset, "", -1) for t, p, offset in positions}
            )
        except (CommitFailedError, KafkaError) as error:
            raise CommitRefused(type(error).__name__) from error

    def assignment(self) -> list[tuple[str, int]]:
        return [(item.topic, item.partition) for item in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AiokafkaConsumer:
    """On an event loop of its own, which runs whenever the member polls, so heartbeats are sent as well."""

    def __init__(self, bootstrap_servers: str, group: str, topics: list[str]) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(bootstrap_servers, group, topics))

    async def _start(self, bootstrap_servers: str, group: str, topics: list[str]) -> None:
        from aiokafka import AIOKafkaConsumer

        self._consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_TIMEOUT_MS,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            max_poll_interval_ms=REBALANCE_TIMEOUT_MS,
        )
        await self._consumer.start()

    def poll(self) -> list[At]:
        polled = self._loop.run_until_complete(
            self._consumer.getmany(timeout_ms=POLL_TIMEOUT_MS, max_records=BATCH_RECORDS_MAX)
        )
        return [At(r.topic, r.partition, r.offset) for records in polled.values() for r in records]

    def commit(self, positions: list[At]) -> None:
        from aiokafka import TopicPartition
        from aiokafka.errors import KafkaError

        try:
            self._loop.run_until_complete(
                self._consumer.commit({TopicPartition(t, p): offset for t, p, offset in positions})
            )
        except KafkaError as error:
            raise CommitRefused(type(error).__name__) from error

    def assignment(self) -> list[tuple[str, int]]:
        return [(item.topic, item.partition) for item in self._consumer.assignment()]

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


def join(
    client: str, bootstrap_servers: str, group: str, topics: list[str], assignor: str | None
) -> GroupConsumer:
    match client:
        case "confluent-classic" | "confluent-consumer":
            protocol = client.removeprefix("confluent-")
            return ConfluentConsumer(bootstrap_servers, group, topics, protocol, assignor)
        case "kafka-python":
            return KafkaPythonConsumer(bootstrap_servers, group, topics)
        case "aiokafka":
            return AiokafkaConsumer(bootstrap_servers, group, topics)
    raise ValueError(f"no client is named {client!r}")
