"""One alarm that can be set to another time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def set(self, due_s: float | None) -> None:
        """In the event loop's time; None for never."""
        if self._handle is not None:
            if due_s == self._due_s:
                return
            self._handle.cancel()
            self._handle = None
        if due_s is not None:
            self._due_s = due_s
            self._handle = asyncio.get_running_loop().call_at(due_s, self._rings)

    def _rings(self) -> None:
        self._handle = None
        self._ring()
