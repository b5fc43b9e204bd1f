"""The metadata quorum: as its nodes describe it, and with other voters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ottla.client.cluster import ClusterClient
from ottla.client.errors import raise_for_code
from ottla.client.peer import Peer
from ottla.wire.api import METADATA_TOPIC, ApiKey

CONTROLLERS = 2
"""Of DescribeCluster: not brokers."""


async def describe_quorum(cluster: ClusterClient) -> tuple[Any, Any]:
    """The whole answer, and what it says of the one partition there is."""

    def check(answer: Any) -> None:
        partition = answer.topics[0].partitions[0]
        raise_for_code(partition.error_code, partition.error_message, METADATA_TOPIC)

    answer = await cluster.ask(
        lambda: _leader(cluster),
        ApiKey.DESCRIBE_QUORUM,
        {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]},
        check=check,
        about="",
    )
    return answer, answer.topics[0].partitions[0]


async def add_voter(
    cluster: ClusterClient, voter_id: int, directory_id: UUID, listeners: Sequence[tuple[str, str, int]]
) -> None:
    """`listeners` are name, host and port each. Asked again until it is caught up, or the time is up."""
    values = {
        "cluster_id": None,
        "timeout": cluster.timeouts.request_ms,
        "voter_id": voter_id,
        "voter_directory_id": directory_id,
        "listeners": [{"name": name, "host": host, "port": port} for name, host, port in listeners],
    }
    await cluster.ask(lambda: _leader(cluster), ApiKey.ADD_RAFT_VOTER, values, about="")


async def remove_voter(cluster: ClusterClient, voter_id: int, directory_id: UUID) -> None:
    values = {"cluster_id": None, "voter_id": voter_id, "voter_directory_id": directory_id}
    await cluster.ask(lambda: _leader(cluster), ApiKey.REMOVE_RAFT_VOTER, values, about="")


async def _leader(cluster: ClusterClient) -> Peer:
    """Any broker hands on what only the leader can answer; of controllers it must be asked itself."""
    peer = await cluster.any_node()
    if ApiKey.METADATA in peer.versions:
        return peer
    answer = await peer.ask(ApiKey.DESCRIBE_CLUSTER, {"endpoint_type": CONTROLLERS})
    for node in answer.brokers:
        if node.broker_id == answer.controller_id:
            return await cluster.node_at(node.host, node.port)
    return peer


async def quorum_leader(cluster: ClusterClient) -> int:
    """The id of the active controller; -1 while there is none."""
    _, partition = await describe_quorum(cluster)
    leader: int = partition.leader_id
    return leader
