"""Streams applications in the console: found by what they announce, shown by what they answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from console_site import Site

from ottla.client.applications import Announcement, announce, withdraw
from ottla.client.cluster import ClusterClient
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import InProcessBroker

EVIL = """"'><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"""


def tell(bootstrap: str, *announcements: Announcement, gone: bool = False) -> None:
    async def write() -> None:
        async with ClusterClient(AsyncioNetwork(), bootstrap) as cluster:
            for each in announcements:
                await (withdraw(cluster, each.application_id, 2) if gone else announce(cluster, each))

    asyncio.run(write())


@contextmanager
def answering(answer: Any, status: int = 200, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that always says the same, and what it was asked for."""
    asked: list[str] = []

    def say(path: str) -> tuple[int, Any]:
        asked.append(path)
        return status, answer

    with _server(say, headers) as url:
        yield url, asked


@contextmanager
def answering_by_path(answers: dict[str, Any]) -> Iterator[str]:
    """404 for what it does not know."""
    with _server(
        lambda path: (200, answers[path]) if path in answers else (404, {"message": "none"}), {}
    ) as url:
        yield url


@contextmanager
def _server(say: Callable[[str], tuple[int, Any]], headers: dict[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = say(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_application_is_shown_with_its_topology(
    site: Site, broker: InProcessBroker, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
    pytest.importorskip("prometheus_client", reason="needs the extra ottla[metrics]")
    from ottla.streams import StreamsBuilder
    from ottla.streams.run import StreamsApplication, StreamsConfig
    from ottla.streams.serving import served

    builder = StreamsBuilder()
    builder.stream("orders").filter(lambda key, value: bool(value)).to("large-orders")
    config = StreamsConfig("large-orders", broker.bootstrap_servers, state_dir=str(tmp_path))
    with served([StreamsApplication(builder.build(), config)]):
        (found,) = site.get("pipelines", q="LARGE")["pipelines"]
        assert (found["applicationId"], found["state"], found["error"]) == ("large-orders", "CREATED", None)
        one = site.get("pipelines", "large-orders")
        page = site.page("pipelines", "large-orders")
        for node in one["nodes"]:
            assert node["name"] in page
        assert "large-orders" in site.page("pipelines")
    assert site.get("pipelines")["pipelines"] == []
    assert site.refused("GET", "pipelines", "large-orders")[0] == 404


def test_live_numbers_are_shown_and_names_are_text(site: Site, broker: InProcessBroker) -> None:
    node = {"query": "q", "stores": [], "dropped": {}, "failed": {}, "records": 7}
    answer = {
        "applicationId": "busy",
        "state": "RUNNING",
        "paused": False,
        "queries": [
            {
                "query": "counts",
                "kind": "tasks by partition",
                "topics": ["orders"],
                "state": "running",
                "restarts": 2,
                "failure": None,
                "batches": 12,
                "lag": 34,
                "lastBatch": {"rowsPerSecond": 5210.0, "durationMs": 180},
                "stateRows": 99,
                "stateBytes": 2048,
            }
        ],
        "nodes": [
            {**node, "name": "SOURCE", "type": "source", "topics": ["orders"], "children": ["COUNT"]},
            {**node, "name": "COUNT", "type": "processor", "topics": [], "children": ["SINK"]},
            {**node, "name": EVIL, "type": EVIL, "topics": [EVIL], "children": ["COUNT", "missing"]},
            {**node, "name": "SINK", "type": "sink", "topics": ["totals"], "children": []},
        ],
        "stores": [{"query": "counts", "name": "counts", "kind": "rocksdb", "changelog": "busy-changelog"}],
    }
    with answering(answer) as (url, asked):
        busy = Announcement("busy", url, "green", 4711, 1)
        tell(broker.bootstrap_servers, busy)
        page = site.page("pipelines", "busy")
        assert asked == ["/topology/busy"]
        for shown in ("5\u2009210", "180 ms", "2.0 KiB", "busy-changelog", "process 4711"):
            assert shown in page, shown
        assert page.count('class="edge"') == 3 and "<img src=x" not in page
        (row,) = site.get("pipelines")["pipelines"]
        assert row["queries"][0]["lag"] == 34
        tell(broker.bootstrap_servers, busy, gone=True)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://", "http://127.0.0.1:1"])
def test_an_address_that_is_none_is_not_asked(site: Site, broker: InProcessBroker, url: str) -> None:
    odd = Announcement("odd", url, "nowhere", 1, 1)
    tell(broker.bootstrap_servers, odd)
    (found,) = site.get("pipelines")["pipelines"]
    assert found["state"] == "UNKNOWN" and found["error"]
    assert site.refused("GET", "pipelines", "odd")[0] in {502, 503}
    assert "odd" in site.page("pipelines")
    tell(broker.bootstrap_servers, odd, gone=True)


def test_what_is_no_application_is_neither_shown_nor_followed(site: Site, broker: InProcessBroker) -> None:
    with (
        answering({"secret": "of another service"}) as (other, asked),
        answering({}, 302, Location=f"{other}/topology/led") as (leads, _),
    ):
        led, plain = Announcement("led", leads, "x", 1, 1), Announcement("plain", other, "x", 1, 1)
        tell(broker.bootstrap_servers, led, plain)
        found = site.get("pipelines")["pipelines"]
        assert [each["state"] for each in found] == ["UNKNOWN", "UNKNOWN"]
        assert "of another service" not in json.dumps(found)
        assert asked == ["/topology/plain"]
        tell(broker.bootstrap_servers, led, plain, gone=True)
