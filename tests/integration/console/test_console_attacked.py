"""What strangers and careless people send to a console, or let it find."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka import Producer
from console_site import Site
from test_console_pipelines import answering, tell

from ottla.client.applications import Announcement
from ottla.console import app
from ottla.console.api import records
from ottla.console.problems import Refused
from ottla.console.rest import Rest
from ottla.runtime import web_connections
from ottla.testing import InProcessBroker

HALF = "\ud800"
LARGE = 10**30
RECORDS = ("topics", "orders", "records")


@pytest.mark.parametrize(
    ("method", "segments", "body"),
    [
        ("POST", ("topics",), {"name": "many", "partitions": 10**12}),
        ("POST", ("topics",), {"name": "many", "partitions": LARGE}),
        ("POST", ("topics",), {"name": HALF}),
        ("POST", ("topics",), {"name": "half", "settings": {"retention.ms": HALF}}),
        ("POST", ("topics",), {"name": "half", "settings": {HALF: "1"}}),
        ("POST", ("topics", "orders", "partitions"), {"count": 10**12}),
        ("POST", RECORDS, {"value": HALF}),
        ("POST", RECORDS, {"value": "[" * 100_000, "value_format": "json"}),
        ("PATCH", ("brokers", "²", "settings"), {"set": {"a": "b"}}),
        ("POST", ("groups", "billing", "offsets"), {"topic": "orders", "to": "time", "time": str(LARGE)}),
        ("PUT", ("quotas",), {"quota": "producer_byte_rate", "value": 1, "client_id": HALF}),
        ("POST", ("reassignments",), {"plan": {"orders-0": [LARGE]}}),
    ],
)
def test_what_no_broker_could_be_told_is_explained(
    site: Site, method: str, segments: tuple[str, ...], body: dict[str, Any]
) -> None:
    status, text = site.refused(method, *segments, **body)
    assert 400 <= status < 500 and "its log says" not in text


@pytest.mark.parametrize("asked", [{"start": "time", "time": str(LARGE)}, {"offset": str(LARGE)}])
def test_numbers_that_no_record_has_are_refused(site: Site, asked: dict[str, str]) -> None:
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    status, found, _ = site.ask("GET", f"{site.path(*RECORDS)}?{query}")
    assert status == 400 and str(LARGE) in found["error"]


def test_a_path_that_is_compared_with_a_deep_thing_finds_nothing(site: Site) -> None:
    assert site.get(*RECORDS, path="$.order = " + "[" * 5000)["records"] == []


def test_cookies_of_others_on_the_machine_do_no_harm(site: Site) -> None:
    """A page keeps the cookie that its token was made from, whatever form others give to theirs."""
    odd = f'odd={{"a": [1]}}; {site.headers["Cookie"]}'
    status, found, headers = site.ask("GET", "/api/token", Cookie=odd)
    assert status == 200 and "set-cookie" not in headers
    assert found["token"] == site.headers["X-CSRF-Token"]


def test_a_password_that_is_no_text_is_not_written_down(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.console.audit")
    status, text = site.refused("PUT", "users", "trudy", password=987654)
    assert status == 400 and "password" in text
    assert "987654" not in caplog.text and "trudy" in caplog.text


def test_files_are_streams_too_and_there_are_not_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "STREAMS_MAX", 0)
    status, found, _ = site.ask("GET", f"{site.path(*RECORDS, 'export')}?start=oldest")
    assert status == 429 and "close one" in found["error"]
    assert "close one" in site.ask("GET", site.path(*RECORDS, "search"))[1]


def test_a_server_that_drips_is_not_waited_for() -> None:
    """Each byte in time for a time-out between two, and no end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        done = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while not done.wait(0.05):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            began = time.monotonic()
            with pytest.raises(Refused, match=r"does not answer: not in 0\.5 s"):
                Rest("the application", address, 0.5).ask_now("GET", "x")
            assert time.monotonic() - began < 10
        finally:
            done.set()
            dripping.join()


def test_connections_that_are_only_held_make_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_connections, "CONNECTIONS_MAX", 8)
    host, _, port = site.address.removeprefix("http://").partition(":")
    with ExitStack() as stack:
        held = []
        for number in range(20):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            if number % 2:
                connection.sendall(b"GET /c/local HTTP/1.1\r\nHost: localhost\r\nx: ")
            held.append(connection)
        for gone in held[:12]:
            with suppress(ConnectionResetError):
                assert gone.recv(1) == b""
        assert "<h1>" in site.page("topics")
        held[-1].sendall(b"y\r\n\r\n")
        assert held[-1].recv(12) == b"HTTP/1.1 200"


