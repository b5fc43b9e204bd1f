"""Rows of the data generator in a topic: all of them, once, also over restarts, and at their rate."""

from __future__ import annotations

import json
import time

from test_moving_records import ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

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
