"""confluent-kafka, that is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kafka_clients.client import ANSWER_TIMEOUT_S, REQUEST_BYTES_MAX, Message, Received, TooFewRecords, Where


class ConfluentClient:
    name = "confluent-kafka"
    codecs = ("gzip", "snappy", "lz4", "zstd")
    sets_timestamps = True
    sends_null_headers = True
    repeats_headers = True
    sends_tombstones = True

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        compression: str = "none",
        idempotent: bool = False,
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "acks": acks,
                "compression.type": compression,
                "enable.idempotence": idempotent,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        for message in messages:
            where: dict[str, Any] = {}
            if message.partition is not None:
                where["partition"] = message.partition
            if message.timestamp_ms is not None:
                where["timestamp"] = message.timestamp_ms
            producer.produce(
                topic,
                message.value,
                message.key,
                headers=list(message.headers),
                on_delivery=delivered,
                **where,
            )
        left = producer.flush(ANSWER_TIMEOUT_S)
        assert not failures, f"{len(failures)} not delivered, first: {failures[0]}"
        assert not left, f"{left} of {len(messages)} messages still unacknowledged"

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        consumer = self._consumer()
        received: list[Received] = []
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
            while len(received) < count and time.monotonic() < deadline:
                for record in consumer.consume(count - len(received), timeout=0.5):
                    assert record.error() is None, record.error()
                    received.append(
                        Received(
                            record.partition(),
                            record.offset(),
                            record.key(),
                            record.value(),
                            tuple(record.headers() or ()),
                            record.timestamp()[1],
                        )
                    )
        finally:
            consumer.close()
        if len(received) < count:
            raise TooFewRecords(f"{len(received)} of {count} from {topic}-{partition}@{offset}")
        return received

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        consumer = self._consumer()
        try:
            if isinstance(where, Where):
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT_S
                )
                return int(low if where is Where.BEGINNING else high)
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, where)], timeout=ANSWER_TIMEOUT_S
            )
            return int(found.offset)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        # librdkafka insists on a group's name; with assign() and without commits it never uses it.
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
            }
        )

    def close(self) -> None:
        pass
