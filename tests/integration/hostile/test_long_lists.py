"""One request that names hundreds of thousands of things, beside a client that asks small questions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bystander import Bystander
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from raw_client import RawConnection, request_frame

from ottla.testing import BrokerProcess

COUNT = 300_000
STALL_SECONDS_MAX = 1.0
TOPIC = 2


def metadata() -> bytes:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=f"name-{i}") for i in range(COUNT)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return request_frame(3, 12, request)


def list_offsets() -> bytes:
    partitions = tuple(
        ListOffsetsPartition(partition_index=i, current_leader_epoch=-1, timestamp=-1) for i in range(COUNT)
    )
    topic = ListOffsetsTopic(name="nowhere", partitions=partitions)
    return request_frame(2, 7, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,)))


def describe_configs() -> bytes:
    resources = tuple(
        DescribeConfigsResource(resource_type=TOPIC, resource_name=f"name-{i}", configuration_keys=None)
        for i in range(COUNT)
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
    return request_frame(32, 4, request)


@pytest.mark.parametrize("frame", [metadata, list_offsets, describe_configs], ids=lambda make: make.__name__)
def test_a_long_list_holds_up_nobody(frame: Callable[[], bytes]) -> None:
    with (
        BrokerProcess() as broker,
        Bystander(broker.bootstrap_servers) as bystander,
        RawConnection(broker.bootstrap_servers, timeout_s=60) as attacker,
    ):
        attacker.send(frame())
        assert len(attacker.receive()) > COUNT
        bystander.assert_was_served()
        assert bystander.slowest_s < STALL_SECONDS_MAX, f"a bystander waited {bystander.slowest_s:.2f} s"
        assert broker.stop() == 0
