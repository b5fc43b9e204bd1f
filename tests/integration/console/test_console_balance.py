"""Leaders and replicas of a cluster of three, moved by the console."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from console_site import Site

from ottla.console.clusters import ClusterSettings
from ottla.console.server import console_served
from ottla.testing import BrokerCluster


@pytest.fixture(scope="module")
def three() -> Iterator[Site]:
    with BrokerCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        # A client that is asked at once has been seen to wait in vain for who administers.
        admin.list_topics(timeout=60)
        topics = [NewTopic("orders", 4, 2), NewTopic("clicks", 2, 2)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        with console_served([ClusterSettings("local", cluster.bootstrap_servers)]) as address:
            yield Site(address).log_in()


def replicas(site: Site, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in site.get("topics", topic)["partitions"]]


def wait_moved(site: Site, topic: str, done: Any) -> None:
    until = time.monotonic() + 60
    while not (site.get("reassignments")["total"] == 0 and done(replicas(site, topic))):
        assert time.monotonic() < until, replicas(site, topic)


def test_replicas_move_as_planned(three: Site) -> None:
    site = three
    site.change("POST", "topics", "orders", "records", value="x" * 1000, repeat=100, partition=0)
    brokers = [broker["id"] for broker in site.get("overview")["brokers"]]
    assert len(brokers) == 3
    plan = site.change("POST", "reassignments", "plan", topics=["orders"], brokers=brokers[:2])
    # Only what was on the third broker moves, and the plan alone moves nothing.
    before = replicas(site, "orders")
    assert len(plan["moves"]) == sum(brokers[2] in each for each in before)
    assert plan["unchanged"] + len(plan["moves"]) == 4
    for move in plan["moves"]:
        assert move["from"] == before[move["partition"]] and set(move["to"]) == set(brokers[:2])
    targets = {f"{move['topic']}-{move['partition']}": move["to"] for move in plan["moves"]}
    assert site.change("POST", "reassignments", plan=targets)["begun"] == len(targets)
    wait_moved(site, "orders", lambda now: all(set(each) == set(brokers[:2]) for each in now))

    spread = site.change("POST", "reassignments", "plan", topics=["orders"], brokers=brokers, how="spread")
    assert spread == site.change(
        "POST", "reassignments", "plan", topics=["orders"], brokers=brokers, how="spread"
    )
    new = {move["partition"]: move["to"] for move in spread["moves"]}
    assert {broker for to in new.values() for broker in to} == set(brokers)
    assert site.change("DELETE", "reassignments", confirm="all")["begun"] == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"brokers": []}, "brokers is empty"),
        ({"brokers": [99]}, "99 is not up"),
        ({"brokers": [1], "topics": ["orders"]}, "2 replicas"),
        ({"brokers": [1, 2], "topics": ["missing"]}, "missing"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(three: Site, asked: dict[str, Any], said: str) -> None:
    assert said in three.refused("POST", "reassignments", "plan", **asked)[1]
    assert "orders" in three.refused("POST", "reassignments", plan={"orders": [1]})[1]


def test_leaders_are_elected_and_an_unclean_election_is_typed(three: Site) -> None:
    (first, *_) = replicas(three, "clicks")
    three.change("POST", "reassignments", plan={"clicks-0": first[::-1]})
    wait_moved(three, "clicks", lambda now: now[0] == first[::-1])
    elected = three.change("POST", "leaders", topics=["clicks"])
    assert elected["failed"] == {}
    until = time.monotonic() + 60
    while three.get("topics", "clicks")["partitions"][0]["leader"] != first[-1]:
        assert time.monotonic() < until
    status, text = three.refused("POST", "leaders", kind="unclean")
    assert status == 400 and "lose records" in text
    assert three.refused("POST", "leaders", topics=["missing"])[0] == 404
