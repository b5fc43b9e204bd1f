"""A request that only the leader may serve, on its way there."""

from __future__ import annotations

import http.client
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


def forward(url: str, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
    """Blocks until the leader has answered."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    passed_on = {name: headers[name] for name in _PASSED_ON if name in headers}
    was_sent = False
    try:
        connection.connect()
        was_sent = True
        connection.request(method, target, body or None, {**passed_on, FORWARDED: "true"})
        answer = connection.getresponse()
        offset = answer.getheader(OFFSET)
        return Answer(
            answer.status,
            answer.read(),
            None if offset is None else int(offset),
            answer.getheader(NOT_LEADER) is not None,
        )
    except (OSError, http.client.HTTPException) as error:
        raise ForwardingFailed(url, error, was_sent=was_sent) from error
    finally:
        connection.close()
