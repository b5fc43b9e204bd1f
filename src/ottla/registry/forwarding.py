"""A request that only the leader may serve, on its way there."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

FORWARDED = "X-Forward"
"""Tells the leader not to send a request on: by then another one leads."""
OFFSET = "X-Ottla-Offset"
"""Where the topic goes on after what was written, so that who forwarded can read it before it answers."""
NOT_LEADER = "X-Ottla-Not-Leader"
_TIMEOUT_S = 70.0
_PASSED_ON = ("content-type", "accept", "authorization")


class Answer(NamedTuple):
    status: int
    body: bytes
    offset: int | None
    is_refused: bool
    """Nothing was done: who was asked does not lead."""


class ForwardingFailed(Exception):
    def __init__(self, url: str, error: Exception, *, was_sent: bool) -> None:
        super().__init__(f"{url}: {error or type(error).__name__}")
        self.was_sent = was_sent
        """It may have been done all the same."""


async def forward(url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """One request on a connection of its own, which may be given up by cancelling."""
    address = urllib.parse.urlsplit(url)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {address.netloc}", f"{FORWARDED}: true"]
    lines += [f"{name}: {headers[name]}" for name in _PASSED_ON if name in headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    was_sent = False
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            try:
                was_sent = True
                writer.write("\r\n".join(lines).encode() + body)
                return _read_answer(await reader.read())
            finally:
                writer.close()
    except (OSError, ValueError) as error:
        raise ForwardingFailed(url, error, was_sent=was_sent) from error


def _read_answer(data: bytes) -> Answer:
    """ValueError for what is cut off, or no answer."""
    head, end, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if not end or len(body) != int(headers.get("content-length", "0")):
        raise ValueError("the answer is cut off")
    offset = headers.get(OFFSET.lower())
    return Answer(
        int(first.split(" ")[1]),
        body,
        None if offset is None else int(offset),
        NOT_LEADER.lower() in headers,
    )
