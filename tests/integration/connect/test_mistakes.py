"""What goes wrong outside of a worker: the task fails by name, the others run on, nothing is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from test_moving_records import PLAIN, ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

from ottla.connect import (
    RetriableError,
    Settings,
    SinkConnector,
    SinkRecord,
    SinkTask,
)
from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.testing import InProcessBroker


class WaitingSink(SinkTask):
    """Is not ready for anything until it is told."""

    is_ready = False
    refused = 0
    taken: list[Any] = []  # noqa: RUF012

    def start(self, given: Mapping[str, str]) -> None: ...

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not WaitingSink.is_ready:
            WaitingSink.refused += 1
            raise RetriableError("not yet")
        WaitingSink.taken += [record.value for record in records]


class WaitingSinkConnector(SinkConnector):
    settings = Settings()
    task_class = WaitingSink

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.given]


PLUGINS = Plugins(
    [*installed().of(*Kind), Listed(Kind.SINK, "WaitingSink", f"{__name__}:WaitingSinkConnector")]
)


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    given = settings_of(broker.bootstrap_servers) | {"exactly.once.source.support": "enabled"} | PLAIN
    given["consumer.topic.metadata.refresh.interval.ms"] = "200"
    given["producer.topic.metadata.refresh.interval.ms"] = "200"
    with our_worker(given, PLUGINS) as worker:
        yield worker.address


@pytest.fixture(autouse=True)
def bystander(address: str, broker: InProcessBroker, tmp_path: Path) -> Iterator[None]:
    """A connector beside the one that fails: it runs on."""
    source, topic = tmp_path / "bystander.txt", f"bystander-{tmp_path.name}"
    source.write_text("before\n")
    create(address, "bystander", "FileStreamSource", file=str(source), topic=topic)
    committed_values(broker, topic, 1)
    yield
    with source.open("a") as more:
        more.write("after\n")
    assert [json.loads(each.value()) for each in committed_values(broker, topic, 1)] == ["after"]
    ask(address, "DELETE", "/connectors/bystander")


def produce(broker: InProcessBroker, topic: str, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, key=key)
    producer.flush(60)


def trace_of_failed(address: str, name: str) -> str:
    trace: str = until(lambda: (state := task_state(address, name))["state"] == "FAILED" and state)["trace"]
    return trace


def restart(address: str, name: str) -> None:
    ask(address, "POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")


def test_a_skipped_record_does_not_carry_the_offset_past_those_that_wait(
    address: str, broker: InProcessBroker
) -> None:
    produce(broker, "waits", b'"one"', b"{broken")
    create(address, "waits", "WaitingSink", topics="waits", errors_tolerance="all")
    until(lambda: WaitingSink.refused)
    # Stopping commits what is done.
    ask(address, "PUT", "/connectors/waits/stop")
    until(lambda: not ask(address, "GET", "/connectors/waits/status")["tasks"])
    offsets = ask(address, "GET", "/connectors/waits/offsets")["offsets"]
    assert [each["offset"] for each in offsets] in ([], [{"kafka_offset": 0}])
    WaitingSink.is_ready = True
    ask(address, "PUT", "/connectors/waits/resume")
    until(lambda: WaitingSink.taken == ["one"])
    ask(address, "DELETE", "/connectors/waits")


def test_a_full_disk_fails_the_sink_and_what_was_not_written_comes_again(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    produce(broker, "full", *(b'"%06d"' % number for number in range(2000)))
    out = tmp_path / "out.txt"
    out.symlink_to("/dev/full")
    create(address, "full", "FileStreamSink", file=str(out), topics="full")
    trace = trace_of_failed(address, "full")
    assert f"{out} cannot be written: [Errno 28] No space left on device" in trace
    assert "free some space" in trace
    assert "did not let go" not in trace
    out.unlink()
    restart(address, "full")
    until(lambda: out.exists() and out.read_text().split() == [f"{number:06}" for number in range(2000)])
    ask(address, "DELETE", "/connectors/full")


def test_a_deleted_topic_fails_the_sink_that_reads_it(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    produce(broker, "goes", b'"one"')
    produce(broker, "stays", b'"one"')
    out = tmp_path / "out.txt"
    create(address, "goes", "FileStreamSink", file=str(out), topics="goes,stays")
    until(lambda: out.exists() and out.read_text() == "one\none\n")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["goes"])["goes"].result(30)
    trace = trace_of_failed(address, "goes")
    assert "the topic goes is gone" in trace
    assert "out of topics" in trace
    admin.create_topics([NewTopic("goes", 1, 1)])["goes"].result(30)
    produce(broker, "goes", b'"two"')
    produce(broker, "stays", b'"two"')
    restart(address, "goes")
    until(lambda: out.read_text() == "one\none\ntwo\ntwo\n")
    ask(address, "DELETE", "/connectors/goes")


def test_a_topic_that_a_source_writes_to_may_be_deleted(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    create(address, "target", "FileStreamSource", file=str(source), topic="target")
    committed_values(broker, "target", 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["target"])["target"].result(30)
    with source.open("a") as more:
        more.write("two\n")

    def has_come() -> bool:
        if task_state(address, "target")["state"] == "FAILED":
            assert "target" in task_state(address, "target")["trace"]
            restart(address, "target")
        return "target" in admin.list_topics(timeout=30).topics

    until(has_come)
    assert [json.loads(each.value()) for each in committed_values(broker, "target", 1)] == ["two"]
    ask(address, "DELETE", "/connectors/target")


def test_a_record_that_is_too_large_is_named_and_may_be_skipped(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text(f"one\n{'x' * 3_000_000}\ntwo\n")
    create(address, "large", "FileStreamSource", file=str(source), topic="large")
    trace = trace_of_failed(address, "large")
    assert "a record of large failed in KAFKA_PRODUCE" in trace
    assert "max.request.size" in trace
    ask(address, "PATCH", "/connectors/large/config", {"errors.tolerance": "all"})
    values = [json.loads(each.value()) for each in committed_values(broker, "large", 2)]
    assert values == ["one", "two"]
    ask(address, "DELETE", "/connectors/large")


def test_a_file_that_is_shorter_than_it_was_fails_by_name(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\nthree\n")
    create(address, "shorter", "FileStreamSource", file=str(source), topic="shorter")
    committed_values(broker, "shorter", 3)
    source.write_text("new\n")
    trace = trace_of_failed(address, "shorter")
    assert f"{source} has 4 bytes, and 14 of it were read" in trace
    assert "DELETE its offsets" in trace
    ask(address, "PUT", "/connectors/shorter/stop")
    until(lambda: not ask(address, "GET", "/connectors/shorter/status")["tasks"])
    ask(address, "DELETE", "/connectors/shorter/offsets")
    ask(address, "PUT", "/connectors/shorter/resume")
    assert [json.loads(each.value()) for each in committed_values(broker, "shorter", 1)] == ["new"]
    ask(address, "DELETE", "/connectors/shorter")


def test_a_database_that_is_not_there_is_not_made_up(address: str, tmp_path: Path) -> None:
    given = {"mode": "bulk", "topic.prefix": "x"}
    create(address, "none", "JdbcSource", connection_url=f"jdbc:sqlite:{tmp_path}/none.db", **given)
    assert "cannot open" in trace_of_failed(address, "none")
    assert not (tmp_path / "none.db").exists()
    ask(address, "DELETE", "/connectors/none")
    for path in ("", ":memory:"):
        with pytest.raises(AssertionError, match="no path"):
            create(address, "none", "JdbcSink", connection_url=f"jdbc:sqlite:{path}", topics="x")


def test_a_query_without_the_column_that_says_what_is_new_fails_by_name(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    path = tmp_path / "data.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id integer, name text)")
        connection.execute("INSERT INTO t VALUES (1, 'one'), (NULL, 'none')")
    given = {"connection.url": f"jdbc:sqlite:{path}", "topic.prefix": "asked", "query": "SELECT * FROM t"}
    wrong = {"mode": "incrementing", "incrementing.column.name": "nope"}
    create(address, "asked", "JdbcSource", **given, **wrong)
    assert "the query has no column nope: it has id, name" in trace_of_failed(address, "asked")
    ask(address, "PATCH", "/connectors/asked/config", {"incrementing.column.name": "id"})
    trace = until(lambda: "is null" in (state := task_state(address, "asked")).get("trace", "") and state)[
        "trace"
    ]
    assert "a row of the query: id is null" in trace
    ask(address, "DELETE", "/connectors/asked")


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """The same, whatever is asked for."""
        self.send_response(200)
        body = b'[{"id": 1}, {"id": 2}]'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def test_a_server_that_gives_the_same_again_does_not_flood_the_topic(
    address: str, broker: InProcessBroker
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    create(
        address,
        "again",
        "http-source",
        topic="again",
        url=f"http://127.0.0.1:{server.server_address[1]}/x?after=${{offset}}",
        offset_field="id",
        offset_initial="0",
        poll_interval_ms="50",
    )
    trace = trace_of_failed(address, "again")
    assert "gives records that are not behind id=2" in trace
    assert len(committed_values(broker, "again", 2)) <= 2
    ask(address, "DELETE", "/connectors/again")
    server.shutdown()


def test_addresses_and_headers_that_cannot_be_are_refused_at_once(address: str) -> None:
    for url in ("http://me:secret@host/", "http://host:99999/", "http://host/a b", "http://host/\u00e4"):
        with pytest.raises(AssertionError, match="for configuration url") as refused:
            create(address, "wrong", "http-sink", topics="x", url=url)
        assert "secret" not in str(refused.value) or "@" in url
    with pytest.raises(AssertionError, match="for configuration headers"):
        create(address, "wrong", "http-sink", topics="x", url="http://host/", headers="X-A: b\r\nX-C: d")
    with pytest.raises(AssertionError, match=r"for configuration connection\.url"):
        create(address, "wrong", "JdbcSink", topics="x", connection_url="jdbc:postgresql://host:no/db")
    with pytest.raises(AssertionError, match=r"for configuration mqtt\.topics"):
        create(address, "wrong", "mqtt-source", mqtt_server_uri="mqtt://host", mqtt_topics="a/#/b")
    for topic in ("a b", "..", "x" * 250):
        with pytest.raises(AssertionError, match="for configuration topic"):
            create(address, "wrong", "FileStreamSource", file="x", topic=topic)


def test_an_mqtt_server_that_is_away_is_waited_for_and_a_poison_is_set_aside(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    mqtt = pytest.importorskip("paho.mqtt.client", reason="needs the extra ottla[mqtt]")
    from test_outside_servers import Mosquitto

    server = Mosquitto(tmp_path)
    raw = {"value_converter": "ByteArrayConverter", "key_converter": "StringConverter"}
    produce(broker, "orders", b"zero", key=b"a")
    create(
        address,
        "orders",
        "mqtt-sink",
        topics="orders",
        mqtt_server_uri=f"mqtt://127.0.0.1:{server.port}",
        mqtt_topic="out/${key}",
        flush_timeout_ms="200",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="orders-dead",
        **raw,
    )
    found: set[bytes] = set()
    listener = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "listener", clean_session=False)
    listener.reconnect_delay_set(1, 1)
    listener.on_connect = lambda client, *_: client.subscribe("out/#", 1)
    listener.on_message = lambda _, __, message: found.add(message.payload)

    def offset() -> Any:
        offsets = ask(address, "GET", "/connectors/orders/offsets")["offsets"]
        return offsets[0]["offset"]["kafka_offset"] if offsets else 0

    until(lambda: offset() == 1)
    server.kill()
    produce(broker, "orders", b"one", key=b"a")
    produce(broker, "orders", b"poison", key=b"a/+")
    letters = committed_values(broker, "orders-dead", 1)
    assert [letter.value() for letter in letters] == [b"poison"]
    assert task_state(address, "orders")["state"] == "RUNNING"
    assert offset() == 1
    server.start()
    listener.connect("127.0.0.1", server.port)
    listener.loop_start()
    until(lambda: offset() == 3)
    assert task_state(address, "orders")["state"] == "RUNNING"
    listener.loop_stop()
    ask(address, "DELETE", "/connectors/orders")
    server.kill()
