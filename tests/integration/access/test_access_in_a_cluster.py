"""Three brokers with an authorizer. Clients do not log in: who asks is told apart by its address."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from matrix import ask

from ottla.testing import BrokerCluster
from ottla.wire.acls import CLUSTER_NAME
from ottla.wire.api import ApiKey

pytestmark = pytest.mark.timeout(180)

STRANGER = "127.0.0.9"
ANYBODY = "User:ANONYMOUS"
CONTROLLERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="controller" password="secret" user_controller="secret";'
)
REFUSED = 29
EVERY_KIND = ((2, "*"), (3, "*"), (4, CLUSTER_NAME), (5, "*"))


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Until there are rules, brokers have to find each other.
        "allow.everyone.if.no.acl.found": "true",
        # Controllers have to, before anybody knows whether there are.
        "super.users": "User:controller",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": CONTROLLERS,
    }
    with BrokerCluster(settings, relayed=False) as running:
        with connect(running[1].bootstrap_servers) as connection:
            creations = [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "resource_pattern_type": 3,
                    "principal": ANYBODY,
                    "host": "127.0.0.1",
                    "operation": 2,
                    "permission_type": 3,
                }
                for kind, name in EVERY_KIND
            ]
            answer = ask(connection, ApiKey.CREATE_ACLS, 3, {"creations": creations})
            assert [result.error_code for result in answer.results] == [0] * 4
        yield running


def create(connection: socket.socket, name: str) -> int:
    made = {"num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
    values = {"topics": [{"name": name, **made}], "timeout": 30_000}
    return int(ask(connection, ApiKey.CREATE_TOPICS, 7, values).topics[0].error_code)


def rules_at(connection: socket.socket) -> int:
    everything: dict[str, Any] = {"resource_type_filter": 1, "pattern_type_filter": 1}
    everything |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    answer = ask(connection, ApiKey.DESCRIBE_ACLS, 3, {**everything, "operation": 1, "permission_type": 1})
    return sum(len(resource.acls) for resource in answer.resources)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def asked(address: str, question: Callable[[socket.socket], int], source: str = "127.0.0.1") -> int:
    with connect(address, source) as connection:
        return question(connection)


def test_rules_reach_every_broker_and_whoever_asks_one_of_them(cluster: BrokerCluster) -> None:
    for number, broker in cluster.brokers.items():
        address = broker.bootstrap_servers
        wait_for(lambda address=address: asked(address, rules_at) == 4)
        # Two of them hand it on: to the controller it is the client that asks, not the broker.
        assert asked(address, lambda c, n=number: create(c, f"stranger-{n}"), STRANGER) == REFUSED
        assert asked(address, lambda c, n=number: create(c, f"friend-{n}")) == 0


def test_rules_outlive_the_controller_and_restarts(cluster: BrokerCluster) -> None:
    leader = cluster.controller().id
    cluster[leader].kill9()
    others = [broker for number, broker in cluster.brokers.items() if number != leader]
    for number, broker in enumerate(others):
        address = broker.bootstrap_servers
        wait_for(lambda a=address, n=number: asked(a, lambda c: create(c, f"after-{n}")) == 0)
        assert asked(address, lambda c, n=number: create(c, f"stranger-after-{n}"), STRANGER) == REFUSED
    cluster[leader].start()
    back = cluster[leader].bootstrap_servers
    wait_for(lambda: asked(back, rules_at) == 4)
    assert asked(back, lambda c: create(c, "stranger-back"), STRANGER) == REFUSED
