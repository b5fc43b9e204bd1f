"""One run of a browser through every page and action, of three brokers under load and of Apache Kafka.

The latter takes a minute or two, with the JVMs of a broker and a worker: it is one of the soak tests."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack
from pathlib import Path

import pytest
import tour as steps
from bench import connect_peer, kafka_peer
from bench.brokers import started
from bench.chromium import browser, executable
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from connect.worker_process import our_worker, settings_of
from console_site import Site, fill
from tour import Tour, load

from ottla.console.api.all import FAMILIES
from ottla.console.clusters import ClusterSettings
from ottla.console.pages.all import PAGES
from ottla.console.server import console_served
from ottla.runtime.net import free_ports
from ottla.testing import BrokerCluster

pytestmark = pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
}
TOKENS = {"create_token", "renew_token", "expire_token"}
"""People have them where they log in."""


def made_changes(caplog: pytest.LogCaptureFixture) -> set[str]:
    lines = [json.loads(each.message) for each in caplog.records if each.name == "ottla.console.audit"]
    return {line["change"] for line in lines if line["outcome"] == "done"}


def all_changes() -> set[str]:
    return {each.answer.__name__ for family in FAMILIES.values() for each in family if each.changes}


def go_through(tour: Tour, directory: Path) -> None:
    steps.overview(tour)
    steps.topics(tour)
    steps.records(tour)
    steps.outcomes(tour)
    steps.transactions(tour)
    steps.groups(tour)
    steps.share_groups(tour)
    steps.balance(tour)
    steps.connectors(tour, str(directory / "orders.txt"))
    steps.pipelines(tour)
    steps.access(tour)


def test_every_page_and_action_on_three_brokers_under_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.console.audit")
    with ExitStack() as stack:
        cluster = stack.enter_context(BrokerCluster(AUTHORIZER))
        bootstrap = cluster.bootstrap_servers
        fill(bootstrap, 3)
        caplog.set_level(logging.INFO, "ottla.connect")
        worker = stack.enter_context(our_worker(settings_of(bootstrap)))
        settings = ClusterSettings("local", bootstrap, connect=f"http://{worker.address}", sample_s=1.0)
        address = stack.enter_context(console_served([settings]))
        stack.enter_context(load(bootstrap, 3))
        page = stack.enter_context(browser())
        tour = Tour(page, Site(address).log_in(), bootstrap, 3, connect_tells_its_log=True)
        go_through(tour, tmp_path)
        steps.unwell(tour, cluster[3])
        assert page.complaints == []
        assert tour.looked_at == {each.path for each in PAGES} - {"/tokens"}
        assert made_changes(caplog) == all_changes() - TOKENS


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.maven
def test_every_page_and_action_on_apache_kafka(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.console.audit")
    # The last of several: its other ports are looked for in the same order.
    *_, sasl_port = free_ports("127.0.0.1", 10)
    with ExitStack() as stack:
        try:
            peer = ApacheKafka(kafka_peer.fetch(), settings=with_log_ins(sasl_port))
            connect = connect_peer.fetch()
        except PeerUnavailable as error:
            pytest.skip(str(error))
        kafka = stack.enter_context(started(peer, str(tmp_path / "data"), tmp_path / "kafka.out"))
        bootstrap = f"127.0.0.1:{kafka.port}"
        fill(bootstrap)
        worker = stack.enter_context(connect_peer.running(connect, bootstrap, tmp_path, heap=("-Xmx512M",)))
        settings = ClusterSettings("local", bootstrap, connect=f"http://{worker.address}", sample_s=1.0)
        address = stack.enter_context(console_served([settings]))
        page = stack.enter_context(browser())
        with load(bootstrap, 1):
            tour = Tour(page, Site(address).log_in(), bootstrap, 1, connect_tells_its_log=False)
            go_through(tour, tmp_path)
        closed = ClusterSettings(
            "local",
            f"127.0.0.1:{sasl_port}",
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            login=True,
        )
        with console_served([closed]) as address:
            steps.tokens(page, address)
        assert page.complaints == []
        assert tour.looked_at == {each.path for each in PAGES} - {"/tokens"}
        # With one broker nothing is under way that could be called off.
        assert made_changes(caplog) - {"log_in", "log_out"} == all_changes() - {"call_off"}


def with_log_ins(port: int) -> str:
    lines = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller_port}},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a-secret";'
        ),
        "delegation.token.secret.key": "a key of the test",
        **AUTHORIZER,
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())
