"""One broker with something in it, and consoles for it, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_site import Site, fill

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
        fill(running.bootstrap_servers)
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
