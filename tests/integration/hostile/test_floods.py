"""Hundreds of connections that ask and ask, and read none of the answers."""

from __future__ import annotations

import struct
import time

import pytest
from bystander import MIB, Bystander, allow_connections, memory_bytes
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from raw_client import API_VERSIONS, RawConnection, framed, request_frame

from ottla.testing import BrokerProcess

CONNECTIONS = 200
DESCRIBE_CONFIGS = 32
TOPIC, BROKER = 2, 4
TOPICS = 150
REQUEST_BYTES_MAX = 64 * MIB
MEMORY_BYTES_MAX = 260 * MIB
"""A quarter of queued.max.request.bytes for long answers, some answers that are being made, about half a
mebibyte for each connection, and room for what allocators keep."""


def describe_brokers() -> bytes:
    """The same broker two hundred times."""
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(
        resources=(resource,) * 200, include_synonyms=True, include_documentation=True
    )
    return request_frame(DESCRIBE_CONFIGS, 4, request)


def describe_topics() -> bytes:
    resources = tuple(
        DescribeConfigsResource(resource_type=TOPIC, resource_name=f"topic-{number}", configuration_keys=None)
        for number in range(TOPICS)
    )
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    return request_frame(DESCRIBE_CONFIGS, 4, request)


def api_versions() -> bytes:
    return framed(struct.pack(">hhih", API_VERSIONS, 0, 7, -1)) * 500


def make_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = admin.create_topics([NewTopic(f"topic-{number}", 1) for number in range(TOPICS)])
    for each in made.values():
        each.result(30)


@pytest.mark.parametrize(
    "asked",
    [describe_brokers(), describe_topics(), api_versions()],
    ids=["brokers", "topics", "api-versions"],
)
def test_answers_that_nobody_reads_hold_up_nobody(asked: bytes) -> None:
    allow_connections(CONNECTIONS)
    settings = {
        "queued.max.request.bytes": REQUEST_BYTES_MAX,
        "socket.request.max.bytes": REQUEST_BYTES_MAX,
    }
    with BrokerProcess(settings) as broker, Bystander(broker.bootstrap_servers) as bystander:
        make_topics(broker.bootstrap_servers)
        before = memory_bytes(broker.pid)
        attackers = [RawConnection(broker.bootstrap_servers) for _ in range(CONNECTIONS)]
        for attacker in attackers:
            attacker.send(asked * 20)
        growth = 0
        observed_until = time.monotonic() + 3
        while time.monotonic() < observed_until:
            bystander.assert_was_served()
            growth = max(growth, memory_bytes(broker.pid) - before)
        for attacker in attackers:
            attacker.close()
        bystander.assert_was_served()
        assert growth < MEMORY_BYTES_MAX, f"{growth / MIB:.0f} MiB"
        assert broker.stop(timeout_seconds=20) == 0