def test_requests_that_drip_make_room_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody gets a token, and whoever has not logged in may send the body of a log-in."""
    monkeypatch.setattr(web_connections, "CONNECTIONS_MAX", 4)
    host, _, port = site.address.removeprefix("http://").partition(":")
    head = {**site.headers, "Host": "localhost", "Content-Length": "100"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with ExitStack() as stack:
        for _ in range(8):
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
            connection.sendall(f"POST /api/login HTTP/1.1\r\n{lines}\r\n{{".encode())
        assert "<h1>" in site.page("topics")


def test_a_request_that_is_broken_off_is_no_mistake_of_the_console(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.console")
    host, _, port = site.address.removeprefix("http://").partition(":")
    head = {**site.headers, "Host": "localhost", "Content-Length": "100"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(f"POST {site.path('topics')} HTTP/1.1\r\n{lines}\r\n{{".encode())
    until = time.monotonic() + 60
    while "broken off" not in caplog.text:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "Traceback" not in caplog.text


def test_a_request_that_never_comes_is_not_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS_MAX", 0.2)
    host, _, port = site.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = {**site.headers, "Host": "localhost", "Content-Length": "100"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        connection.sendall(f"POST {site.path('topics')} HTTP/1.1\r\n{lines}\r\n{{".encode())
        assert connection.recv(12) == b"HTTP/1.1 408"


NODE = {"type": "processor", "topics": [], "stores": []}
TANGLED = [{**NODE, "name": str(at), "children": [str(each) for each in range(60)]} for at in range(60)]
CHAIN = [{**NODE, "name": str(at), "children": [str(at + 1)]} for at in range(1999)]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"queries": [], "nodes": TANGLED}, 200),
        ({"queries": [], "nodes": CHAIN}, 200),
        ({"queries": [], "nodes": CHAIN * 2}, 502),
        ({"queries": "none", "nodes": []}, 502),
        ({"queries": [7], "nodes": []}, 502),
        ({"queries": [], "nodes": [{**NODE, "name": ["x"], "children": []}]}, 502),
        ({"queries": [], "nodes": [], "stores": {"a": 1}}, 502),
    ],
)
def test_an_application_that_says_odd_things_takes_no_page_with_it(
    site: Site, broker: InProcessBroker, answer: dict[str, Any], status: int
) -> None:
    with answering({"applicationId": "odd", "state": "RUNNING", **answer}) as (url, _):
        odd = Announcement("odd", url, "x", 1, 1)
        tell(broker.bootstrap_servers, odd)
        began = time.monotonic()
        assert site.ask("GET", site.page_path("pipelines", "odd"))[0] == status
        assert "odd" in site.page("pipelines")
        assert time.monotonic() - began < 20
        tell(broker.bootstrap_servers, odd, gone=True)


def test_what_another_server_says_is_not_handed_on(site: Site, broker: InProcessBroker) -> None:
    with answering({"message": "for insiders"}, 404) as (url, _):
        odd = Announcement("odd", url, "x", 1, 1)
        tell(broker.bootstrap_servers, odd)
        assert "insiders" not in json.dumps(site.get("pipelines"))
        assert "no Streams application" in site.refused("GET", "pipelines", "odd")[1]
        tell(broker.bootstrap_servers, odd, gone=True)


def test_times_that_no_calendar_has_are_shown_as_numbers(site: Site, broker: InProcessBroker) -> None:
    settings = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    site.change("POST", "topics", name="timeless", partitions=1, settings=settings)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("timeless", "x", timestamp=1 << 60)
    assert producer.flush(60) == 0
    (found,) = site.get("topics", "timeless", "records")["records"]
    assert found["timestamp"] == 1 << 60
    exported = site.ask("GET", f"{site.path('topics', 'timeless', 'records', 'export')}?format=csv")[1]
    assert str(1 << 60) in exported


def test_a_parameter_that_there_is_not_is_named_whatever_it_is(site: Site) -> None:
    assert "no parameter" in site.refused("POST", "topics", **{"name": "half", HALF: 1})[1]
