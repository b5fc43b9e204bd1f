"""What stands at an address of the web, or in a file, read in a thread of its own.

Not in one of those for the disk: somebody else's server may take its time, and neither an fsync nor the end
of this process is to wait for that.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

_PART_BYTES = 64 * 1024


async def fetch(url: str, tls: ssl.SSLContext | None, *, seconds_max: float, bytes_max: int) -> bytes:
    """`url` is https, http or file. OSError says why it cannot be had."""
    return await _in_thread(f"fetch {url}", lambda: _read(url, tls, seconds_max, bytes_max))


async def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds_max: float) -> None:
    """`url` is https or http. OSError says why it was not taken."""
    await _in_thread(f"post {url}", lambda: _send(url, body, headers, seconds_max))


async def _in_thread(name: str, call: Callable[[], bytes]) -> bytes:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(content: bytes, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(content)
        else:
            done.set_exception(error)

    def work() -> None:
        content, failure = b"", None
        try:
            content = call()
        except OSError as error:
            failure = error
        except Exception as error:
            # Whatever else an address can give, such as an answer that is no HTTP.
            failure = OSError(f"{type(error).__name__}: {error}")
        try:
            loop.call_soon_threadsafe(settle, content, failure)
        except RuntimeError:
            # Nobody waits any more: the loop is closed.
            return

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done


def _send(url: str, body: bytes, headers: Mapping[str, str], seconds_max: float) -> bytes:
    request = Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310 - as below
    with _answer(request, _Never(), None, seconds_max):
        return b""


def _read(url: str, tls: ssl.SSLContext | None, seconds_max: float, bytes_max: int) -> bytes:
    # The scheme was checked by whoever has set the address, and who can set it can read files anyway.
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see above
    content = bytearray()
    with _answer(request, _NeverLessSafe(), tls, seconds_max) as answer:
        while part := answer.read1(_PART_BYTES) if isinstance(answer, HTTPResponse) else answer.read():
            content += part
            if len(content) > bytes_max:
                raise OSError(f"it is longer than {bytes_max} bytes")
    return bytes(content)


@contextmanager
def _answer(
    request: Request, redirects: HTTPRedirectHandler, tls: ssl.SSLContext | None, seconds_max: float
) -> Iterator[Any]:
    """For so long in all. The time-out of a socket is between two bytes: a server that says one now and then
    would have no end."""
    deadline = _Deadline(seconds_max)
    handlers = [_Watched(deadline)] if request.type == "http" else [_WatchedSafe(deadline, tls)]
    opener = build_opener(redirects, *handlers)
    try:
        with deadline, opener.open(request, timeout=seconds_max) as answer:
            yield answer
            deadline.check()
    except HTTPError as error:
        raise OSError(f"it is answered with status {error.code}") from error
    except (OSError, HTTPException) as error:
        deadline.check()
        if isinstance(error, URLError):
            raise OSError(str(error.reason)) from error
        raise


class _Deadline:
    """Cuts off the connections that are still open when it comes."""

    def __init__(self, seconds_max: float) -> None:
        self._timer = threading.Timer(seconds_max, self._come)
        self._timer.daemon = True
        self._has_come = threading.Event()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watch(self, connection: HTTPConnection) -> None:
        self._sockets.append(connection.sock)
        if self._has_come.is_set():
            self._come()

    def check(self) -> None:
        if self._has_come.is_set():
            raise TimeoutError("it does not come to an end in time")

    def _come(self) -> None:
        self._has_come.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Watched(HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()

        class Connection(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                deadline.watch(self)

        self._connection = Connection

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req)


class _WatchedSafe(HTTPSHandler):
    def __init__(self, deadline: _Deadline, given: ssl.SSLContext | None) -> None:
        # Made once: to read all authorities of the system takes longer than the rest.
        context = given or ssl.create_default_context()
        super().__init__(context=context)

        class Connection(HTTPSConnection):
            def connect(self) -> None:
                HTTPConnection.connect(self)
                # By a proxy, the one behind it.
                name = getattr(self, "_tunnel_host", None) or self.host
                tls = context.wrap_socket(self.sock, server_hostname=name, do_handshake_on_connect=False)
                self.sock = tls
                # Before the handshake, which may be dripped, too.
                deadline.watch(self)
                tls.do_handshake()

        self._connection = Connection
        self._tls = context

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connection, req, context=self._tls)


class _Never(HTTPRedirectHandler):
    """A GET in the place of what was to be sent would be answered with nothing said about it."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        raise URLError(f"it sends on to {newurl}, where nothing is sent; give the address that takes it")


class _NeverLessSafe(HTTPRedirectHandler):
    """Whoever was asked safely is not to be believed by what somebody says in the open."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if req.type == "https" and not newurl.lower().startswith("https:"):
            raise URLError(f"it sends on to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
