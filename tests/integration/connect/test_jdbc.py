"""Tables as sources and sinks: the same for SQLite and a real PostgreSQL."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from test_moving_records import PLAIN, ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

from ottla.testing import InProcessBroker

Run = Callable[[str], list[Any]]


class Place:
    """A database, by its URL and a way to ask it."""

    def __init__(self, kind: str, settings: dict[str, str], run: Run) -> None:
        self.kind, self.settings, self.run = kind, settings, run


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("sqlite") / "data.db"

        def run(sql: str) -> list[Any]:
            with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
                return connection.execute(sql).fetchall()

        yield Place("sqlite", {"connection.url": f"jdbc:sqlite:{path}"}, run)
        return
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'ottla[postgres]')")
    from postgres_server import PASSWORD, postgres_server

    with postgres_server() as server, server.connect() as connection:

        def run_there(sql: str) -> list[Any]:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

        settings = {
            "connection.url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
            "connection.user": "postgres",
            "connection.password": PASSWORD,
        }
        yield Place("postgresql", settings, run_there)


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    given = settings_of(broker.bootstrap_servers) | {"exactly.once.source.support": "enabled"} | PLAIN
    with our_worker(given) as worker:
        yield worker.address


def read_table(address: str, place: Place, name: str, **more: str) -> None:
    given = {"topic_prefix": f"{place.kind}-", "poll_interval_ms": "100"} | place.settings | more
    create(address, name, "JdbcSource", **given)


def rows(broker: InProcessBroker, topic: str, count: int) -> list[Any]:
    return [json.loads(message.value()) for message in committed_values(broker, topic, count)]


def test_rows_come_once_by_number_over_restarts(address: str, broker: InProcessBroker, place: Place) -> None:
    key = "integer PRIMARY KEY" if place.kind == "sqlite" else "serial PRIMARY KEY"
    place.run(f"CREATE TABLE counted (id {key}, name text NOT NULL, price float)")
    for number in range(5):
        place.run(f"INSERT INTO counted (name, price) VALUES ('n{number}', {number}.5)")
    name = f"{place.kind}-counted"
    read_table(address, place, name, mode="incrementing", table_whitelist="counted", batch_max_rows="2")
    first = rows(broker, name, 5)
    assert first == [{"id": n + 1, "name": f"n{n}", "price": n + 0.5} for n in range(5)]
    ask(address, "POST", f"/connectors/{name}/restart?includeTasks=true")
    place.run("ALTER TABLE counted ADD COLUMN more text")
    place.run("INSERT INTO counted (name, more) VALUES ('late', 'yes')")
    assert rows(broker, name, 1) == [{"id": 6, "name": "late", "price": None, "more": "yes"}]
    (offset,) = ask(address, "GET", f"/connectors/{name}/offsets")["offsets"]
    assert offset["offset"] == {"incrementing": 6}
    assert offset["partition"]["table"].endswith("counted")
    place.run("DROP TABLE counted")
    trace = until(lambda: (state := task_state(address, name))["state"] == "FAILED" and state)["trace"]
    assert "counted is gone" in trace
    ask(address, "DELETE", f"/connectors/{name}")


def test_rows_come_by_time_and_by_time_and_number(
    address: str, broker: InProcessBroker, place: Place
) -> None:
    place.run("CREATE TABLE timed (id integer NOT NULL, changed timestamp NOT NULL)")
    for number in range(6):
        # Three of each time: none is lost at the end of a batch.
        place.run(f"INSERT INTO timed VALUES ({number}, '2024-01-01 00:00:0{number // 3}.250')")
    for mode, topic in (("timestamp", "t"), ("timestamp+incrementing", "b")):
        read_table(
            address,
            place,
            f"{place.kind}-{topic}",
            mode=mode,
            topic_prefix=f"{place.kind}-{topic}",
            query="SELECT * FROM timed",
            timestamp_column_name="changed",
            incrementing_column_name="id",
            batch_max_rows="2",
        )
    for topic in ("t", "b"):
        found = rows(broker, f"{place.kind}-{topic}", 6)
        assert [row["id"] for row in found][-6:] == list(range(6))
    place.run("UPDATE timed SET changed = '2024-02-01 00:00:00' WHERE id = 2")
    for topic in ("t", "b"):
        assert [row["id"] for row in rows(broker, f"{place.kind}-{topic}", 1)][-1:] == [2]
        ask(address, "DELETE", f"/connectors/{place.kind}-{topic}")


def test_a_query_and_all_rows_each_time(address: str, broker: InProcessBroker, place: Place) -> None:
    place.run("CREATE TABLE few (id integer)")
    place.run("INSERT INTO few VALUES (1), (2)")
    create(
        address,
        f"{place.kind}-bulk",
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        topic_prefix=f"{place.kind}-bulk",
        poll_interval_ms="100",
        mode="bulk",
        query="SELECT id * 2 AS twice FROM few WHERE id > 1",
        **place.settings,
    )
    assert {row["twice"] for row in rows(broker, f"{place.kind}-bulk", 3)} == {4}
    ask(address, "DELETE", f"/connectors/{place.kind}-bulk")


SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int32", "optional": False},
        {"field": "name", "type": "string", "optional": True},
        {"field": "price", "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal",
         "version": 1, "parameters": {"scale": "2"}},
        {"field": "at", "type": "int64", "optional": True, "name": "org.apache.kafka.connect.data.Timestamp",
         "version": 1},
    ],
}  # fmt: skip
KEY = {"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": False}]}


def send(
    broker: InProcessBroker, topic: str, records: Sequence[tuple[int, Any]], schema: Any = SCHEMA
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in records:
        payload = None if value is None else json.dumps({"schema": schema, "payload": {"id": key, **value}})
        producer.produce(topic, payload, key=json.dumps({"schema": KEY, "payload": {"id": key}}))
    producer.flush(30)


WITH_SCHEMAS = {
    f"{part}.converter{more}": value
    for part in ("key", "value")
    for more, value in (("", "JsonConverter"), (".schemas.enable", "true"))
}


def test_rows_are_upserted_deleted_and_their_table_made_and_altered(
    address: str, broker: InProcessBroker, place: Place
) -> None:
    topic = f"{place.kind}-upserted"
    send(
        broker,
        topic,
        [
            (1, {"name": "tea", "price": "AP8=", "at": 1709208000123}),
            (2, {"name": "rum", "price": None, "at": None}),
            (1, {"name": "green tea", "price": "AP8=", "at": 1709208000123}),
            (2, None),
            (3, {"name": "ale", "price": None, "at": None}),
        ],
    )
    create(
        address,
        topic,
        "JdbcSink",
        topics=topic,
        insert_mode="upsert",
        pk_mode="record_key",
        delete_enabled="true",
        auto_create="true",
        auto_evolve="true",
        table_name_format="sunk_${topic}",
        **WITH_SCHEMAS,
        **place.settings,
    )
    table = f'"sunk_{topic}"'

    def found(columns: str) -> list[Any]:
        try:
            return place.run(f"SELECT {columns} FROM {table} ORDER BY id")
        except Exception:
            return []

    until(lambda: found("id, name") == [(1, "green tea"), (3, "ale")])
    price, at = found("price, at")[0]
    assert float(price) == 2.55
    assert str(at).startswith("2024-02-29 12:00:00.123")
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"field": "size", "type": "int32", "optional": True}]}
    send(broker, topic, [(3, {"name": "ale", "price": None, "at": None, "size": 5})], wider)
    until(lambda: found("id, size") == [(1, None), (3, 5)])
    place.run(f"DROP TABLE {table}")
    send(broker, topic, [(4, {"name": "gin", "price": None, "at": None})])
    trace = until(lambda: (state := task_state(address, topic))["state"] == "FAILED" and state)["trace"]
    assert "refuses" in trace
    assert "restart the task" in trace
    ask(address, "POST", f"/connectors/{topic}/restart?includeTasks=true&onlyFailed=true")
    until(lambda: found("id, name") == [(4, "gin")])
    ask(address, "DELETE", f"/connectors/{topic}")


def test_a_row_that_does_not_fit_is_set_aside_and_the_others_are_inserted(
    address: str, broker: InProcessBroker, place: Place
) -> None:
    topic = f"{place.kind}-inserted"
    place.run(f'CREATE TABLE "{topic}" (id integer PRIMARY KEY, name text NOT NULL)')
    send(
        broker,
        topic,
        [(n, {"name": None if n == 3 else f"n{n}", "price": None, "at": None}) for n in range(6)],
    )
    create(
        address,
        topic,
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        topics=topic,
        fields_whitelist="id,name",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=f"{topic}-dead",
        **WITH_SCHEMAS,
        **place.settings,
    )
    sql = f'SELECT id FROM "{topic}" ORDER BY id'
    until(lambda: [row[0] for row in place.run(sql)] == [0, 1, 2, 4, 5])
    letters = committed_values(broker, f"{topic}-dead", 1)
    assert [json.loads(letter.value())["payload"]["id"] for letter in letters] == [3]
    ask(address, "DELETE", f"/connectors/{topic}")


def test_what_cannot_work_says_why(address: str, tmp_path: Path, place: Place) -> None:
    if place.kind == "sqlite":
        wrong = {"connection.url": f"jdbc:sqlite:{tmp_path}/no/such/directory.db"}
        expected = "cannot open"
    else:
        wrong = place.settings | {"connection.password": "not this"}
        expected = "connection.password"
    name = f"{place.kind}-wrong"
    create(address, name, "JdbcSource", topic_prefix="x", mode="bulk", **wrong)
    trace = until(lambda: (state := task_state(address, name))["state"] == "FAILED" and state)["trace"]
    assert expected in trace
    assert "not this" not in trace
    ask(address, "DELETE", f"/connectors/{name}")
    answer = ask(
        address,
        "PUT",
        "/connector-plugins/JdbcSource/config/validate",
        {
            "connector.class": "JdbcSource",
            "connection.url": "jdbc:oracle:thin:@x",
            "mode": "bulk",
            "topic.prefix": "x",
        },
    )
    errors = {each["value"]["name"]: each["value"]["errors"] for each in answer["configs"]}
    assert "known here are PostgreSQL" in errors["connection.url"][0]


def test_arrays_and_json_come_as_text(address: str, broker: InProcessBroker, place: Place) -> None:
    if place.kind == "sqlite":
        pytest.skip("it has neither")
    place.run("CREATE TABLE listed (id serial PRIMARY KEY, n int[], t text[], d numeric[], j json, b jsonb)")
    place.run(
        "INSERT INTO listed (n, t, d, j, b) VALUES (ARRAY[1, NULL], ARRAY['größer', 'a\"b'], ARRAY[1.50, 2], "
        "'{\"z\": 1.10,  \"a\": 12345678901234567890.123}', '[1, \"ß\"]'), (NULL, NULL, NULL, NULL, 'null')"
    )
    name = f"{place.kind}-listed"
    read_table(address, place, name, mode="incrementing", table_whitelist="listed")
    first, second = rows(broker, name, 2)
    assert first == {
        "id": 1,
        "n": "[1, null]",
        "t": '["größer", "a\\"b"]',
        "d": '["1.50", "2"]',
        "j": '{"z": 1.10,  "a": 12345678901234567890.123}',
        "b": '[1, "ß"]',
    }
    assert second == {"id": 2, "n": None, "t": None, "d": None, "j": None, "b": "null"}
    ask(address, "DELETE", f"/connectors/{name}")
