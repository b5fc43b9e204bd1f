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
from bench.chromium import browser, executable
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from console_site import Site, commit, create
from share_members import check_a_share_group_is_shown_set_and_deleted
from transactions_seen import check_outcomes_are_told

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
    with console_served([ClusterSettings("local", bootstrap, sample_s=1.0)]) as address:
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


def test_of_each_record_of_apache_kafka_it_is_told_what_became_of_its_transaction(
    kafka_site: Site, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(bootstrap, {"outcomes": 1})
    check_outcomes_are_told(kafka_site, bootstrap, "outcomes", monkeypatch)


def test_moves_and_elections_are_apache_kafkas_own(kafka_site: Site) -> None:
    site = kafka_site
    site.change("POST", "topics", name="moved", partitions=2)
    until = time.monotonic() + 60
    while not site.get("topics", q="moved")["topics"]:
        # Its brokers hear of a topic some time after its controller has answered.
        assert time.monotonic() < until
    (broker,) = [each["id"] for each in site.get("overview")["brokers"]]
    plan = site.change("POST", "reassignments", "plan", topics=["moved"], brokers=[broker], how="spread")
    assert plan["moves"] == [] and plan["unchanged"] == 2
    assert site.change("POST", "reassignments", plan={"moved-0": [broker]})["begun"] == 1
    assert site.change("POST", "leaders", topics=["moved"]) == {"elected": [], "failed": {}}
    status, text = site.refused("POST", "reassignments", plan={"moved-0": [99]})
    assert status >= 400 and text
    site.change("DELETE", "topics", "moved", confirm="moved")


def test_share_groups_of_apache_kafka_are_shown_set_and_deleted(kafka_site: Site, bootstrap: str) -> None:
    check_a_share_group_is_shown_set_and_deleted(kafka_site, bootstrap)


@pytest.mark.skipif(executable() is None, reason="needs Chromium: apt-get install chromium")
def test_pages_of_apache_kafka_in_a_browser(kafka_site: Site, bootstrap: str) -> None:
    site = kafka_site
    site.change("POST", "topics", name="seen", partitions=2)
    commit(bootstrap, "watching", "seen", 2)
    until = time.monotonic() + 60
    while not any(site.get("topics", "seen", "history")["recordsIn"]):
        site.change("POST", "topics", "seen", "records", value='{"a": 1}', key="k", repeat=20)
        assert time.monotonic() < until
    with browser() as page:
        for path, there in (
            ("", ".chart path.line"),
            ("/topics", "tbody a"),
            ("/topics/seen", ".chart path.line"),
            ("/topics/seen?part=settings", ".setting"),
            ("/topics/seen/records?limit=5", ".record"),
            ("/groups/watching", ".chart svg"),
            ("/balance", ".bar"),
            ("/transactions", "h1"),
            ("/pipelines", "h1"),
        ):
            page.open(f"{site.address}/c/local{path}")
            page.wait_for(f"document.querySelector({there!r})")
        page.open(f"{site.address}/c/local/topics/seen")
        page.click("[data-opens=delete]")
        page.fill("#delete [name=confirm]", "seen")
        page.click("#delete [type=submit]")
        page.wait_for("location.pathname === '/c/local/topics'")
        assert page.complaints == []
