"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kafka_clients.client import ANSWER_TIMEOUT_S, REQUEST_BYTES_MAX, Message, Received, TooFewRecords, Where


class AiokafkaClient:
    name = "aiokafka"
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
        asyncio.run(self._produce(topic, messages, acks, compression, idempotent))

    async def _produce(
        self, topic: str, messages: Sequence[Message], acks: str, compression: str, idempotent: bool
    ) -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=self._bootstrap_servers,
            acks=acks if acks == "all" else int(acks),
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            max_request_size=REQUEST_BYTES_MAX,
            linger_ms=5,
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*sent), ANSWER_TIMEOUT_S)

    def read(self, topic: str, *, offset: int, count: int, partition: int = 0) -> list[Received]:
        return asyncio.run(self._read(topic, offset, count, partition))

    async def _read(self, topic: str, offset: int, count: int, partition: int) -> list[Received]:
        at = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            consumer.assign([at])
            consumer.seek(at, offset)
            received: list[Received] = []
            try:
                while len(received) < count:
                    r = await asyncio.wait_for(consumer.getone(at), ANSWER_TIMEOUT_S)
                    received.append(
                        Received(r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp)
                    )
            except TimeoutError:
                raise TooFewRecords(f"{len(received)} of {count} from {topic}-{partition}@{offset}") from None
            return received

    def offset_at(self, topic: str, where: Where | int, *, partition: int = 0) -> int:
        return asyncio.run(self._offset_at(topic, where, partition))

    async def _offset_at(self, topic: str, where: Where | int, partition: int) -> int:
        at = TopicPartition(topic, partition)
        async with self._consumer() as consumer:
            consumer.assign([at])
            if where is Where.BEGINNING:
                await consumer.seek_to_beginning(at)
                return int(await consumer.position(at))
            if where is Where.END:
                await consumer.seek_to_end(at)
                return int(await consumer.position(at))
            return int((await consumer.offsets_for_times({at: where}))[at].offset)

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
        )

    def close(self) -> None:
        pass
