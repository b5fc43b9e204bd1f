"""Markers for partitions that other brokers lead: WriteTxnMarkers, one request at a time to each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ottla.coordinator.transactions.gathering import Gathering
from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.log.types import TopicPartition
from ottla.records.markers import Marker
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


class Told(NamedTuple):
    marker: Marker
    transaction_version: int
    partitions: Sequence[TopicPartition]
    """Sorted."""


class RemoteMarkers:
    def __init__(self, ask: AskBroker, tasks: TaskScope) -> None:
        self._ask = ask
        self._gathering = Gathering[Told, dict[TopicPartition, ErrorCode]](
            self._send, lambda told: told.marker.producer_id, tasks, "markers-to"
        )

    async def write(self, broker_id: int, told: Told) -> dict[TopicPartition, ErrorCode]:
        """A code for each partition. Raises KafkaError where there is no answer."""
        return await self._gathering.ask(broker_id, told)

    async def _send(self, broker_id: int, all_told: Sequence[Told]) -> list[dict[TopicPartition, ErrorCode]]:
        values = {"markers": [_values(told) for told in all_told]}
        answer = await self._ask(broker_id, ApiKey.WRITE_TXN_MARKERS, values)
        # Kafka answers by producer, in no order.
        codes = {
            (marker.producer_id, topic.name, row.partition_index): row.error_code
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        }
        return [
            {
                tp: codes.get((told.marker.producer_id, *tp), ErrorCode.unknown_server_error)
                for tp in told.partitions
            }
            for told in all_told
        ]


def _values(told: Told) -> dict[str, Any]:
    marker = told.marker
    return {
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_result": marker.committed,
        "transaction_version": told.transaction_version,
        "topics": [
            {"name": topic, "partition_indexes": [tp.partition for tp in partitions]}
            for topic, partitions in groupby(told.partitions, key=lambda tp: tp.topic)
        ],
    }
