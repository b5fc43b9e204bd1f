"""One broker for all client tests, and the clients by name.

OTTLA_TEST_BOOTSTRAP_SERVERS names another broker to run them against: that is how the tests themselves are
checked, with Apache Kafka as the reference.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_clients.client import KafkaClient
from kafka_clients.every import CLIENTS, Clients, NewTopicFixture

import ottla.testing


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    if elsewhere := os.environ.get("OTTLA_TEST_BOOTSTRAP_SERVERS"):
        yield elsewhere
    else:
        with ottla.testing.broker() as broker:
            yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def clients(bootstrap_servers: str) -> Iterator[Clients]:
    started = Clients(bootstrap_servers)
    yield started
    started.close()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, clients: Clients) -> KafkaClient:
    return clients[request.param]


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture(scope="session")
def topic_names() -> Iterator[str]:
    return (f"topic-{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def new_topic(admin: AdminClient, topic_names: Iterator[str]) -> NewTopicFixture:
    """Creates a topic of its own for a test: `new_topic(partitions=3, config={"retention.ms": "1"})`."""

    def create(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = next(topic_names)
        request = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([request])[name].result(20)
        return name

    return create
