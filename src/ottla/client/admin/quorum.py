"""The metadata quorum as its brokers describe it."""

from __future__ import annotations

from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.wire.api import METADATA_TOPIC, ApiKey


async def describe_quorum(cluster: ClusterClient) -> tuple[Any, Any]:
    """The whole answer, and what it says of the one partition there is."""

    def check(answer: Any) -> None:
        partition = answer.topics[0].partitions[0]
        raise_for_code(partition.error_code, partition.error_message, METADATA_TOPIC)

    answer = await cluster.ask(
        None,
        ApiKey.DESCRIBE_QUORUM,
        {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]},
        check=check,
        about="",
    )
    return answer, answer.topics[0].partitions[0]


async def quorum_leader(cluster: ClusterClient) -> int:
    """The id of the active controller; -1 while there is none."""
    _, partition = await describe_quorum(cluster)
    leader: int = partition.leader_id
    return leader
