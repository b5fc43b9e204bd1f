"""Change capture from a real PostgreSQL: rows, changes, types, what interrupts it and what fails."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'ottla[postgres]')")

from postgres_server import PostgresServer, postgres_server  # noqa: E402
from test_moving_records import PLAIN, ask, committed_values, create, task_state, until  # noqa: E402
from worker_process import our_worker, settings_of  # noqa: E402

from ottla.connect.columns import SourceColumns  # noqa: E402
from ottla.connect.connectors.postgres.database import ReplicationStream  # noqa: E402
from ottla.connect.connectors.postgres.task import PostgresSourceTask  # noqa: E402
from ottla.connect.running.source_task import SourceRunner  # noqa: E402
from ottla.testing import InProcessBroker  # noqa: E402

JSON_KEYS = {"key.converter": "JsonConverter", "key.converter.schemas.enable": "false"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    given = settings_of(broker.bootstrap_servers) | {"exactly.once.source.support": "enabled"} | PLAIN
    with our_worker(given | JSON_KEYS) as worker:
        yield worker.address


def capture(address: str, server: PostgresServer, name: str, **more: str) -> None:
    given = {
        **server.settings(),
        "topic.prefix": name,
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    create(address, name, "PostgresSource", **given)


def wait_until_followed(database: Any, slot: str) -> None:
    """Tables are read before: a TRUNCATE meanwhile is seen there, too, whenever they are read."""
    sql = (
        "SELECT 1 FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid "
        "WHERE slot_name = %s AND state IN ('catchup', 'streaming')"
    )
    until(lambda: database.execute(sql, [slot]).fetchone())


def changes(broker: InProcessBroker, topic: str, count: int) -> list[tuple[Any, Any]]:
    """Keys and values as JSON, None where there is none."""
    return [
        (
            None if message.key() is None else json.loads(message.key()),
            None if message.value() is None else json.loads(message.value()),
        )
        for message in committed_values(broker, topic, count)
    ]


def test_rows_then_every_change_in_the_order_of_commits(
    address: str, broker: InProcessBroker, server: PostgresServer
) -> None:
    with server.connect() as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL, price numeric(8,2))")
        database.execute("INSERT INTO orders VALUES (1, 'tea', 2.50), (2, 'rum', NULL)")
        capture(
            address, server, "store", table_include_list="public.orders", provide_transaction_metadata="true"
        )
        wait_until_followed(database, "store")
        database.execute("INSERT INTO orders VALUES (3, 'ale', 4)")
        database.execute("UPDATE orders SET price = 5 WHERE id = 3")
        database.execute("UPDATE orders SET id = 4 WHERE id = 3")
        database.execute("DELETE FROM orders WHERE id = 4")
        database.execute("ALTER TABLE orders ADD COLUMN note text DEFAULT 'none'")
        database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        with database.transaction():
            database.execute("UPDATE orders SET note = 'strong' WHERE id = 2")
            database.execute("DELETE FROM orders WHERE id = 1")
        database.execute("TRUNCATE orders")
    found = changes(broker, "store.public.orders", 13)
    seen = [(key, None if value is None else value["op"]) for key, value in found]
    assert seen == [
        ({"id": 1}, "r"),
        ({"id": 2}, "r"),
        ({"id": 3}, "c"),
        ({"id": 3}, "u"),
        ({"id": 3}, "d"),
        ({"id": 3}, None),
        ({"id": 4}, "c"),
        ({"id": 4}, "d"),
        ({"id": 4}, None),
        ({"id": 2}, "u"),
        ({"id": 1}, "d"),
        ({"id": 1}, None),
        (None, "t"),
    ]
    values = [value for _, value in found]
    price = base64.b64encode((250).to_bytes(2, "big")).decode()
    assert values[0]["after"] == {"id": 1, "item": "tea", "price": price}
    assert [values[place]["source"]["snapshot"] for place in (0, 1, 2)] == ["first", "last", "false"]
    # Of a row that is gone only the key is known, unless the table says otherwise.
    assert values[7]["before"] == {"id": 4, "item": "", "price": None}
    assert values[9]["before"] == {"id": 2, "item": "rum", "price": None, "note": "none"}
    assert values[9]["after"] == {"id": 2, "item": "rum", "price": None, "note": "strong"}
    source = values[9]["source"]
    assert (
        source
        | {
            "connector": "postgresql",
            "name": "store",
            "db": "postgres",
            "schema": "public",
            "table": "orders",
            "xmin": None,
        }
        == source
    )
    assert source["txId"] == values[10]["source"]["txId"] != values[7]["source"]["txId"]
    lsns = [value["source"]["lsn"] for value in values if value is not None]
    assert lsns == sorted(lsns)
    assert [value["transaction"] and value["transaction"]["total_order"] for value in values[9:11]] == [1, 2]
    ends = [value for _, value in changes(broker, "store.transaction", 12) if value["status"] == "END"]
    last = values[9]["transaction"]["id"]
    (end,) = [value for value in ends if value["id"] == last]
    assert end["event_count"] == 2
    assert end["data_collections"] == [{"data_collection": "public.orders", "event_count": 2}]
    ask(address, "DELETE", "/connectors/store")


TYPES = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN small AS int CHECK (VALUE < 1000);
CREATE TABLE kinds (
  id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(10,3), nv numeric,
  c char(4), v varchar(9), by bytea, d date, t time, t3 time(3), ts timestamp, ts3 timestamp(3),
  tz timestamptz, ttz timetz, iv interval, j jsonb, u uuid, m mood, ia int[], ta text[], bits bit(10),
  dom small, ip inet, far date, money money, r int4range, p point
)
"""
ROW = """
INSERT INTO kinds VALUES (
  1, true, -7, 9007199254740993, 1.5, 2.25, 123.456, 1234567.8901,
  'ab', 'ä€', '\\xDEADBEEF', '2024-02-29', '01:02:03.000004', '01:02:03.004', '2024-02-29 12:00:00.123456',
  '2024-02-29 12:00:00.123', '2024-02-29 12:00:00.5+02', '12:00:00+02', '1 year 2 mons 3 days 04:05:06.7',
  '{"a": [1]}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'sad', '{1,NULL,3}', '{"a,b",c}', B'1010000001',
  7, '10.0.0.1/8', '0044-03-15 BC', '-$1,234.50', '[1,5)', '(1,2)'
)
"""


