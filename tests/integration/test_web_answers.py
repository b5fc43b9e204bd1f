"""What servers that were asked may answer, and how long that may take."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.runtime.web import fetch, post

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@contextmanager
def dripping(begin: bytes) -> Iterator[str]:
    """A server that says each byte in time for a time-out between two, and has no end."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(begin)
                while not over.wait(0.05):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer_once() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_once)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def asked(url: str, *, sends: bool) -> Any:
    if sends:
        return asyncio.run(post(url, b"{}", {"x-key": "secret"}, seconds_max=0.5))
    return asyncio.run(fetch(url, None, seconds_max=0.5, bytes_max=1 << 20))


@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nx: "])
def test_a_head_without_end_is_not_waited_for(begin: bytes, sends: bool) -> None:
    with dripping(begin) as place:
        began = time.monotonic()
        with pytest.raises(OSError, match="does not come to an end in time"):
            asked(f"http://{place}/", sends=sends)
        assert time.monotonic() - began < 10


def test_a_body_without_end_is_not_waited_for() -> None:
    with dripping(HEAD) as place, pytest.raises(OSError, match="does not come to an end in time"):
        asked(f"http://{place}/", sends=False)


def test_a_handshake_without_end_is_not_waited_for() -> None:
    # A record of TLS that is said to be long.
    with dripping(b"\x16\x03\x03\x40\x00") as place, pytest.raises(OSError, match="in time"):
        asked(f"https://{place}/", sends=True)


def test_what_is_to_be_sent_is_not_turned_into_a_question() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/elsewhere\r\nContent-Length: 0\r\n\r\n"
    with answering(moved) as place, pytest.raises(OSError, match=r"it sends on to http://127\.0\.0\.1:1/"):
        asked(f"http://{place}/", sends=True)


def test_an_answer_that_is_whole_is_given() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as place:
        assert asked(f"http://{place}/", sends=False) == b"{}"


def test_a_certificate_of_nobody_is_not_believed() -> None:
    context = ssl.create_default_context()
    assert context.check_hostname
    with answering(b"no TLS at all") as place, pytest.raises(OSError, match="SSL"):
        asyncio.run(fetch(f"https://{place}/", context, seconds_max=20, bytes_max=10))
