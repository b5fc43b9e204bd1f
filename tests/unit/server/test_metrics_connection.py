"""Scrapes over HTTP, byte for byte, and what a client that means no good can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from metrics_kit import Transport

from ottla.runtime.tasks import TaskScope
from ottla.server.metrics import connection as connection_module
from ottla.server.metrics.connection import CONNECTIONS_MAX, HEAD_BYTES_MAX, MetricsConnection
from ottla.server.metrics.page import Page


class Endpoint:
    """Connections of one listener; a scrape tells what was asked for."""

    def __init__(self, scrape: Callable[[str], Awaitable[Page]] | None = None) -> None:
        self.scrape = scrape or self._page
        self.failures: list[BaseException] = []
        self.tasks = TaskScope("metrics", lambda name, error: self.failures.append(error))
        self.connections: dict[MetricsConnection, None] = {}
        self.scrapes = 0

    async def _page(self, accept: str) -> Page:
        self.scrapes += 1
        await asyncio.sleep(0)
        return Page("text/plain; version=0.0.4", f"accept={accept}\n".encode())

    def connect(self) -> tuple[MetricsConnection, Transport]:
        transport: Any = Transport()
        connection = MetricsConnection(self.scrape, self.tasks, self.connections)
        connection.connection_made(transport)
        return connection, transport

    async def ask(self, *chunks: bytes) -> Transport:
        connection, transport = self.connect()
        for chunk in chunks:
            connection.data_received(chunk)
        for _ in range(10):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        await self.tasks.close()
        assert not self.failures
        return transport


def ask(*chunks: bytes) -> Transport:
    async def run() -> Transport:
        return await Endpoint().ask(*chunks)

    return asyncio.run(run())


def test_a_scrape() -> None:
    reply = ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\naccept: text/plain\r\nAccept: b/c;q=0.5\r\n\r\n")
    assert reply.sent == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: 28\r\n"
        b"Connection: close\r\n\r\naccept=text/plain,b/c;q=0.5\n"
    )
    assert reply.closed


def test_a_request_may_come_in_pieces_and_with_parameters() -> None:
    request = b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n"
    reply = ask(*(bytes([byte]) for byte in request))
    assert (reply.status, reply.body) == (200, "accept=\n")


def test_one_request_per_connection() -> None:
    async def run() -> None:
        endpoint = Endpoint()
        reply = await endpoint.ask(b"GET /metrics HTTP/1.1\r\n\r\n" * 3, b"GET / HTTP/1.1\r\n\r\n")
        assert reply.sent.count(b"HTTP/1.1 ") == 1
        assert endpoint.scrapes == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_line", "status", "remedy"),
    [
        (b"GET / HTTP/1.1", 404, "there is nothing here but /metrics"),
        (b"GET /metrics/x HTTP/1.1", 404, "/metrics"),
        (b"POST /other HTTP/1.1", 404, "/metrics"),
        (b"POST /metrics HTTP/1.1", 405, "use GET"),
        (b"HEAD /metrics HTTP/1.1", 405, "use GET"),
        (b"GET /metrics", 400, "GET /metrics"),
        (b"GET /metrics HTTP/2", 400, "HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00\x01\xff\x85", 400, "HTTP/1.1"),
        (b"", 400, "HTTP/1.1"),
    ],
)
def test_what_cannot_be_answered_is_told_why(request_line: bytes, status: int, remedy: str) -> None:
    reply = ask(request_line + b"\r\nHost: x\r\n\r\n")
    assert reply.status == status
    assert remedy in reply.body
    assert (b"Allow: GET\r\n" in reply.sent) == (status == 405)
    assert reply.closed


def test_a_request_without_end_is_cut_off() -> None:
    line = b"GET /metrics HTTP/1.1\r\nx: "
    assert ask(line + bytes(HEAD_BYTES_MAX - len(line)), b"\r\n\r\n").status == 200
    reply = ask(line, bytes(HEAD_BYTES_MAX), b"more", b"and more\r\n\r\n")
    assert reply.status == 431
    assert str(HEAD_BYTES_MAX) in reply.body


def test_a_failure_is_told_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(accept: str) -> Page:
        raise ValueError("no numbers today")

    async def run() -> None:
        reply = await Endpoint(fail).ask(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert reply.status == 500
        assert "log" in reply.body
        assert reply.closed

    asyncio.run(run())
    assert "no numbers today" in caplog.text


def test_too_many_at_a_time() -> None:
    async def run() -> None:
        endpoint = Endpoint()
        open_ones = [endpoint.connect() for _ in range(CONNECTIONS_MAX)]
        assert not any(transport.closed for _, transport in open_ones)
        one_more, refused = endpoint.connect()
        assert refused.status == 503
        assert refused.closed
        one_more.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")
        one_more.connection_lost(None)
        open_ones[0][0].connection_lost(None)
        assert (await endpoint.ask(b"GET /metrics HTTP/1.1\r\n\r\n")).status == 200
        assert endpoint.scrapes == 1
        for connection, _ in open_ones[1:]:
            connection.connection_lost(None)
        assert not endpoint.connections

    asyncio.run(run())


def test_a_client_that_sends_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SECONDS_MAX", 0.0)

    async def run() -> None:
        _, transport = Endpoint().connect()
        await asyncio.sleep(0.001)
        assert transport.aborted

    asyncio.run(run())


def test_a_client_that_leaves_ends_its_scrape() -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def forever(accept: str) -> Page:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        endpoint = Endpoint(forever)
        connection, transport = endpoint.connect()
        connection.data_received(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.wait_for(ended.wait(), 5)
        assert transport.sent == b""

    asyncio.run(run())
