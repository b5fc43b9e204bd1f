"""The console of an Apache Kafka cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from console_site import Site, commit

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served

pytestmark = pytest.mark.maven


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("console-kafka")
    with ExitStack() as stack:
        try:
            peer = ApacheKafka(kafka_peer.fetch())
            kafka = stack.enter_context(started(peer, str(directory / "data"), directory / "kafka.out"))
        except PeerUnavailable as error:
            pytest.skip(str(error))
        yield f"127.0.0.1:{kafka.port}"


@pytest.fixture(scope="module")
def kafka_site(bootstrap: str) -> Iterator[Site]:
    with console_served([ClusterSettings("local", bootstrap)]) as address:
        yield Site(address).log_in()


def setting(site: Site, name: str) -> dict[str, Any]:
    found = site.get("topics", "orders", "settings")["settings"]
    return next(each for each in found if each["name"] == name)


def test_everything_is_done_on_apache_kafka_too(kafka_site: Site, bootstrap: str) -> None:
    site = kafka_site
    site.change("POST", "topics", name="orders", partitions=3, settings={"retention.ms": "3600000"})
    site.change("PATCH", "topics", "orders", "settings", set={"retention.ms": "7200000"})
    # Its brokers hear of a change some time after its controller has answered.
    until = time.monotonic() + 60
    while (retention := setting(site, "retention.ms"))["value"] != "7200000":
        assert time.monotonic() < until, retention
    assert retention["doc"]
    written = [
        site.change("POST", "topics", "orders", "records", key=f"k{number}", value=f'{{"n": {number}}}')
        for number in range(10)
    ]
    assert {each["partition"] for each in written} == {0, 1, 2}
    found = site.get("topics", "orders", "records", path="$.n > 6")["records"]
    assert sorted(record["key"]["text"] for record in found) == ["k7", "k8", "k9"]

    commit(bootstrap, "billing", "orders", 3)
    assert site.get("groups", "billing")["lag"] == 7
    site.change("POST", "groups", "billing", "offsets", topic="orders", to="latest", preview=False)
    assert site.get("groups", "billing")["lag"] == 0
    keys = site.get("topics", "__consumer_offsets", "records", key="billing", limit=100)["records"]
    assert {record["key"]["as"] for record in keys} == {"__consumer_offsets"}

    overview = site.get("overview")
    assert overview["quorum"]["voters"] and overview["offlinePartitions"] == 0
    for page in (
        (),
        ("topics",),
        ("topics", "orders"),
        ("groups",),
        ("transactions",),
        ("users",),
        ("quotas",),
    ):
        assert "<h1>" in site.page(*page)
    site.change("DELETE", "groups", "billing", confirm="billing")
    site.change("POST", "topics", "orders", "empty", confirm="orders")
    site.change("DELETE", "topics", "orders", confirm="orders")
