"""A full disk under the metadata log: requests are refused, and what a start must write waits for room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.log.directory import NO_ROOM
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import StorageError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0

T = TypeVar("T")


def lacks_room(error: BaseException) -> bool:
    """Of a write that failed, or of what was made of it on the way here."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in NO_ROOM:
            return True
        cause = cause.__cause__
    return False


class Room:
    def __init__(self, clock: Clock, directory: str) -> None:
        self._directory = directory
        self._seldom = Seldom(clock)
        self.on_wait: Callable[[], Awaitable[None]] | None = None
        """Told while a start waits, so that it can tell others."""

    def refusal(self, error: OSError) -> StorageError:
        refused = StorageError(
            f"{self._directory}: no room for the metadata of the cluster ({error.strerror}); make some and "
            "try again"
        )
        refused.__cause__ = error
        return refused

    async def wait(self, error: BaseException) -> None:
        if self._seldom.is_due():
            logger.error(
                "%s: no room for the metadata of the cluster (%s); the start goes on when there is some; "
                "until then clients are answered KAFKA_STORAGE_ERROR",
                self._directory,
                error,
            )
        if self.on_wait is not None:
            await self.on_wait()
        await asyncio.sleep(RETRY_SECONDS)

    async def until_there_is(self, write: Callable[[], Awaitable[T]]) -> T:
        """What a start needs to write, tried again for as long as only room is missing."""
        while True:
            try:
                return await write()
            except (OSError, StorageError) as error:
                if not lacks_room(error):
                    raise
                await self.wait(error)
