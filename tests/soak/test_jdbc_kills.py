"""Rows by number out of one table and by upsert into another, while worker, broker, connections and database
are killed: each row is in the topic once, and the other table is the same.

make soak PYTEST_ARGS=tests/soak/test_jdbc_kills.py
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'ottla[postgres]')")

from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from tests.integration.connect.postgres_server import PASSWORD, postgres_server  # noqa: E402
from tests.integration.connect.worker_process import ask, settings_of  # noqa: E402
from tests.soak.connect_worker import Faults, WorkerProcess  # noqa: E402

from ottla.testing import BrokerProcess  # noqa: E402

ROWS = int(os.environ.get("OTTLA_SOAK_ROWS", "100000"))
KILLS = int(os.environ.get("OTTLA_SOAK_KILLS", "20"))
SEED = os.environ.get("OTTLA_SOAK_SEED", "1")
STEP = 500
CATCH_UP_S = 600.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]


def test_rows_go_through_a_topic_into_another_table(capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    with postgres_server() as server, BrokerProcess() as broker:
        with server.connect() as database:
            database.execute("CREATE TABLE numbered (id bigint PRIMARY KEY, name text NOT NULL)")
            database.execute("CREATE TABLE copied (id bigint PRIMARY KEY, name text NOT NULL)")
        given = settings_of(broker.bootstrap_servers) | {
            "exactly.once.source.support": "enabled",
            "value.converter": "JsonConverter",
            "key.converter": "JsonConverter",
        }
        there = {
            "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
            "connection.user": "postgres",
            "connection.password": PASSWORD,
            "connection.backoff.ms": "1000",
        }
        with WorkerProcess(given) as worker:
            source = there | {
                "connector.class": "JdbcSource",
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "numbered",
                "topic.prefix": "",
                "poll.interval.ms": "100",
                "batch.max.rows": "500",
            }
            sink = there | {
                "connector.class": "JdbcSink",
                "topics": "numbered",
                "insert.mode": "upsert",
                "pk.mode": "record_value",
                "pk.fields": "id",
                "table.name.format": "copied",
                "max.retries": "100",
                "retry.backoff.ms": "200",
            }
            ask(worker.address, "PUT", "/connectors/source/config", source)
            ask(worker.address, "PUT", "/connectors/sink/config", sink)
            faults = Faults(SEED, worker, broker, server)
            written = 0
            for number in range(KILLS):
                while written < ROWS * (number + 1) // KILLS:
                    with server.connect() as database:
                        database.execute(
                            "INSERT INTO numbered SELECT n, 'row ' || n "
                            "FROM generate_series(%s::bigint, %s::bigint) n",
                            [written + 1, written + STEP],
                        )
                    written += STEP
                faults.run(1, lambda text, number=number: say(f"{number + 1} of {KILLS}: {text}"))
            started = time.monotonic()
            while True:
                with server.connect() as database:
                    (copied,) = database.execute("SELECT count(*) FROM copied").fetchone() or (0,)
                states = [
                    state
                    for name in ("source", "sink")
                    for state in ask(worker.address, "GET", f"/connectors/{name}/status")["tasks"]
                ]
                assert all(state["state"] != "FAILED" for state in states), states
                if copied >= written:
                    break
                assert time.monotonic() - started < CATCH_UP_S, (copied, written)
                time.sleep(0.5)
            say(f"{written:,} rows copied, the last {time.monotonic() - started:.0f} s after the last fault")
            with server.connect() as database:
                differences = database.execute(
                    "SELECT count(*) FROM numbered FULL JOIN copied USING (id, name) "
                    "WHERE numbered.ctid IS NULL OR copied.ctid IS NULL"
                ).fetchone()
            counts = _counted(broker.bootstrap_servers, "numbered")
    assert differences == (0,)
    assert len(counts) == written
    assert set(counts.values()) == {1}


def _counted(servers: str, topic: str) -> Counter[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "soak-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    partitions: Any = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    counts: Counter[int] = Counter()
    while messages := consumer.consume(10_000, timeout=5.0):
        counts.update(
            json.loads(message.value())["payload"]["id"] for message in messages if message.error() is None
        )
    consumer.close()
    return counts
