"""What the pages of the examples activity and metrics show: events that went through a broker and Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.testclient import TestClient
from tests.integration.examples.test_log_examples import load_example
from tests.spark.processes import wait_until

from ottla.streams.run import StreamsApplication, StreamsConfig
from ottla.testing import InProcessBroker

MINUTE_MS = 60_000
ACTIVITY = dict.fromkeys(("page-views", "searches", "clicks", "visits", "top-pages", "funnel"), 2)
METRICS = dict.fromkeys(("host-metrics", "host-minutes", "host-alerts"), 2)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with InProcessBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(*topic) for topic in (ACTIVITY | METRICS).items()]
        for made in admin.create_topics(topics).values():
            made.result(30)
        yield broker.bootstrap_servers


def work_off(pipeline: Any, servers: str, spark: Any, tmp_path: Path) -> None:
    config = StreamsConfig(pipeline.APPLICATION_ID, servers, state_dir=str(tmp_path))
    app = StreamsApplication(pipeline.build(), config)
    app.start(spark)
    try:
        app.process_all_available()
    finally:
        app.stop()


@pytest.mark.slow
def test_activity_of_visitors_is_on_its_page(servers: str, spark: Any, tmp_path: Path) -> None:
    events = [
        *({"kind": "view", "visitor": who, "page": "home"} for who in ("ann", "bob", "cleo")),
        {"kind": "search", "visitor": "ann", "text": "lamp"},
        {"kind": "view", "visitor": "ann", "page": "lamps"},
        {"kind": "click", "visitor": "bob", "page": "home"},  # has not searched: that step is left out
    ]
    with TestClient(load_example("activity/tracker.py").app(servers)) as tracker:
        assert {tracker.post("/events", json=event).status_code for event in events} == {202}
    work_off(load_example("activity/pipeline.py"), servers, spark, tmp_path)
    with TestClient(load_example("activity/live.py").app(servers)) as live:
        wait_until(lambda: live.get("/data").json()["visit_count"] == 3, 30, "three visits on the page")
        wait_until(lambda: live.get("/data").json()["funnel"]["viewed"] == 3, 30, "all of the funnel")
        wait_until(lambda: live.get("/data").json()["pages"], 30, "pages that are popular")
        shown = live.get("/data").json()
    visits = {visit["visitor"]: visit["pages"] for visit in shown["visits"]}
    assert visits == {"ann": ["home", "lamps"], "bob": ["home"], "cleo": ["home"]}
    # Ann has searched, unless her search was taken before her view, which is in another topic.
    assert shown["funnel"]["searched"] <= 1
    assert shown["funnel"]["clicked"] == 0
    # Of the last minute, which may have begun in between.
    assert {row["page"] for row in shown["pages"]} <= {"home", "lamps"}


@pytest.mark.slow
def test_figures_of_hosts_are_on_their_page(servers: str, spark: Any, tmp_path: Path) -> None:
    agent = load_example("metrics/agent.py")
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
    # Of one minute, and recent: or retention would delete the readings.
    begin_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS - 30 * MINUTE_MS
    for second in range(60):
        for host in range(2):
            value = json.dumps(agent.pretended(host, second))
            producer.produce(agent.TOPIC, value, f"host-{host}", timestamp=begin_ms + second * 1000)
    assert producer.flush(10) == 0
    work_off(load_example("metrics/pipeline.py"), servers, spark, tmp_path)
    with TestClient(load_example("metrics/dashboard.py").app(servers)) as dashboard:
        wait_until(lambda: len(dashboard.get("/data").json()["hosts"]) == 2, 30, "two hosts on the page")
        wait_until(lambda: dashboard.get("/data").json()["alerts"], 30, "an alert on the page")
        shown = dashboard.get("/data").json()
    cpu = {host["host"]: host["mean"]["cpu"] for host in shown["hosts"]}
    for host in range(2):
        expected = sum(agent.pretended(host, second)["cpu"] for second in range(60)) / 60
        assert cpu[f"host-{host}"] == pytest.approx(expected, abs=0.01)
    # Overloaded for the first half of the minute: raised, and taken back.
    [alert] = shown["alerts"]
    assert (alert["what"], alert["state"], alert["at"] - begin_ms) == ("host-0/cpu", "cleared", 32_000)
