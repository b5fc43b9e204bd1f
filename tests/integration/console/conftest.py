"""One broker with something in it, and consoles for it, for all tests of a module."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from console_site import ORDERS, Site, commit, create

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    ) as running:
        create(running.bootstrap_servers, {"orders": 3, "payments": 1})
        producer = Producer({"bootstrap.servers": running.bootstrap_servers})
        for number in range(ORDERS):
            value = json.dumps({"order": number, "total": number * 10, "items": [{"sku": f"s{number}"}]})
            producer.produce(
                "orders", value, f"customer-{number % 7}", headers={"source": f"shop-{number % 2}"}
            )
        assert producer.flush(60) == 0
        commit(running.bootstrap_servers, "billing", "orders", 3)
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    watching = ClusterSettings("watched", broker.bootstrap_servers, read_only=True)
    local = ClusterSettings("local", broker.bootstrap_servers, sample_s=1.0)
    with console_served([local, watching]) as address:
        yield address


@pytest.fixture(scope="module")
def site(address: str) -> Site:
    return Site(address).log_in()
