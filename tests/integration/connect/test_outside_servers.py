"""Search, HTTP and MQTT: what arrives over outages and refusals, once or at least once as promised."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from test_moving_records import ask, committed_values, create, task_state, until
from worker_process import our_worker, settings_of

from ottla.testing import InProcessBroker


class Server(ThreadingHTTPServer):
    """Keeps documents by the bulk interface, requests as they came, and a list of orders."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.documents: dict[tuple[str, str], tuple[int, Any]] = {}
        self.requests: list[tuple[str, str, Any, dict[str, str]]] = []
        self.orders: list[dict[str, Any]] = []
        self.refusals: list[int] = []
        """Statuses of the next answers, in place of good ones."""
        self.item_refusals = 0
        self.is_down = False
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def crash(self) -> None:
        """Connections that are kept end in the middle of their next request."""
        self.is_down = True
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.is_down:
            self.close_connection = True
        elif self.server.refusals:
            self._answer(self.server.refusals.pop(0), {"error": "not now"})
        elif self.path.endswith("/_bulk"):
            self._answer(200, self._bulk(body))
        else:
            self.server.requests.append((self.command, self.path, json.loads(body), dict(self.headers)))
            self._answer(400 if b"poison" in body else 200, {})

    do_PUT = do_POST  # noqa: N815

    def do_GET(self) -> None:
        if self.server.refusals:
            self._answer(self.server.refusals.pop(0), {})
            return
        after = int(self.path.rpartition("=")[2])
        self._answer(
            200, {"data": {"items": [each for each in self.server.orders if each["id"] > after][:7]}}
        )

    def _bulk(self, body: bytes) -> dict[str, Any]:
        if self.headers["Authorization"] != "Basic bWU6c2VjcmV0":
            return {"errors": True, "items": []}
        items = []
        lines = iter(body.splitlines())
        for line in lines:
            ((action, head),) = json.loads(line).items()
            document = json.loads(next(lines)) if action == "index" else None
            items.append({action: {"_index": head["_index"], **self._applied(head, document)}})
        return {"errors": any(each.get("error") for item in items for each in item.values()), "items": items}

    def _applied(self, head: dict[str, Any], document: Any) -> dict[str, Any]:
        place = head["_index"], head["_id"]
        if self.server.item_refusals:
            self.server.item_refusals -= 1
            return {"status": 429, "error": {"type": "rejected", "reason": "full"}}
        if document is not None and document.get("n") == "poison":
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "not a number"}}
        if place in self.server.documents and self.server.documents[place][0] > head["version"]:
            return {"status": 409, "error": {"type": "version_conflict"}}
        self.server.documents[place] = head.get("version", 0), document
        return {"status": 200}

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    given = settings_of(broker.bootstrap_servers) | {
        "exactly.once.source.support": "enabled",
        "key.converter": "StringConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "consumer.topic.metadata.refresh.interval.ms": "200",
    }
    with our_worker(given) as worker:
        yield worker.address


