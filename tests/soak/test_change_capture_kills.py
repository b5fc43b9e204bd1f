"""A hundred thousand changes of concurrent transactions, while worker, broker, connections and database are
killed: the topic has what the server's own record of the changes has, each change once.

make soak PYTEST_ARGS=tests/soak/test_change_capture_kills.py
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections import defaultdict
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'ottla[postgres]')")

from confluent_kafka import Consumer, TopicPartition  # noqa: E402
from tests.integration.connect.postgres_server import PostgresServer, postgres_server  # noqa: E402
from tests.integration.connect.worker_process import ask, settings_of  # noqa: E402
from tests.soak.connect_worker import Faults, WorkerProcess  # noqa: E402

from ottla.testing import BrokerProcess  # noqa: E402

CHANGES = int(os.environ.get("OTTLA_SOAK_CHANGES", "100000"))
KILLS = int(os.environ.get("OTTLA_SOAK_KILLS", "20"))
SEED = os.environ.get("OTTLA_SOAK_SEED", "1")
WRITERS = 4
KEYS = 2000
PARTITIONS = 3
PAUSE_S = 0.04
TOPIC = "soak.public.accounts"
CATCH_UP_S = 600.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

Change = tuple[str, int, int | None]


class Writer(threading.Thread):
    """Transactions of a few statements on rows that others write to as well."""

    def __init__(self, server: PostgresServer, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._server, self._stop_writing = server, stop
        self._random = random.Random(f"{SEED}/{number}")
        self.changes = 0
        """At least; of a commit whose answer was lost nobody knows."""

    def run(self) -> None:
        while not self._stop_writing.is_set():
            try:
                with self._server.connect() as database:
                    while not self._stop_writing.is_set():
                        try:
                            with database.transaction():
                                changed = sum(self._statement(database) for _ in range(3))
                            self.changes += changed
                            # So that faults meet what is under way, and not a backlog of it.
                            time.sleep(PAUSE_S)
                        except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                            continue
            except psycopg.OperationalError:
                time.sleep(0.1)

    def _statement(self, database: Any) -> int:
        first = self._random.randrange(KEYS)
        keys = list(range(first, first + 10))
        match self._random.randrange(4):
            case 0:
                sql = "DELETE FROM accounts WHERE id = ANY(%s)"
            case 1:
                sql = (
                    "INSERT INTO accounts SELECT id, nextval('changes') FROM unnest(%s::int[]) AS id "
                    "ON CONFLICT DO NOTHING"
                )
            case _:
                sql = "UPDATE accounts SET change = nextval('changes') WHERE id = ANY(%s)"
        return int(database.execute(sql, [keys]).rowcount)


def test_every_change_is_in_the_topic_once(capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    with postgres_server() as server, BrokerProcess() as broker:
        with server.connect() as database:
            database.execute("CREATE TABLE accounts (id int PRIMARY KEY, change bigint NOT NULL)")
            database.execute("CREATE SEQUENCE changes")
            database.execute("INSERT INTO accounts SELECT n, 0 FROM generate_series(1, %s) n", [KEYS // 2])
            database.execute("SELECT pg_create_logical_replication_slot('truth', 'test_decoding')")
        given = settings_of(broker.bootstrap_servers) | {
            "exactly.once.source.support": "enabled",
            "key.converter": "JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        with WorkerProcess(given) as worker:
            config = server.settings() | {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "topic.prefix": "soak",
                "slot.name": "soak",
                "table.include.list": "public.accounts",
                "topic.creation.default.partitions": str(PARTITIONS),
                "topic.creation.default.replication.factor": "1",
                "max.batch.size": "500",
            }
            ask(worker.address, "PUT", "/connectors/soak/config", config)
            _wait_for_rows(broker.bootstrap_servers, KEYS // 2)
            stop = threading.Event()
            writers = [Writer(server, number, stop) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            started = time.monotonic()
            Faults(SEED, worker, broker, server).run(KILLS, say)
            while sum(writer.changes for writer in writers) < CHANGES:
                time.sleep(0.2)
            stop.set()
            for writer in writers:
                writer.join(60)
            wrote_s = time.monotonic() - started
            with server.connect() as database:
                truth = _truth(database)
                table = dict(database.execute("SELECT id, change FROM accounts").fetchall())
            expected = sum(map(len, truth.values()))
            say(f"{expected:,} changes written in {wrote_s:.0f} s through {KILLS} faults")
            deadline = time.monotonic() + CATCH_UP_S
            found: dict[int, list[Change]] = {}
            reader = Reader(broker.bootstrap_servers)
            while sum(map(len, found.values())) < expected and time.monotonic() < deadline:
                states = [
                    task["state"] for task in ask(worker.address, "GET", "/connectors/soak/status")["tasks"]
                ]
                assert "FAILED" not in states, ask(worker.address, "GET", "/connectors/soak/status")
                found = reader.read()
            say(f"all in the topic {time.monotonic() - started - wrote_s:.0f} s later")
            # Whatever is there more than once would have come by now.
            found = reader.read()
            reader.close()
    assert expected >= CHANGES
    wrong = {
        key: (truth.get(key), found.get(key))
        for key in truth.keys() | found
        if truth.get(key) != found.get(key)
    }
    assert not wrong, dict(list(wrong.items())[:3])
    replayed: dict[int, int] = dict.fromkeys(range(1, KEYS // 2 + 1), 0)
    for key, changes in found.items():
        operation, _, change = changes[-1]
        replayed.pop(key, None)
        if operation != "d":
            assert change is not None
            replayed[key] = change
    assert replayed == table


def _truth(database: Any) -> dict[int, list[Change]]:
    """As another plugin of the server tells it, for each key in order."""
    changes: dict[int, list[Change]] = defaultdict(list)
    codes = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
    for (row,) in database.execute("SELECT data FROM pg_logical_slot_get_changes('truth', NULL, NULL)"):
        match = re.match(
            r"table public\.accounts: (\w+): id\[integer\]:(\d+)(?: change\[bigint\]:(\d+))?", row
        )
        if match:
            key = int(match[2])
            changes[key].append((codes[match[1]], key, None if match[3] is None else int(match[3])))
    return dict(changes)


def _wait_for_rows(servers: str, count: int) -> None:
    reader = Reader(servers)
    deadline = time.monotonic() + CATCH_UP_S
    while reader.rows < count:
        assert time.monotonic() < deadline
        reader.read()
    reader.close()


class Reader:
    """What is committed, by key: changes, and how many rows were read before them."""

    def __init__(self, servers: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "soak-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        self._found: dict[int, list[Change]] = defaultdict(list)
        self.rows = 0

    def read(self) -> dict[int, list[Change]]:
        while messages := self._consumer.consume(5000, timeout=2.0):
            for message in messages:
                if message.error() is None:
                    self._take(message)
        return dict(self._found)

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: Any) -> None:
        key = json.loads(message.key())["id"]
        if message.value() is None:
            assert self._found[key][-1][0] == "d"
            return
        value = json.loads(message.value())
        if value["op"] == "r":
            self.rows += 1
            return
        after = value["after"]
        self._found[key].append((value["op"], key, None if after is None else after["change"]))
