"""Scrapes over HTTP, byte for byte, and what a client that means no good can do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from metrics_kit import Transport, say

from ottla.runtime.clock import SystemClock
from ottla.runtime.tasks import TaskScope
from ottla.server.metrics import connection as connection_module
from ottla.server.metrics.connection import HEAD_BYTES_MAX, MetricsConnection
from ottla.server.metrics.page import Page
from ottla.server.metrics.visitors import CONNECTIONS_MAX, GUESS_SECONDS, GUESSES_AT_ONCE, Visitors

SCRAPE = b"GET /metrics HTTP/1.1\r\n\r\n"


class Clock(SystemClock):
    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Endpoint:
    """Connections of one listener; a scrape tells what was asked for."""

    def __init__(
        self, scrape: Callable[[str], Awaitable[Page]] | None = None, credentials: str | None = None
    ) -> None:
        self.scrape = scrape or self._page
        self.failures: list[BaseException] = []
        self.tasks = TaskScope("metrics", lambda name, error: self.failures.append(error))
        self.clock = Clock()
        self.visitors = Visitors(self.clock)
        self.credentials = credentials
        self.scrapes = 0

    async def _page(self, accept: str) -> Page:
        self.scrapes += 1
        await asyncio.sleep(0)
        return Page("text/plain; version=0.0.4", f"accept={accept}\n".encode())

    def connect(self, address: str = "127.0.0.1") -> tuple[MetricsConnection, Transport]:
        transport: Any = Transport(address)
        connection = MetricsConnection(self.scrape, self.tasks, self.visitors, self.credentials)
        connection.connection_made(transport)
        return connection, transport

    async def ask(self, *chunks: bytes, address: str = "127.0.0.1") -> Transport:
        connection, transport = self.connect(address)
        for chunk in chunks:
            say(connection, chunk)
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


def test_those_who_ask_nothing_make_room() -> None:
    async def run() -> None:
        endpoint = Endpoint()
        idle = [endpoint.connect() for _ in range(CONNECTIONS_MAX)]
        say(idle[0][0], SCRAPE)
        one_more, answered = endpoint.connect()
        assert [transport.aborted for _, transport in idle] == [False, True] + [False] * (CONNECTIONS_MAX - 2)
        say(one_more, SCRAPE)
        for _ in range(10):
            await asyncio.sleep(0)
        assert answered.status == idle[0][1].status == 200
        for connection, _ in (*idle, (one_more, answered)):
            connection.connection_lost(None)
        assert (await endpoint.ask(SCRAPE)).status == 200

    asyncio.run(run())


def test_too_many_scrapes_at_a_time() -> None:
    async def forever(accept: str) -> Page:
        await asyncio.Event().wait()
        raise AssertionError

    async def run() -> None:
        endpoint = Endpoint(forever)
        served = [endpoint.connect() for _ in range(CONNECTIONS_MAX)]
        for connection, _ in served:
            say(connection, SCRAPE)
        _, refused = endpoint.connect()
        assert refused.status == 503
        assert refused.closed
        assert not any(transport.aborted for _, transport in served)
        await endpoint.tasks.close()

    asyncio.run(run())


RIGHT = base64.b64encode(b"prom:secret").decode()


def with_password(secret: str, scheme: str = "Basic") -> bytes:
    return f"GET /metrics HTTP/1.1\r\nAuthorization: {scheme} {secret}\r\n\r\n".encode()


def test_a_password_is_asked_for() -> None:
    async def run() -> None:
        endpoint = Endpoint(credentials=RIGHT)
        assert (await endpoint.ask(with_password(RIGHT))).status == 200
        assert (await endpoint.ask(with_password(RIGHT, "basic"))).status == 200
        assert (await endpoint.ask(with_password(RIGHT, "Bearer"))).status == 401
        # Only a line of its own is a header, whatever else Python takes for the end of a line.
        hidden = b"GET /metrics HTTP/1.1\r\nx: \x85Authorization: Basic " + RIGHT.encode() + b"\r\n\r\n"
        assert (await endpoint.ask(hidden)).status == 401

    asyncio.run(run())


def test_passwords_are_not_guessed_fast(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        endpoint = Endpoint(credentials=RIGHT)
        for _ in range(3 * GUESSES_AT_ONCE):
            # To be asked for a password is no guess.
            assert (await endpoint.ask(SCRAPE)).status == 401
        for number in range(GUESSES_AT_ONCE):
            assert (await endpoint.ask(with_password(f"guess{number}"))).status == 401
        # Whoever has guessed so often does not learn what is right.
        assert (await endpoint.ask(with_password(RIGHT))).status == 429
        assert (await endpoint.ask(with_password(RIGHT), address="10.0.0.7")).status == 200
        endpoint.clock.now_s += GUESS_SECONDS
        assert (await endpoint.ask(with_password(RIGHT))).status == 200
        assert (await endpoint.ask(with_password("another"))).status == 401
        assert (await endpoint.ask(with_password(RIGHT))).status == 429
        # An address of the sixth version is one of very many that its owner has.
        for number in range(GUESSES_AT_ONCE):
            guess = with_password(f"guess{number}")
            assert (await endpoint.ask(guess, address=f"2001:db8::{number + 1}")).status == 401
        assert (await endpoint.ask(with_password("x"), address="2001:db8::ffff")).status == 429

    asyncio.run(run())
    assert caplog.text.count("127.0.0.1 asks for metrics with a wrong name or password") == 1


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
        say(connection, b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.wait_for(ended.wait(), 5)
        assert transport.sent == b""

    asyncio.run(run())
