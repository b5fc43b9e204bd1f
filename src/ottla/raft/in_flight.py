"""Who has been asked and has not answered yet: one request at a time to each, and a pause after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple


class _Asked(NamedTuple):
    request_id: int
    until_ms: int


class InFlight:
    def __init__(self, request_ms: int, backoff_ms: int) -> None:
        self._request_ms = request_ms
        self._backoff_ms = backoff_ms
        self._last_id = 0
        self._asked: dict[int, _Asked] = {}
        self._resting_until_ms: dict[int, int] = {}

    def send(self, node_id: int, now_ms: int) -> int:
        """The id of the new request."""
        self._last_id += 1
        self._asked[node_id] = _Asked(self._last_id, now_ms + self._request_ms)
        return self._last_id

    def accept(self, node_id: int, request_id: int) -> bool:
        """Whether this answers what is being waited for; then nothing is any more."""
        asked = self._asked.get(node_id)
        if asked is None or asked.request_id != request_id:
            return False
        del self._asked[node_id]
        return True

    def rest(self, node_id: int, now_ms: int) -> None:
        self._resting_until_ms[node_id] = now_ms + self._backoff_ms

    def give_up_late(self, now_ms: int) -> None:
        """Requests that took too long are forgotten; their nodes rest."""
        for node_id, asked in list(self._asked.items()):
            if asked.until_ms <= now_ms:
                del self._asked[node_id]
                self.rest(node_id, now_ms)
        for node_id, until_ms in list(self._resting_until_ms.items()):
            if until_ms <= now_ms:
                del self._resting_until_ms[node_id]

    def is_ready(self, node_id: int) -> bool:
        return node_id not in self._asked and node_id not in self._resting_until_ms

    def is_resting(self, node_id: int) -> bool:
        return node_id in self._resting_until_ms

    @property
    def any_asked(self) -> bool:
        return bool(self._asked)

    def pick(self, node_ids: Sequence[int], random: Random) -> int | None:
        """One that may be asked."""
        ready = [node_id for node_id in node_ids if self.is_ready(node_id)]
        return random.choice(ready) if ready else None

    def reset(self) -> None:
        """Answers to what was asked so far no longer matter."""
        self._asked.clear()
        self._resting_until_ms.clear()

    def due_ms(self) -> int | None:
        """When `give_up_late` has something to do."""
        times = [asked.until_ms for asked in self._asked.values()]
        times += self._resting_until_ms.values()
        return min(times, default=None)
