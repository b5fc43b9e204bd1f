"""pytest fixtures that give tests a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import BrokerCluster
    from ottla.testing.in_process import InProcessBroker


@pytest.fixture
def ottla_broker() -> Iterator[InProcessBroker]:
    """A fresh, empty broker for this test alone."""
    # Late, because pytest loads every plugin that is installed, in projects that use no broker too.
    from ottla.testing.in_process import InProcessBroker

    with InProcessBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_broker_session() -> Iterator[InProcessBroker]:
    """One broker for the whole test run; tests keep apart by using topics of their own."""
    from ottla.testing.in_process import InProcessBroker

    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def ottla_cluster() -> Iterator[BrokerCluster]:
    """Three fresh brokers, each in a process of its own, that replicate each other's partitions."""
    from ottla.testing.cluster import BrokerCluster

    with BrokerCluster() as cluster:
        yield cluster
