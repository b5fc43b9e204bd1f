"""What a cluster says about itself: brokers, topics, and who leads which partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from ottla.wire.errors import ErrorCode

NO_LEADER = -1


class BrokerNode(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerNode]


def read_cluster(answer: Any) -> ClusterInfo:
    brokers = {
        broker.node_id: BrokerNode(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(answer.brokers, key=lambda broker: broker.node_id)
    }
    return ClusterInfo(answer.cluster_id, answer.controller_id, brokers)


def read_topic(topic: Any) -> TopicInfo:
    partitions = {
        partition.partition_index: PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            partition.error_code,
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions)