def test_types_are_those_of_debezium_from_rows_and_from_changes(
    address: str, broker: InProcessBroker, server: PostgresServer
) -> None:
    with server.connect() as database:
        database.execute(TYPES)
        database.execute(ROW)
        capture(
            address,
            server,
            "kinds",
            table_include_list="public.kinds",
            value_converter_schemas_enable="true",
            value_converter="JsonConverter",
        )
        wait_until_followed(database, "kinds")
        database.execute(ROW.replace("  1, true", "  2, true"))
        read, created = (value for _, value in changes(broker, "kinds.public.kinds", 2))
    assert read["schema"] == created["schema"]
    row, again = read["payload"]["after"], created["payload"]["after"]
    assert again == row | {"id": 2}
    assert row == {
        "id": 1,
        "b": True,
        "i2": -7,
        "i8": 9007199254740993,
        "f4": 1.5,
        "f8": 2.25,
        "n": base64.b64encode((123456).to_bytes(3, "big")).decode(),
        "nv": {"scale": 4, "value": base64.b64encode((12345678901).to_bytes(5, "big")).decode()},
        "c": "ab  ",
        "v": "ä€",
        "by": base64.b64encode(b"\xde\xad\xbe\xef").decode(),
        "d": 19782,
        "t": 3723000004,
        "t3": 3723004,
        "ts": 1709208000123456,
        "ts3": 1709208000123,
        "tz": "2024-02-29T10:00:00.5Z",
        "ttz": "10:00:00Z",
        "iv": int(14 * 365.25 / 12 * 86400 * 1e6) + 3 * 86_400_000_000 + 14_706_700_000,
        "j": '{"a": [1]}',
        "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "m": "sad",
        "ia": [1, None, 3],
        "ta": ["a,b", "c"],
        "bits": base64.b64encode(b"\x81\x02").decode(),
        "dom": 7,
        "ip": "10.0.0.1/8",
        "far": -735160,
        "money": base64.b64encode((-123450).to_bytes(3, "big", signed=True)).decode(),
        "r": "[1,5)",
        "p": row["p"] | {"x": 1.0, "y": 2.0, "srid": None},
    }
    fields = {field["field"]: field for field in read["schema"]["fields"]}
    names = {field["field"]: field.get("name") for field in fields["after"]["fields"]}
    assert fields["after"]["name"] == "kinds.public.kinds.Value"
    assert read["schema"]["name"] == "kinds.public.kinds.Envelope"
    assert names["ts"] == "io.debezium.time.MicroTimestamp"
    assert names["ts3"] == "io.debezium.time.Timestamp"
    assert names["d"] == "io.debezium.time.Date"
    assert names["nv"] == "io.debezium.data.VariableScaleDecimal"
    assert names["m"] == "io.debezium.data.Enum"
    assert Decimal(int.from_bytes(base64.b64decode(row["n"]), "big")).scaleb(-3) == Decimal("123.456")
    ask(address, "DELETE", "/connectors/kinds")


