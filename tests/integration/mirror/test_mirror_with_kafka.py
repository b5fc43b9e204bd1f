"""Ottla → Apache Kafka → Ottla."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.mirror.mirrors import (
    committed,
    consume,
    create,
    mirroring,
    produce,
    properties,
    read,
    transact,
    wait_until,
)

import ottla.testing
from ottla.testing import InProcessBroker

pytestmark = [pytest.mark.maven, pytest.mark.xdist_group("mirror-kafka")]
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture(scope="module")
def first() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def last() -> Iterator[InProcessBroker]:
    with ottla.testing.broker() as broker:
        yield broker


def test_to_apache_kafka_and_back(first: InProcessBroker, kafka: str, last: InProcessBroker) -> None:
    """Records, order, headers, times, and a group that is moved twice."""
    here, there = first.bootstrap_servers, last.bootstrap_servers
    create(here, "orders", 1)
    values = [f"order {number}" for number in range(600)]
    for part, codec in enumerate(("none", "zstd", "lz4", "snappy", "gzip", "none")):
        produce(here, "orders", values[part * 100 : part * 100 + 100], 1, compression__type=codec)
        transact(here, "orders", ["never"], commit=False)
    more = {
        "topics": "orders",
        "groups": "team",
        "sync__group__offsets__enabled": "true",
        "replication__policy__class": IDENTITY,
    }
    with mirroring(properties(here, kafka, **more)):
        in_kafka = read(kafka, "orders", 600, 1)
        seen = consume(here, "orders", "team", 150)
        wait_until(lambda: committed(kafka, "team", "orders") >= 150, "the group in Kafka")
        seen += consume(kafka, "orders", "team", 150)
    with mirroring(properties(kafka, there, **more)):
        at_the_end = read(there, "orders", 600, 1)
        wait_until(lambda: committed(there, "team", "orders") >= 300, "the group back in Ottla")
        seen += consume(there, "orders", "team", 300)
    assert seen == values
    assert at_the_end == in_kafka == read(here, "orders", 600, 1)
