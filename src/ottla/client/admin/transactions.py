"""Transactions of a cluster: listed and described by their coordinators, seen and ended on partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ottla.client.admin.topics import Partition, by_leader
from ottla.client.cluster import TRANSACTION, ClusterClient
from ottla.client.errors import error_for, raise_for_code
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


class Listed(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Transaction(NamedTuple):
    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[Partition, ...]
    """Those that still expect a marker."""


class ActiveProducer(NamedTuple):
    id: int
    epoch: int
    coordinator_epoch: int
    """-1 before the first marker."""
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int | None
    """The offset at which its open transaction begins on the partition."""


async def list_transactions(
    cluster: ClusterClient,
    *,
    duration_ms: int = -1,
    pattern: str | None = None,
    producer_ids: Sequence[int] = (),
) -> list[Listed]:
    """Of all brokers. Older ones cannot filter by duration or pattern, and would list everything."""
    filters: dict[str, Any] = {"producer_id_filters": list(producer_ids)}
    if duration_ms >= 0:
        await _require(cluster, 1, "filter by duration")
        filters["duration_filter"] = duration_ms
    if pattern:
        await _require(cluster, 2, "filter by a pattern of ids")
        filters["transactional_id_pattern"] = pattern
    return [
        Listed(item.transactional_id, node, item.producer_id, item.transaction_state)
        for node in (await cluster.cluster()).brokers
        for item in (await cluster.ask(node, ApiKey.LIST_TRANSACTIONS, filters, about="")).transaction_states
    ]


async def describe_transaction(cluster: ClusterClient, transactional_id: str) -> Transaction:
    """TRANSACTIONAL_ID_NOT_FOUND for one that its coordinator does not know."""

    def check_found(answer: Any) -> None:
        code = answer.transaction_states[0].error_code
        is_unknown = code == ErrorCode.transactional_id_not_found
        raise_for_code(code, "the ID could not be found" if is_unknown else None, "")

    wanted = {"transactional_ids": [transactional_id]}
    described = await cluster.ask_coordinator(
        TRANSACTION, transactional_id, ApiKey.DESCRIBE_TRANSACTIONS, wanted, check_found, about=""
    )
    (answer,) = described.transaction_states
    coordinator = await cluster.retried(lambda: cluster.coordinating_broker(TRANSACTION, transactional_id))
    start_ms = _milliseconds(answer.transaction_start_time)
    return Transaction(
        coordinator.id,
        transactional_id,
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_state,
        answer.transaction_timeout // timedelta(milliseconds=1),
        start_ms if start_ms >= 0 else None,
        tuple(
            sorted(Partition(topic.topic, number) for topic in answer.topics for number in topic.partitions)
        ),
    )


async def describe_producers(
    cluster: ClusterClient, partitions: Iterable[Partition], node: int | None = None
) -> dict[Partition, list[ActiveProducer]]:
    """As the leaders know them, or as one broker's replicas do."""
    grouped: Mapping[int, list[Partition]] = (
        await by_leader(cluster, partitions) if node is None else {node: sorted(partitions)}
    )
    found: dict[Partition, list[ActiveProducer]] = {}
    for broker, wanted in grouped.items():
        topics: dict[str, list[int]] = defaultdict(list)
        for partition in wanted:
            topics[partition.topic].append(partition.number)
        answer = await cluster.ask(
            broker,
            ApiKey.DESCRIBE_PRODUCERS,
            {"topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]},
            about="",
        )
        for topic in answer.topics:
            for item in topic.partitions:
                partition = Partition(topic.name, item.partition_index)
                raise_for_code(item.error_code, item.error_message, str(partition))
                found[partition] = [_active(producer) for producer in item.active_producers]
    return found


async def write_abort_marker(
    cluster: ClusterClient,
    partition: Partition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    (leader,) = await by_leader(cluster, [partition])
    answer = await cluster.ask(
        leader,
        ApiKey.WRITE_TXN_MARKERS,
        {
            "markers": [
                {
                    "producer_id": producer_id,
                    "producer_epoch": producer_epoch,
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_result": False,
                    "topics": [{"name": partition.topic, "partition_indexes": [partition.number]}],
                }
            ]
        },
        about="",
    )
    for marker in answer.markers:
        for topic in marker.topics:
            for item in topic.partitions:
                raise_for_code(item.error_code, None, str(partition))


async def fence(cluster: ClusterClient, transactional_id: str) -> None:
    """Whoever asks for the id anew ends what its last producer left open."""
    wanted = {"transactional_id": transactional_id, "transaction_timeout": cluster.timeouts.request_ms}
    await cluster.ask_coordinator(TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, wanted, about="")


def _active(producer: Any) -> ActiveProducer:
    start = producer.current_txn_start_offset
    return ActiveProducer(
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        start if start >= 0 else None,
    )


def _milliseconds(moment: datetime | None) -> int:
    return -1 if moment is None else round(moment.timestamp() * 1000)


async def _require(cluster: ClusterClient, version: int, what: str) -> None:
    peer = await cluster.retried(cluster.any_node)
    newest = peer.versions.get(ApiKey.LIST_TRANSACTIONS, (0, -1))[1]
    if newest < version:
        raise error_for(ErrorCode.unsupported_version, f"the broker is too old to {what} of transactions", "")
