"""Connections of a web server that strangers reach: bounded, and those who only hold theirs make room.

The server itself has no bound, and no time in which a request has to come: whoever opens connections and says
nothing takes all descriptors of the process.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX = 256
_numbers = itertools.count()


class BoundedConnections(H11Protocol):
    number = -1

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Clocks of event loops may stand still for a while.
        self.number = next(_numbers)
        if len(self.connections) <= CONNECTIONS_MAX:
            return
        others: list[Any] = [each for each in self.connections if each is not self and _is_idle(each)]
        # Without one everybody is being answered.
        oldest = min(others, key=lambda each: each.number, default=self)
        self.connections.discard(oldest)
        oldest.transport.abort()


def _is_idle(connection: Any) -> bool:
    """Nothing was asked as yet, or any more; or not the whole; or what is answered is not read."""
    cycle = connection.cycle
    return cycle is None or cycle.response_complete or cycle.more_body or connection.flow.write_paused
