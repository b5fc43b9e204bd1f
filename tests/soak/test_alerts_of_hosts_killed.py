"""The metrics example while its pipeline is killed: each alert is told, once.

OTTLA_KILL_SEED=7 make soak PYTEST_ARGS=tests/soak/test_alerts_of_hosts_killed.py
"""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.examples.orders_example import read_committed
from tests.integration.examples.test_log_examples import load_example
from tests.spark.processes import wait_until

agent = load_example("metrics/agent.py")
metrics, metrics_pipeline = load_example("metrics/demo.py"), load_example("metrics/pipeline.py")

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(900)]

HOSTS = 5
KILLS = 4
LATER_S_MAX = 6.0


def kill_again_and_again(stage: Any, topic: str) -> None:
    """The pipeline, each time a while after it has written something to the topic since its start."""
    seed = os.environ.get("OTTLA_KILL_SEED") or str(time.time_ns() % 1_000_000)
    print(f"OTTLA_KILL_SEED={seed}")
    dice = random.Random(seed)
    for life in range(KILLS + 1):
        pipeline = stage.run_pipeline("pipeline.py")
        before = end_of(stage.bootstrap_servers, topic)
        wait_until(
            lambda: end_of(stage.bootstrap_servers, topic) > before,  # noqa: B023
            180,
            "results of a pipeline that was started",
        )
        if life < KILLS:
            time.sleep(dice.uniform(0, LATER_S_MAX))
            stage.kill(pipeline)


def end_of(servers: str, topic: str) -> int:
    """Of all partitions together. To read a topic that is always written to may never come to an end."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "end"})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1] for number in partitions]
    consumer.close()
    return sum(ends)


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


def sorted_by_key(told: Any) -> list[tuple[str, str]]:
    """In the order of each key, which is all that topics keep."""
    return sorted(told, key=lambda each: each[0])
