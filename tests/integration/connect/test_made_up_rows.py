"""Rows of the data generator in a topic: all of them, once, also over restarts, and at their rate."""

from __future__ import annotations

import json
import time
import urllib.request

from test_moving_records import ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

from ottla.cli.tools.connect_progress import Progress
from ottla.testing import InProcessBroker


def test_each_row_is_in_the_topic_once_over_restarts() -> None:
    with InProcessBroker() as broker:
        given = settings_of(broker.bootstrap_servers) | {"exactly.once.source.support": "enabled"}
        given |= {"key.converter": "LongConverter", "value.converter.schemas.enable": "false"}
        given["value.converter"] = "JsonConverter"
        with our_worker(given) as worker:
            address = worker.address
            fields = "id=sequence,who=name,age=int(18..90)"
            create(
                address,
                "rows",
                "datagen",
                topic="rows",
                fields=fields,
                key_field="id",
                count="3000",
                rate="0",
            )
            until(lambda: task_state(address, "rows")["state"] == "RUNNING")
            for _ in range(3):
                ask(address, "POST", "/connectors/rows/restart?includeTasks=true")
            create(address, "slow", "datagen", topic="slow", quickstart="orders", rate="20")
            messages = committed_values(broker, "rows", 3000)
            values = [json.loads(message.value()) for message in messages]
            assert [value["id"] for value in values] == list(range(3000))
            assert [int.from_bytes(message.key()) for message in messages] == list(range(3000))
            assert all(18 <= value["age"] <= 90 for value in values)
            started = time.monotonic()
            seen = len(committed_values(broker, "slow", 20))
            # However late a machine is, no more than the rate since the connector was made.
            assert 20 <= seen <= 20 * (time.monotonic() - started + 30)


def test_a_worker_tells_prometheus_and_a_terminal_what_its_tasks_do() -> None:
    with InProcessBroker() as broker:
        given = settings_of(broker.bootstrap_servers) | {"value.converter": "StringConverter"}
        with our_worker(given) as worker:
            address = worker.address
            create(address, "made", "datagen", topic="made", count="70", rate="0")
            until(
                lambda: (
                    metrics(address).get('ottla_connect_task_records_total{connector="made",task="0"}') == 70
                )
            )
            create(
                address,
                "out",
                "FileStreamSink",
                topics="made",
                file="/dev/null",
                value_converter="JsonConverter",
                errors_tolerance="all",
            )
            skipped = 'ottla_connect_task_skipped_records_total{connector="out",task="0"}'
            until(lambda: metrics(address).get(skipped) == 70)
            found = until(lambda: (now := metrics(address)).get(LAG) == 0 and now)
            assert found['ottla_connect_task_state{connector="out",task="0",state="running"}'] == 1
            assert found['ottla_connect_task_state{connector="out",task="0",state="failed"}'] == 0
            rows = Progress(worker.herder.foreman, iter([0.0, 2.0]).__next__).rows()
            assert rows == [("made", 0, "RUNNING", 70, 35, "–", 0), ("out", 0, "RUNNING", 0, 0, 0, 70)]


LAG = 'ottla_connect_task_lag_records{connector="out",task="0"}'


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")
    }
