"""A broker in its own process for the tests of transactions, and the transformers of each client.

OTTLA_TEST_BOOTSTRAP_SERVERS names another broker to run them against: that is how the tests themselves are
checked, with Apache Kafka as the reference.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from transforming.processes import JavaTransformers, PythonTransformers, Transformers

from ottla.testing import BrokerProcess

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="session")
def settings() -> dict[str, str]:
    """Of the broker: intervals so short that nobody waits for them."""
    return SETTINGS


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    if elsewhere := os.environ.get("OTTLA_TEST_BOOTSTRAP_SERVERS"):
        yield elsewhere
    else:
        with BrokerProcess(SETTINGS) as broker:
            yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"txn-{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def new_topic(admin: AdminClient, names: Iterator[str]) -> Callable[[int], str]:
    def create(partitions: int) -> str:
        name = next(names)
        admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(
            20
        )
        return name

    return create


def _java() -> Transformers:
    from bench.kafka_peer import fetch
    from bench.maven import PeerUnavailable

    try:
        distribution = fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    return JavaTransformers(distribution.java, distribution.libs)


@pytest.fixture(scope="session")
def transformers() -> Iterator[Callable[[str], Transformers]]:
    """By client: `transformers("confluent")`."""
    started: dict[str, Transformers] = {}

    def get(client: str) -> Transformers:
        if client not in started:
            started[client] = _java() if client == "java" else PythonTransformers(client)
        return started[client]

    yield get
    for each in started.values():
        each.close()
