"""As much HTTP/1.1 as a scrape needs: one GET without a body, one reply, and the connection is closed."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TypeAlias, cast

from ottla.runtime.tasks import TaskScope
from ottla.server.metrics.page import Page
from ottla.server.metrics.visitors import Visitors

log = logging.getLogger(__name__)

PATH = "/metrics"
HEAD_BYTES_MAX = 8 * 1024
_READ_BYTES = 2 * 1024
# From connecting to the last byte of the reply.
SECONDS_MAX = 30.0

Scrape: TypeAlias = Callable[[str], Awaitable[Page]]
"""Takes the `Accept` header."""


class MetricsConnection(asyncio.BufferedProtocol):
    def __init__(
        self, scrape: Scrape, tasks: TaskScope, visitors: Visitors, credentials: str | None = None
    ) -> None:
        self._scrape = scrape
        self._credentials = credentials
        """What the header `Authorization` has to have behind `Basic`; None for everybody."""
        self._tasks = tasks
        self._visitors = visitors
        self._read = memoryview(bytearray(_READ_BYTES))
        self._head = bytearray()
        self._is_answered = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Without one: whoever is gone already.
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        self._timer = asyncio.get_running_loop().call_later(SECONDS_MAX, self._transport.abort)
        if not self._visitors.come(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapes at the same time; try again later")

    def connection_lost(self, error: Exception | None) -> None:
        self._visitors.go(self)
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        self._transport.abort()

    @property
    def is_being_served(self) -> bool:
        return self._task is not None and not self._is_answered

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read

    def buffer_updated(self, nbytes: int) -> None:
        self._received(bytes(self._read[:nbytes]))

    def _received(self, data: bytes) -> None:
        if self._is_answered or self._task is not None:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if len(head) > HEAD_BYTES_MAX:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"a request may have {HEAD_BYTES_MAX} bytes; send fewer headers",
            )
        elif end:
            self._respond(head.decode("latin-1"))

    def _respond(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._refuse(HTTPStatus.BAD_REQUEST, f"this is no HTTP/1.1 request; try GET {PATH}")
            return
        method, target, _ = words
        if target.partition("?")[0] != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is nothing here but {PATH}")
        elif method != "GET":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{PATH} can only be read: use GET", "Allow: GET\r\n")
        else:
            fields = [
                (name.lower(), value.strip()) for name, _, value in (each.partition(":") for each in lines)
            ]
            given = dict(fields).get("authorization", "")
            if given and self._credentials is not None and not self._visitors.may_guess(self._address):
                self._refuse(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    "too many wrong passwords came from this address; try again in a few seconds",
                    "Retry-After: 2\r\n",
                )
                return
            if not self._is_admitted(given):
                if given:
                    self._visitors.guessed_wrong(self._address)
                self._refuse(
                    HTTPStatus.UNAUTHORIZED,
                    "give the name and the password that the broker has as ottla.metrics.username and "
                    "ottla.metrics.password",
                    'WWW-Authenticate: Basic realm="metrics"\r\n',
                )
                return
            accept = ",".join(value for name, value in fields if name == "accept")
            self._task = self._tasks.spawn(self._answer(accept), "scrape")

    def _is_admitted(self, given: str) -> bool:
        if self._credentials is None:
            return True
        scheme, _, secret = given.partition(" ")
        # In a time that does not tell how much of it was right.
        is_right = hmac.compare_digest(secret.strip().encode(), self._credentials.encode())
        return is_right and scheme.lower() == "basic"

    async def _answer(self, accept: str) -> None:
        try:
            page = await self._scrape(accept)
        except Exception:
            log.exception("a scrape failed")
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the scrape failed; the broker's log says why")
        else:
            self._send(HTTPStatus.OK, page)

    def _refuse(self, status: HTTPStatus, reason: str, headers: str = "") -> None:
        self._send(status, Page("text/plain; charset=utf-8", f"{reason}\n".encode()), headers)

    def _send(self, status: HTTPStatus, page: Page, headers: str = "") -> None:
        self._is_answered = True
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n"
            f"Connection: close\r\n{headers}\r\n"
        )
        self._transport.writelines((head.encode("latin-1"), page.body))
        self._transport.close()
