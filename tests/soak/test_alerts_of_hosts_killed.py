"""The metrics example while its pipeline is killed: each alert is told, once.

OTTLA_KILL_SEED=7 make soak PYTEST_ARGS=tests/soak/test_alerts_of_hosts_killed.py
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.examples.orders_example import read_committed
from tests.integration.examples.test_log_examples import load_example
from tests.soak.pipeline_kills import KILLS, kill_again_and_again, sorted_by_key
from tests.spark.processes import wait_until

agent = load_example("metrics/agent.py")
metrics, metrics_pipeline = load_example("metrics/demo.py"), load_example("metrics/pipeline.py")

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(900)]

HOSTS = 5


def test_each_alert_is_told_once() -> None:
    with metrics.Stage(metrics.TOPICS, metrics.HERE) as stage:
        servers = stage.bootstrap_servers
        with hurried_agent(servers):
            kill_again_and_again(stage, metrics_pipeline.MINUTES)
        readings = read_committed(servers, metrics_pipeline.READINGS)
        expected = alerts_of(readings)

        def told() -> list[tuple[str, str]]:
            rows = read_committed(servers, metrics_pipeline.ALERTS)
            return sorted_by_key((key, value["state"]) for key, value in rows)

        wait_until(lambda: len(told()) >= len(expected), 120, f"{len(expected)} alerts")
        assert told() == expected
        stage.raise_dead()
    assert len(expected) > 2 * KILLS


@contextmanager
def hurried_agent(servers: str) -> Iterator[None]:
    """Hosts whose minute is six seconds long, so that there is much to be alarmed about."""
    is_over = threading.Event()

    def publish() -> None:
        producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random"})
        for second in itertools.count():
            for host in range(HOSTS):
                producer.produce(agent.TOPIC, json.dumps(agent.pretended(host, second)), f"host-{host}")
            producer.poll(0)
            if is_over.wait(0.1):
                break
        producer.flush(30)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def alerts_of(readings: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """What the pipeline's own rule says of all readings, one after the other."""
    alarms: dict[str, Any] = {}
    told = []
    for host, values in readings:
        for name, value in values.items():
            key = f"{host}/{name}"
            before = alarms.get(key) or metrics_pipeline.Alarm()
            alarms[key] = before.after(value)
            if alarms[key].is_raised != before.is_raised:
                told.append((key, "raised" if alarms[key].is_raised else "cleared"))
    return sorted_by_key(told)
