"""kafka-python."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kafka_clients.client import ANSWER_TIMEOUT_S, REQUEST_BYTES_MAX, Message, Received, TooFewRecords, Where


class KafkaPythonClient:
    name = "kafka-python"
    codecs = ("gzip", "snappy", "lz4", "zstd")
    sets_timestamps = True
    sends_null_headers = False
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
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            for future in sent:
                future.get(ANSWER_TIMEOUT_S)
        finally:
            producer.close()

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        consumer = self._consumer(topic, partition)
        received: list[Received] = []
        try:
            consumer.seek(TopicPartition(topic, partition), offset)
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
            while len(received) < count and time.monotonic() < deadline:
                for records in consumer.poll(timeout_ms=500).values():
                    received += [
                        Received(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
                        for r in records
                    ]
        finally:
            consumer.close()
        if len(received) < count:
            raise TooFewRecords(f"{len(received)} of {count} from {topic}-{partition}@{offset}")
        return received[:count]

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        consumer = self._consumer(topic, partition)
        at = TopicPartition(topic, partition)
        try:
            if where is Where.BEGINNING:
                consumer.seek_to_beginning(at)
                return int(consumer.position(at))
            if where is Where.END:
                consumer.seek_to_end(at)
                return int(consumer.position(at))
            return int(consumer.offsets_for_times({at: where})[at].offset)
        finally:
            consumer.close()

    def _consumer(self, topic: str, partition: int) -> KafkaConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap_servers, group_id=None, enable_auto_commit=False
        )
        consumer.assign([TopicPartition(topic, partition)])
        return consumer

    def close(self) -> None:
        pass
