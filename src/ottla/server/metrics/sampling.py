"""Looks now and then, so that requests need not look at the clock: at how long some of them take, at how
late the event loop comes to what is due, at how much of its time it works.

Each tick the next request of some connections is timed. A connection with a thousand requests a second is
looked at no more often than one with ten: what comes of it are the times that clients see, not a share of all
requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from ottla.handlers.figures import Durations, RequestFigures, name_of
from ottla.handlers.registry import REGISTRY
from ottla.handlers.session import Session
from ottla.raft.driver import RaftDriver
from ottla.raft.roles import Role
from ottla.runtime.clock import Clock
from ottla.runtime.usage import thread_cpu_seconds
from ottla.server.connection import Connection
from ottla.wire.api import ApiKey

TICK_SECONDS = 0.1
CONNECTIONS_PER_TICK = 32
WINDOW_TICKS = 600


class Window:
    """What something was at each of the last ticks, and how fast it grew meanwhile."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=WINDOW_TICKS)

    def note(self, now: float, value: float) -> None:
        self._seen.append((now, value))

    @property
    def per_second(self) -> float:
        if len(self._seen) < 2:
            return 0.0
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return max(last - first, 0.0) / (ended - began) if ended > began else 0.0


class Sampler:
    def __init__(
        self, clock: Clock, figures: RequestFigures, quorum: RaftDriver, connections: Iterable[Connection]
    ) -> None:
        self._clock = clock
        self._figures = figures
        self._quorum = quorum
        self._connections = connections
        self._turn: Iterator[Connection] = iter(())
        self._working = Window()
        self._metadata = Window()
        self.lateness = Durations()
        """How long what was due had to wait for its turn of the event loop."""

    @property
    def idle(self) -> float:
        """Share of the time in which the event loop had nothing to do."""
        return max(1.0 - self._working.per_second, 0.0)

    @property
    def metadata_records_per_second(self) -> float:
        return self._metadata.per_second

    @property
    def leads_quorum(self) -> bool:
        return self._quorum.role is Role.LEADER

    async def run(self) -> None:
        clock = self._clock
        while True:
            due = clock.monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            now = clock.monotonic()
            self.lateness.note(max(now - due, 0.0))
            self._working.note(now, thread_cpu_seconds())
            self._metadata.note(now, self._quorum.next_offset)
            self._time_some()

    def _time_some(self) -> None:
        for _ in range(CONNECTIONS_PER_TICK):
            connection = next(self._turn, None)
            if connection is None:
                self._turn = iter(tuple(self._connections))
                return
            connection.time_next(self._note)

    def _note(self, session: Session, key: int, worked: float, seconds: float) -> None:
        # The others are all timed, see `server.dispatch`.
        if not REGISTRY[key].is_hot:
            return
        name = name_of(key)
        if key == ApiKey.FETCH:
            name = "FetchFollower" if session.is_replica else "FetchConsumer"
        self._figures.local[name].note(worked)
        self._figures.remote[name].note(seconds - worked)
        self._figures.total[name].note(seconds)
