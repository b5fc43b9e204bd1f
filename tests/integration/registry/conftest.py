from __future__ import annotations

from collections.abc import Iterator

import pytest
from registry_process import LOGIN, RegistryProcess

from ottla.testing.in_process import InProcessBroker


@pytest.fixture(scope="session")
def cluster() -> Iterator[InProcessBroker]:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_registry="secret";',
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
    }
    with InProcessBroker(settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(cluster: InProcessBroker) -> Iterator[RegistryProcess]:
    with RegistryProcess(cluster.bootstrap_servers) as running:
        yield running
