"""Transactional producers that misbehave, as `Producers.java` does it for the Java client.

    python -m transforming.producers confluent|aio die|zombie <servers> <topic> <id> <timeout ms>

The one that dies leaves a record in an open transaction; the zombie goes on after its successor has begun,
and prints what it was told. Status 9 is the expected end.
"""

from __future__ import annotations

import asyncio
import os
import sys


class Confluent:
    def __init__(self, servers: str, topic: str, transactional_id: str, timeout_ms: str) -> None:
        self._topic = topic
        self._settings = {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(timeout_ms),
            "retry.backoff.ms": 20,
            "linger.ms": 0,
        }

    def die(self) -> None:
        from confluent_kafka import Producer

        producer = Producer(self._settings)
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(self._topic, b"never")
        assert producer.flush(20) == 0

    def zombie(self) -> None:
        from confluent_kafka import KafkaException, Producer

        first, second = Producer(self._settings), Producer(self._settings)
        first.init_transactions(20)
        first.begin_transaction()
        first.produce(self._topic, b"zombie")
        assert first.flush(20) == 0
        second.init_transactions(20)
        second.begin_transaction()
        second.produce(self._topic, b"successor")
        assert second.flush(20) == 0
        try:
            first.produce(self._topic, b"zombie again")
            first.commit_transaction(20)
        except KafkaException as error:
            print("refused", error.args[0].name())
        else:
            print("committed")
        second.commit_transaction(20)


class Aio:
    def __init__(self, servers: str, topic: str, transactional_id: str, timeout_ms: str) -> None:
        self._topic = topic
        self._settings = {
            "bootstrap_servers": servers,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": int(timeout_ms),
            "retry_backoff_ms": 20,
        }

    def die(self) -> None:
        asyncio.run(self._die())

    def zombie(self) -> None:
        asyncio.run(self._zombie())

    async def _die(self) -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(**self._settings)
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(self._topic, b"never")
        os._exit(9)

    async def _zombie(self) -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError

        first, second = AIOKafkaProducer(**self._settings), AIOKafkaProducer(**self._settings)
        await first.start()
        await first.begin_transaction()
        await first.send_and_wait(self._topic, b"zombie")
        await second.start()
        await second.begin_transaction()
        await second.send_and_wait(self._topic, b"successor")
        try:
            await first.send(self._topic, b"zombie again")
            await first.commit_transaction()
        except KafkaError as error:
            print("refused", type(error).__name__)
        else:
            print("committed")
        await second.commit_transaction()
        sys.stdout.flush()
        os._exit(9)


if __name__ == "__main__":
    client, role, *arguments = sys.argv[1:]
    getattr({"confluent": Confluent, "aio": Aio}[client](*arguments), role)()
    sys.stdout.flush()
    os._exit(9)