def test_a_connection_lost_before_the_first_read_is_made_again(
    address: str, broker: InProcessBroker, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_slot, lost = ReplicationStream.create_slot, []

    def create_and_lose(stream: ReplicationStream, slot: str) -> tuple[int, str]:
        found = create_slot(stream, slot)
        if not lost:
            lost.append(slot)
            stream.close()
        return found

    monkeypatch.setattr(ReplicationStream, "create_slot", create_and_lose)
    with server.connect() as database:
        database.execute("CREATE TABLE early (id int PRIMARY KEY)")
        database.execute("INSERT INTO early VALUES (1), (2)")
        capture(address, server, "early", table_include_list="public.early")
        found = changes(broker, "early.public.early", 2)
        assert [key["id"] for key, _ in found] == [1, 2]
        assert lost == ["early"]
    ask(address, "DELETE", "/connectors/early")


def test_each_change_is_there_once_over_lost_connections_and_restarts(
    address: str, broker: InProcessBroker, server: PostgresServer
) -> None:
    with server.connect() as database:
        database.execute("CREATE TABLE counted (id int PRIMARY KEY, big text)")
        large = "x" * 50_000
        # So that it is kept outside of the row, and not sent with an update of something else.
        database.execute("ALTER TABLE counted ALTER COLUMN big SET STORAGE EXTERNAL")
        capture(
            address, server, "counted", table_include_list="public.counted", heartbeat_interval_ms="200",
            max_batch_size="7",
        )  # fmt: skip
        # Not before it is known that the table was read, else its rows would come again.
        until(lambda: ask(address, "GET", "/connectors/counted/offsets")["offsets"])
        sql = (
            "SELECT active_pid FROM pg_replication_slots JOIN pg_stat_replication ON pid = active_pid "
            "WHERE slot_name = 'counted' AND state = 'streaming'"
        )
        for round_ in range(3):
            pid = until(lambda: (row := database.execute(sql).fetchone()) and row[0])
            with database.transaction():
                for number in range(50):
                    database.execute("INSERT INTO counted VALUES (%s, 'small')", [round_ * 50 + number])
            if round_ == 1:
                ask(address, "POST", "/connectors/counted/restart?includeTasks=true")
            else:
                database.execute("SELECT pg_terminate_backend(%s)", [pid])
        database.execute("INSERT INTO counted VALUES (1000, %s)", [large])
        database.execute("UPDATE counted SET id = id WHERE id = 1000")
        found = changes(broker, "counted.public.counted", 152)
        assert [key["id"] for key, _ in found] == [*range(150), 1000, 1000]
        assert found[-2][1]["after"]["big"] == large
        assert found[-1][1]["after"]["big"] == "__debezium_unavailable_value"
        # The slot follows what is in the topic, and the heartbeat what is not.
        position = database.execute("SELECT pg_current_wal_lsn()").fetchone()
        until(
            lambda: database.execute(
                "SELECT 1 FROM pg_replication_slots "
                "WHERE slot_name = 'counted' AND confirmed_flush_lsn >= %s",
                position,
            ).fetchone()
        )
        beats = changes(broker, "__debezium-heartbeat.counted", 1)
        assert beats[0][0] == {"serverName": "counted"}
        offsets = ask(address, "GET", "/connectors/counted/offsets")["offsets"]
        assert offsets[0]["partition"] == {"server": "counted"}
    ask(address, "DELETE", "/connectors/counted")


def test_the_guide_shows_what_happens(address: str, broker: InProcessBroker, server: PostgresServer) -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/change-capture.md").read_text()
    first, second = re.findall(r"^```sql\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    [command] = re.findall(r"^```sh\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    for there, here in (
        ("localhost:8083", address),
        ('"localhost"', '"127.0.0.1"'),
        ("5432", str(server.port)),
        ('"postgres"', '"guide"'),
    ):
        assert there in command
        command = command.replace(there, here)
    with server.connect() as administrator:
        administrator.execute("CREATE DATABASE guide")
    with server.connect("guide") as database:
        database.execute(first)
        done = subprocess.run(["sh", "-e", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        topic = "shop.public.orders"
        wait_until_followed(database, "shop")
        database.execute(second)
    told = re.findall(r'^\| `(\{"id": 1\})` \| (?:`\{"op": "(\w)")?', guide, re.MULTILINE)
    assert [operation or None for _, operation in told] == ["r", "u", "d", None]
    found = changes(broker, topic, len(told))
    assert [(key, value and value["op"]) for key, value in found] == [
        ({"id": 1}, operation or None) for _, operation in told
    ]
    ask(address, "DELETE", "/connectors/shop")


class Alone:
    """A task without a worker: what it stores is what its last record says, or one before it."""

    def __init__(self, server: PostgresServer, name: str, stored: Any, **more: str) -> None:
        self._stored = stored
        self.task = PostgresSourceTask()
        self.task.context = self
        given = {
            **server.settings(),
            "topic.prefix": name,
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "filtered",
            "table.include.list": f"public.{name}_.*",
            "max.batch.size": "10",
            **more,
        }
        self.task.start(given)

    def offset(self, partition: Any) -> Any:
        return self._stored

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def take(self, count: int) -> list[Any]:
        records: list[Any] = []
        deadline = time.monotonic() + 30
        while len(records) < count and time.monotonic() < deadline:
            polled = self.task.poll()
            records += polled.records() if isinstance(polled, SourceColumns) else polled
        return records


def state(record: Any) -> tuple[str, int, str | None]:
    after = record.value.get("after")
    return record.value.get("op"), record.key.get("id"), None if after is None else after.get("v")


def test_reading_the_tables_goes_on_after_an_interruption_and_ends_in_what_is_there(
    server: PostgresServer,
) -> None:
    with server.connect() as database:
        for table in ("half_a", "half_b"):
            database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
            database.execute(f"INSERT INTO {table} SELECT n, 'old' FROM generate_series(1, 25) n")
        first = Alone(server, "half", None)
        before = first.take(30)
        stored = before[-1].source_offset
        assert stored["snapshot_tables"] == ["public.half_a"]
        first.task.stop()
        database.execute("UPDATE half_a SET v = 'new' WHERE id = 1")
        database.execute("UPDATE half_b SET v = 'new' WHERE id = 2")
        database.execute("DELETE FROM half_b WHERE id = 3")
        second = Alone(server, "half", stored, **{"tombstones.on.delete": "false"})
        after = second.take(24 + 3)
        second.task.stop()
        assert [state(record) for record in after[24:]] == [
            ("u", 1, "new"),
            ("u", 2, "new"),
            ("d", 3, None),
        ]
        assert [record.value.get("source").get("snapshot") for record in after[22:25]] == [
            "true",
            "last",
            "false",
        ]
        tables: dict[str, dict[int, str | None]] = {"half.public.half_a": {}, "half.public.half_b": {}}
        for record in before + after:
            operation, key, value = state(record)
            tables[record.topic][key] = value
            if operation == "d":
                del tables[record.topic][key]
        for table in ("half_a", "half_b"):
            rows = dict(database.execute(f"SELECT id, v FROM {table}").fetchall())
            assert tables[f"half.public.{table}"] == rows


def test_a_transaction_goes_on_in_the_middle(server: PostgresServer) -> None:
    with server.connect() as database:
        database.execute("CREATE TABLE middle_t (id int PRIMARY KEY, v text)")
        first = Alone(server, "middle", None)
        assert not first.task.poll()
        database.execute("INSERT INTO middle_t VALUES (0, 'alone')")
        with server.connect() as other, other.transaction():
            other.execute("INSERT INTO middle_t SELECT n, 'early' FROM generate_series(1, 25) n")
            database.execute("INSERT INTO middle_t VALUES (100, 'between')")
            other.execute("INSERT INTO middle_t SELECT n, 'early' FROM generate_series(26, 50) n")
        taken = first.take(31)[:31]
        assert [state(record)[1] for record in taken] == [0, 100, *range(1, 30)]
        # In the middle of a batch that was written but for its end.
        stored = taken[19].source_offset
        first.task.stop()
        second = Alone(server, "middle", stored)
        rest = second.take(32)
        assert [state(record)[1] for record in rest] == list(range(19, 51))
        second.task.commit()
        second.task.stop()


def test_rows_are_the_same_in_their_topics_as_columns_and_one_by_one(
    broker: InProcessBroker, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the names and times of two connectors that read the same tables."""
    written: set[str] = set()
    write_columns = SourceRunner._write_columns

    def writing(runner: SourceRunner, given: SourceColumns) -> bool:
        is_written = write_columns(runner, given)
        written.add(f"{runner.task.connector} {'columns' if is_written else 'records'}")
        return is_written

    monkeypatch.setattr(SourceRunner, "_write_columns", writing)
    with server.connect() as database:
        database.execute(
            "CREATE TABLE way_a (id bigint PRIMARY KEY, t text, n int, b bool NOT NULL, z timestamptz, "
            "d date, p numeric(9,2), j jsonb, f float8)"
        )
        database.execute(
            "INSERT INTO way_a SELECT n, CASE mod(n, 5) WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN "
            "E'quoted \"x\",\\\\\n\tend' WHEN 3 THEN U&'\\0007\\20ac' ELSE 'plain' END, "
            "nullif(mod(n, 3), 0), mod(n, 2) = 0, CASE WHEN n = 7 THEN 'infinity' ELSE now() END, "
            "'2024-02-29', n / 3.0, '{\"a\": 1}', n / 7.0 FROM generate_series(1, 3000) n"
        )
        database.execute("CREATE TABLE way_b (single text)")
        database.execute("INSERT INTO way_b VALUES (NULL), (''), ('last')")
    given = settings_of(broker.bootstrap_servers) | PLAIN | JSON_KEYS | {"group.id": "ways"}
    given |= {f"{name}.storage.topic": f"ways-{name}" for name in ("config", "offset", "status")}
    found: dict[str, list[Any]] = {}
    with our_worker(given) as worker:
        for name, more in (("fast", {}), ("slow", {"producer.override.statistics.interval.ms": "0"})):
            capture(
                worker.address, server, name, table_include_list="public.way_.*", max_batch_size="700",
                **more,
            )  # fmt: skip
            found[name] = changes(broker, f"{name}.public.way_a", 3000)
            found[name] += changes(broker, f"{name}.public.way_b", 3)
            ask(worker.address, "DELETE", f"/connectors/{name}")
    assert written == {"fast columns", "slow records"}
    for _, value in found["fast"] + found["slow"]:
        for part in (value, value["source"]):
            for varying in ("name", "ts_ms", "ts_us", "ts_ns", "lsn", "sequence"):
                part.pop(varying, None)
    assert found["fast"] == found["slow"]
    marks = [value["source"]["snapshot"] for _, value in found["fast"]]
    assert marks == [
        "first", *["true"] * 2998, "last_in_data_collection", "first_in_data_collection", "true", "last"
    ]  # fmt: skip


def failed(address: str, name: str) -> str:
    state = until(lambda: (found := task_state(address, name))["state"] == "FAILED" and found)
    return str(state["trace"])


def test_what_fails_says_why_and_what_to_do_and_the_others_run_on(
    address: str, broker: InProcessBroker, server: PostgresServer
) -> None:
    with server.connect() as database:
        database.execute("CREATE TABLE steady (id int PRIMARY KEY)")
        database.execute("CREATE TABLE passing (id int PRIMARY KEY)")
        capture(address, server, "steady", table_include_list="public.(steady|passing)")
        capture(address, server, "wrong", database_password="not this", table_include_list="public.steady")
        capture(address, server, "nowhere", table_include_list="public.nothing")
        trace = failed(address, "wrong")
        assert "password authentication failed" in trace
        assert "database.password" in trace
        assert "not this" not in trace
        assert "table.include.list=public.nothing" in failed(address, "nowhere")
        # A table that goes is no reason to stop.
        wait_until_followed(database, "steady")
        database.execute("INSERT INTO passing VALUES (1)")
        database.execute("DROP TABLE passing")
        database.execute("INSERT INTO steady VALUES (1)")
        assert [key for key, _ in changes(broker, "steady.public.steady", 1)] == [{"id": 1}]
        assert [key for key, _ in changes(broker, "steady.public.passing", 1)] == [{"id": 1}]
        # A slot that goes is: what changed since is lost.
        ask(address, "PUT", "/connectors/steady/stop")
        until(
            lambda: (
                not database.execute(
                    "SELECT active FROM pg_replication_slots WHERE slot_name = 'steady'"
                ).fetchone()[0]
            )
        )
        database.execute("SELECT pg_drop_replication_slot('steady')")
        ask(address, "PUT", "/connectors/steady/resume")
        assert "the slot steady is gone" in failed(address, "steady")
        ask(address, "PUT", "/connectors/steady/stop")
        until(lambda: not ask(address, "GET", "/connectors/steady/tasks"))
        ask(address, "DELETE", "/connectors/steady/offsets")
        ask(address, "PUT", "/connectors/steady/resume")
        again = changes(broker, "steady.public.steady", 1)
        assert [value["op"] for _, value in again] == ["r"]
    for name in ("steady", "wrong", "nowhere"):
        ask(address, "DELETE", f"/connectors/{name}")
