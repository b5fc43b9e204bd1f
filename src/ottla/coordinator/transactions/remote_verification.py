"""Asking a coordinator on another broker about a transaction: AddPartitionsToTxn from brokers (KIP-890)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ottla.coordinator.transactions.gathering import Gathering
from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.log.types import TopicPartition
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


class Asked(NamedTuple):
    transactional_id: str
    producer: ProducerIdentity
    partitions: Sequence[TopicPartition]
    """Sorted."""
    add: bool
    """They become part of the transaction; else it is only asked whether they are."""


class RemoteVerification:
    def __init__(self, ask: AskBroker, tasks: TaskScope) -> None:
        self._ask = ask
        self._gathering = Gathering[Asked, dict[TopicPartition, ErrorCode]](
            self._send, lambda asked: asked.transactional_id, tasks, "verification-by"
        )

    async def verify(self, broker_id: int, asked: Asked) -> dict[TopicPartition, ErrorCode]:
        """Raises KafkaError where there is no answer."""
        return await self._gathering.ask(broker_id, asked)

    async def _send(
        self, broker_id: int, questions: Sequence[Asked]
    ) -> list[dict[TopicPartition, ErrorCode]]:
        values = {"transactions": [_values(asked) for asked in questions]}
        answer = await self._ask(broker_id, ApiKey.ADD_PARTITIONS_TO_TXN, values)
        if answer.error_code != ErrorCode.none:
            return [dict.fromkeys(asked.partitions, answer.error_code) for asked in questions]
        codes = {
            (result.transactional_id, topic.name, row.partition_index): row.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        return [
            {
                tp: codes.get((asked.transactional_id, *tp), ErrorCode.unknown_server_error)
                for tp in asked.partitions
            }
            for asked in questions
        ]


def _values(asked: Asked) -> dict[str, Any]:
    return {
        "transactional_id": asked.transactional_id,
        "producer_id": asked.producer.id,
        "producer_epoch": asked.producer.epoch,
        "verify_only": not asked.add,
        "topics": [
            {"name": topic, "partitions": [tp.partition for tp in partitions]}
            for topic, partitions in groupby(asked.partitions, key=lambda tp: tp.topic)
        ],
    }
