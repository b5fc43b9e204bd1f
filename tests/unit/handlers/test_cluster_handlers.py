"""ApiVersions, DescribeCluster, DescribeTopicPartitions, DescribeQuorum."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from cluster_images import broker_image, broker_with, context, image_of, partition_image
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.serial import entity_reader

from ottla.handlers.api_versions import api_versions, unsupported_version_response
from ottla.handlers.authorized import NOT_ASKED
from ottla.handlers.cluster import describe_cluster
from ottla.handlers.context import Broker
from ottla.handlers.quorum import describe_quorum
from ottla.handlers.registry import REGISTRY
from ottla.handlers.topic_partitions import describe_topic_partitions
from ottla.raft.driver import QuorumDescription
from ottla.raft.progress import Progress
from ottla.raft.voters import Listener, ReplicaKey, Voter, VoterSet
from ottla.runtime.clock import SystemClock
from ottla.telemetry.clients import ClientTelemetry
from ottla.wire.acls import OPERATIONS, AclResource
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

TOPIC_OPERATIONS = sum(1 << operation for operation in OPERATIONS[AclResource.TOPIC])
CLUSTER_OPERATIONS = sum(1 << operation for operation in OPERATIONS[AclResource.CLUSTER])


def versions(name: str = "client", version: str = "1.0", api_version: int = 4) -> Any:
    telemetry = ClientTelemetry(SystemClock(), Random(1), 1000)
    broker = broker_with(image_of(features={"metadata.version": 27, "unset": 0}), telemetry=telemetry)
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    return api_versions(broker, context(api_version), request)


def test_the_registry_is_advertised() -> None:
    response = versions()
    assert response.error_code is ErrorCode.none
    advertised = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert advertised.keys() == REGISTRY.keys()
    for key, api in REGISTRY.items():
        lowest = 0 if key == ApiKey.PRODUCE else api.min_version
        assert advertised[key] == (lowest, api.max_version)
    assert [entry.api_key for entry in response.api_keys] == sorted(REGISTRY)


def test_features() -> None:
    response = versions()
    assert [(f.name, f.min_version > 0) for f in response.supported_features] == [
        ("metadata.version", True),
        ("group.version", False),
        ("transaction.version", False),
        ("share.version", False),
        ("eligible.leader.replicas.version", False),
        ("kraft.version", False),
    ]
    assert [(f.name, f.min_version_level, f.max_version_level) for f in response.finalized_features] == [
        ("metadata.version", 27, 27)
    ]
    assert response.finalized_features_epoch == 42


@pytest.mark.parametrize("name, version", [("", "1"), ("a", ""), ("-a", "1"), ("a b", "1"), ("a", "1.")])
def test_software_that_does_not_name_itself_properly(name: str, version: str) -> None:
    response = versions(name, version, 3)
    assert (response.error_code, response.api_keys) == (ErrorCode.invalid_request, ())
    assert versions(name, version, 2).error_code is ErrorCode.none


def test_an_unknown_version_is_answered_in_version_0() -> None:
    body = unsupported_version_response()
    response, size = entity_reader(ApiVersionsResponse)(memoryview(body), 0)
    assert size == len(body)
    assert response.error_code is ErrorCode.unsupported_version
    assert [(e.api_key, e.min_version, e.max_version) for e in response.api_keys] == [(18, 0, 4)]


def cluster(*, endpoint_type: int = 1, fenced: bool = False, operations: bool = False) -> Any:
    image = image_of(brokers=[broker_image(3), broker_image(1), broker_image(2, fenced=True)])
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=fenced,
    )
    return describe_cluster(broker_with(image), context(2), request)


def test_describe_cluster() -> None:
    response = cluster()
    assert (response.error_code, response.cluster_id, response.controller_id) == (
        ErrorCode.none,
        "cluster",
        1,
    )
    assert [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers] == [
        (1, "host1", 9091, "rack1", False),
        (3, "host3", 9093, "rack3", False),
    ]
    assert response.cluster_authorized_operations == NOT_ASKED
    assert cluster(operations=True).cluster_authorized_operations == CLUSTER_OPERATIONS
    assert [(b.broker_id, b.is_fenced) for b in cluster(fenced=True).brokers] == [
        (1, False),
        (2, True),
        (3, False),
    ]


@pytest.mark.parametrize(
    "endpoint_type, error",
    [(2, ErrorCode.mismatched_endpoint_type), (9, ErrorCode.unsupported_endpoint_type)],
)
def test_only_brokers_are_described(endpoint_type: int, error: ErrorCode) -> None:
    response = cluster(endpoint_type=endpoint_type)
    assert (response.error_code, response.brokers) == (error, ())
    assert str(endpoint_type) in response.error_message


def paging_broker(limit: int = 2000) -> Broker:
    states = [partition_image(replicas=(1, 2))]
    image = image_of({"c": states * 3, "a": states * 2, "b": states})
    return broker_with(image, {"max.request.partition.size.limit": str(limit)})


def page(
    broker: Broker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None, Any]:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=cursor and Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = asyncio.run(describe_topic_partitions(broker, context(0), request))
    following = response.next_cursor
    return (
        [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics],
        following and (following.topic_name, following.partition_index),
        response,
    )


def test_all_topics_in_order() -> None:
    topics, following, response = page(paging_broker())
    assert topics == [("a", [0, 1]), ("b", [0]), ("c", [0, 1, 2])]
    assert following is None
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 5, (1, 2))
    assert (partition.isr_nodes, partition.offline_replicas) == ((1,), (2,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6])
def test_pages_add_up(limit: int) -> None:
    broker = paging_broker()
    cursor = None
    seen = []
    for _ in range(10):
        topics, cursor, _ = page(broker, limit=limit, cursor=cursor)
        described = [(name, index) for name, indexes in topics for index in indexes]
        assert len(described) <= limit
        seen += described
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]


def test_the_broker_limits_pages_too() -> None:
    topics, following, _ = page(paging_broker(limit=2))
    assert (topics, following) == ([("a", [0, 1])], ("b", 0))


def test_a_limit_of_nothing_is_one() -> None:
    assert page(paging_broker(), limit=0)[:2] == ([("a", [0])], ("a", 1))


def test_named_topics() -> None:
    topics, _, response = page(paging_broker(), "c", "absent", "no good", "a")
    assert topics == [("a", [0, 1]), ("absent", []), ("c", [0, 1, 2]), ("no good", [])]
    assert [topic.error_code for topic in response.topics] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.none,
        ErrorCode.invalid_topic_exception,
    ]


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_cursors_that_point_nowhere(cursor: tuple[str, int]) -> None:
    _, following, response = page(paging_broker(), "a", "c", cursor=cursor)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.invalid_request] * 2
    assert following is None


def test_a_cursor_behind_the_last_partition_goes_on_with_the_next_topic() -> None:
    topics, following, _ = page(paging_broker(), cursor=("a", 2))
    assert topics == [("a", []), ("b", [0]), ("c", [0, 1, 2])]
    assert following is None


def quorum(topic: str = "__cluster_metadata", partition: int = 0, leads: bool = True) -> Any:
    description = QuorumDescription(
        leads=leads,
        leader_id=1,
        epoch=7,
        high_watermark=90,
        log_end_offset=100,
        voters={2: Progress(80, 500), 1: None},
        observers={ReplicaKey(9, UUID(int=900)): Progress(100, 800, 800)},
        voter_set=VoterSet(
            [
                Voter(ReplicaKey(2, UUID(int=200)), (Listener("CONTROLLER", "two", 9093),)),
                Voter(ReplicaKey(1)),
            ]
        ),
    )
    broker = broker_with(
        image_of(),
        quorum=SimpleNamespace(describe=lambda: description),
        runtime=SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 1000)),
    )
    request = DescribeQuorumRequest(
        topics=(TopicData(topic_name=topic, partitions=(PartitionData(partition_index=partition),)),)
    )
    return describe_quorum(broker, context(2), request)


def test_describe_quorum() -> None:
    response = quorum()
    [partition] = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (ErrorCode.none, 1, 7)
    assert partition.high_watermark == 90
    voters = [
        (v.replica_id, v.log_end_offset, v.last_fetch_timestamp, v.last_caught_up_timestamp)
        for v in partition.current_voters
    ]
    assert voters == [(1, 100, 1000, 1000), (2, 80, 500, -1)]
    assert [node.node_id for node in response.nodes] == [1, 2]
    assert [voter.replica_directory_id for voter in partition.current_voters] == [None, UUID(int=200)]
    [observer] = partition.observers
    assert (observer.replica_id, observer.log_end_offset, observer.last_caught_up_timestamp) == (9, 100, 800)
    assert [(each.name, each.host, each.port) for each in response.nodes[1].listeners] == [
        ("CONTROLLER", "two", 9093)
    ]


def test_only_the_leader_describes_its_quorum() -> None:
    [partition] = quorum(leads=False).topics[0].partitions
    assert partition.error_code is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("topic, index", [("other", 0), ("__cluster_metadata", 1)])
def test_only_the_metadata_log_has_a_quorum(topic: str, index: int) -> None:
    response = quorum(topic, index)
    assert response.topics[0].topic_name == topic
    [partition] = response.topics[0].partitions
    assert partition.partition_index == index
    assert partition.error_code is ErrorCode.unknown_topic_or_partition
