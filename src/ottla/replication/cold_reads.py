"""Brings into memory what readers want and only the disk has, away from the event loop.

A page that has to come from the disk stops whoever touches it. On the event loop that is every client, so
that reading old records would hold up those who write new ones.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from ottla.log.types import NotInMemory
from ottla.runtime import Disk, Runtime
from ottla.runtime.tasks import TaskScope

log = logging.getLogger(__name__)

# Syncing files needs threads of the same few, and must not wait behind a hundred readers of old records.
LOADS_AT_ONCE_MAX = 2

Place = tuple[str, int, int]
"""Path, position, length."""


class ColdReads:
    def __init__(self, runtime: Runtime, tasks: TaskScope) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._running = 0
        # In the order asked for; what several want is loaded once.
        self._wanted: dict[Place, list[Callable[[], None]]] = {}
        self._loading: dict[Place, list[Callable[[], None]]] = {}

    def load(self, missing: NotInMemory, then: Callable[[], None]) -> None:
        """Calls `then` once it is there, or cannot be had: whoever reads again will see."""
        place = (missing.path, missing.position, missing.length)
        waiting = self._loading.get(place)
        if waiting is None:
            waiting = self._wanted.setdefault(place, [])
        if then not in waiting:
            waiting.append(then)
        if self._wanted and self._running < LOADS_AT_ONCE_MAX:
            self._running += 1
            self._tasks.spawn(self._load_all(), "cold-reads")

    async def _load_all(self) -> None:
        try:
            while self._wanted:
                place = next(iter(self._wanted))
                self._loading[place] = self._wanted.pop(place)
                try:
                    await self._runtime.offload.run(_load, self._runtime.disk, *place)
                except OSError as error:
                    # Gone meanwhile, or unreadable. The reader finds out which, and says so.
                    log.debug("cannot read ahead in %s: %s", place[0], error)
                finally:
                    waiting = self._loading.pop(place)
                for then in waiting:
                    then()
        finally:
            self._running -= 1


def _load(disk: Disk, path: str, position: int, length: int) -> None:
    # A descriptor of its own: the log may close its file at any time.
    with contextlib.closing(disk.open(path)) as file:
        file.load(position, length)
