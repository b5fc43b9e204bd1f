"""Servers beside a cluster that answer JSON: Connect's workers, Streams applications. They are asked in
threads: seldom, and answers take as long as they take."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR
from threading import Event, Timer
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

from ottla.console.problems import Refused

TIMEOUT_S = 20.0
ANSWER_BYTES_MAX = 32 << 20
_THREADS = ThreadPoolExecutor(16, "console-rest")
"""Of their own: whoever lets us wait must not keep records from being read."""
_OWN_MEANING = {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.FORBIDDEN}


def check_address(address: str) -> None:
    """ValueError for what cannot be one."""
    parts = urlsplit(address)
    # The port is read when it is asked for: ValueError for one that cannot be.
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError(f"{address!r} is not an address such as http://localhost:8083")


class Rest:
    """`http://user:password@host:8083` has the user and the password that may be asked for.

    It is where the address says: neither a proxy of the environment nor a redirection is followed."""

    def __init__(self, what: str, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self._what = what
        self._timeout_s = timeout_s
        parts = urlsplit(address.rstrip("/"))
        host = parts.netloc.rpartition("@")[2]
        self.address = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self._is_secure = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname or "", parts.port, quote(parts.path, safe="/%")
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"

    async def ask(self, method: str, *segments: str, body: Any = None, query: Any = ()) -> Any:
        """The answer as data, None where there is none. Refused with the server's own words."""
        asking = partial(self.ask_now, method, *segments, body=body, query=query)
        return await asyncio.get_running_loop().run_in_executor(_THREADS, asking)

    def ask_now(self, method: str, *segments: str, body: Any = None, query: Any = ()) -> Any:
        """For those who are in a thread already."""
        path = "/".join((self._path, *(quote(each, safe="") for each in segments)))
        target = path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        try:
            status, reason, answered = self._exchange(method, target, data)
        except (OSError, HTTPException, ValueError) as error:
            raise Refused(f"{self._what} at {self.address} does not answer: {error}", 503) from None
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            words = _words(answered) or f"{self._what} answered {status} {reason}"
            raise Refused(words, status if status in _OWN_MEANING else HTTPStatus.BAD_GATEWAY)
        if not answered:
            return None
        try:
            return _data(answered)
        except (ValueError, RecursionError):
            raise Refused(
                f"what answers at {self.address} is not {self._what}", HTTPStatus.BAD_GATEWAY
            ) from None

    def _exchange(self, method: str, target: str, data: bytes | None) -> tuple[int, str, bytes]:
        kind = HTTPSConnection if self._is_secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)

        is_late = Event()

        def cut_off() -> None:
            # A time-out of a socket is between two bytes: a server that says one now and then has no end.
            is_late.set()
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(SHUT_RDWR)

        late = Timer(self._timeout_s, cut_off)
        late.daemon = True
        try:
            connection.connect()
            late.start()
            connection.request(method, target, data, self._headers)
            answer = connection.getresponse()
            answered = answer.read(ANSWER_BYTES_MAX)
            if is_late.is_set():
                raise TimeoutError(f"not in {self._timeout_s:g} s")
            return answer.status, answer.reason, answered
        except (OSError, HTTPException):
            if is_late.is_set():
                raise TimeoutError(f"not in {self._timeout_s:g} s") from None
            raise
        finally:
            late.cancel()
            connection.close()


def _data(answered: bytes) -> Any:
    data = json.loads(answered.decode(errors="replace"))
    if b"\\ud" in answered.lower():
        # JSON can name half of a pair of surrogates, which is no text that could be handed on.
        data = json.loads(json.dumps(data, ensure_ascii=False).encode(errors="replace"))
    return data


def _words(answered: bytes) -> str | None:
    try:
        return str(_data(answered)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