def produce(broker: InProcessBroker, topic: str, rows: list[tuple[str | None, Any]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for key, value in rows:
        producer.produce(topic, None if value is None else json.dumps(value).encode(), key=key)
    producer.flush(60)


def test_documents_are_those_of_the_last_records_over_refusals_and_an_outage(
    address: str, broker: InProcessBroker
) -> None:
    server = Server()
    rows: list[tuple[str | None, Any]] = [(f"k{n % 10}", {"n": n}) for n in range(50)]
    produce(broker, "Docs", [*rows, ("k3", None), ("k4", {"n": "poison"})])
    server.refusals, server.item_refusals = [429, 503], 1
    create(
        address,
        "docs",
        "search",
        topics="Docs",
        connection_url=server.url,
        connection_username="me",
        connection_password="secret",
        batch_size="20",
        retry_timeout_ms="500",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="docs-dead",
    )
    expected = {("docs", f"k{n % 10}"): n for n in range(40, 50) if n != 43}

    def known(server: Server) -> dict[tuple[str, str], int]:
        return {place: row["n"] for place, (_, row) in server.documents.items() if row is not None}

    until(lambda: known(server) == expected and ("docs", "k3") in server.documents)
    assert [json.loads(letter.value()) for letter in committed_values(broker, "docs-dead", 1)] == [
        {"n": "poison"}
    ]
    # The server goes away, and comes back with nothing in it: what was not committed comes again.
    port = server.server_address[1]
    server.crash()
    produce(broker, "Docs", [("late", {"n": 1})])
    again = Server(port)
    until(lambda: known(again).get(("docs", "late")) == 1)
    assert task_state(address, "docs")["state"] == "RUNNING"
    ask(address, "DELETE", "/connectors/docs")
    again.shutdown()


def test_a_wrong_password_fails_the_task_by_name(address: str, broker: InProcessBroker) -> None:
    server = Server()
    produce(broker, "closed", [("k", {"n": 1})])
    server.refusals = [401] * 10
    create(address, "closed", "OpenSearchSink", topics="closed", connection_url=server.url)
    failed = until(lambda: (state := task_state(address, "closed"))["state"] == "FAILED" and state)
    assert "see connection.username and connection.password" in failed["trace"]
    ask(address, "DELETE", "/connectors/closed")
    server.shutdown()


def test_records_are_sent_and_new_ones_fetched_over_http(address: str, broker: InProcessBroker) -> None:
    server = Server()
    server.refusals = [500, 429]
    produce(broker, "sent", [("a b", {"n": 1}), ("c", {"n": "poison"}), ("d", {"n": 2})])
    create(
        address,
        "sent",
        "http-sink",
        topics="sent",
        url=f"{server.url}/in/${{topic}}/${{key}}?x=1",
        method="PUT",
        headers="X-Who: me",
        errors_tolerance="all",
    )
    until(lambda: len(server.requests) == 3)
    assert [(method, path) for method, path, _, _ in server.requests] == [
        ("PUT", f"/in/sent/{key}?x=1") for key in ("a%20b", "c", "d")
    ]
    assert server.requests[2][2] == {"n": 2}
    assert server.requests[0][3]["X-Who"] == "me"
    assert [headers["Idempotency-Key"] for *_, headers in server.requests] == [
        f"sent-0@{n}+1" for n in range(3)
    ]
    server.orders = [{"id": n, "item": f"item {n}"} for n in range(1, 21)]
    server.refusals = [503]
    create(
        address,
        "fetched",
        "http-source",
        topic="fetched",
        url=f"{server.url}/orders?after=${{offset}}",
        offset_field="id",
        offset_initial="0",
        records_path="data.items",
        key_field="id",
        poll_interval_ms="50",
    )
    assert len(committed_values(broker, "fetched", 20)) == 20
    ask(address, "POST", "/connectors/fetched/restart?includeTasks=true")
    server.orders.append({"id": 21, "item": "late"})
    (late,) = committed_values(broker, "fetched", 1)
    assert (late.key(), json.loads(late.value())) == (b"21", {"id": 21, "item": "late"})
    for name in ("sent", "fetched"):
        ask(address, "DELETE", f"/connectors/{name}")
    server.shutdown()


class Mosquitto:
    """A real server that writes down every change, so that a kill loses nothing that it has acknowledged."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
        if program is None:
            pytest.skip("mosquitto is not installed")
        self._program = program
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\n"
            f"persistence_location {directory}/\nautosave_on_changes true\nautosave_interval 1\nuser root\n"
        )
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([self._program, "-c", str(self._config)], stderr=subprocess.DEVNULL)

        def is_up() -> bool:
            with socket.socket() as tried:
                return tried.connect_ex(("127.0.0.1", self.port)) == 0

        until(is_up)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)


def test_messages_come_and_go_over_kills_of_the_mqtt_server(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    mqtt = pytest.importorskip("paho.mqtt.client", reason="needs the extra ottla[mqtt]")
    server = Mosquitto(tmp_path)
    uri = f"mqtt://127.0.0.1:{server.port}"
    raw = {"value_converter": "ByteArrayConverter"}
    create(address, "from", "mqtt-source", mqtt_server_uri=uri, mqtt_topics="in/#", kafka_topic="from", **raw)
    until(lambda: task_state(address, "from")["state"] == "RUNNING")
    sender = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "sender", clean_session=False)
    sender.reconnect_delay_set(1, 1)
    sender.connect("127.0.0.1", server.port)
    sender.loop_start()
    # Not `is_published`, which fails for what is sent later because the server was away when it was given.
    published: set[int] = set()
    sender.on_publish = lambda _, __, number, *___: published.add(number)
    sent = [sender.publish(f"in/{n % 3}", f"m{n}", 1) for n in range(100)]
    until(lambda: published)
    server.kill()
    server.start()
    sent += [sender.publish("in/late", f"m{n}", 1) for n in range(100, 150)]
    until(lambda: published >= {each.mid for each in sent})
    values: set[bytes] = set()
    deadline = time.monotonic() + 60
    while len(values) < 150 and time.monotonic() < deadline:
        values |= {message.value() for message in committed_values(broker, "from", 1)}
    assert values == {f"m{n}".encode() for n in range(150)}
    found: set[bytes] = set()
    sender.on_message = lambda _, __, message: found.add(message.topic.encode() + b" " + message.payload)
    sender.subscribe("out/#", 1)
    create(address, "to", "mqtt-sink", mqtt_server_uri=uri, topics="from", mqtt_topic="out/${topic}", **raw)
    until(lambda: len(found) >= 10)
    server.kill()
    server.start()
    expected = {b"out/from " + value for value in values}
    until(lambda: found == expected)
    sender.loop_stop()
    for name in ("from", "to"):
        ask(address, "DELETE", f"/connectors/{name}")
    server.kill()
