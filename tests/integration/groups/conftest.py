"""One broker for the tests of groups, with intervals so short that rebalances take milliseconds."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from group_members.crew import Agent, Journal
from group_members.settings import BROKER_SETTINGS
from group_members.watch import GroupWatch

import ottla.testing


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    with ottla.testing.broker(set=BROKER_SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    return (f"{os.getpid()}-{number}" for number in itertools.count())


@pytest.fixture(scope="session")
def new_topic(admin: AdminClient, names: Iterator[str]) -> Callable[..., str]:
    """Creates a topic of its own for a test: `new_topic(partitions=4)`."""

    def create(*, partitions: int = 1, prefix: str = "topic") -> str:
        name = f"{prefix}-{next(names)}"
        admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(
            20
        )
        return name

    return create


@pytest.fixture
def journal(names: Iterator[str]) -> Journal:
    return Journal(f"group-{next(names)}")


@pytest.fixture
def watch(admin: AdminClient, journal: Journal) -> GroupWatch:
    return GroupWatch(admin, journal)


@pytest.fixture
def start_agent(bootstrap_servers: str) -> Iterator[Callable[[str], Agent]]:
    started: list[Agent] = []

    def start(client: str) -> Agent:
        started.append(Agent(client, bootstrap_servers))
        return started[-1]

    yield start
    for agent in started:
        agent.close()
