"""When to wait for partitions that have nothing: Kafka Streams' ``max.task.idle.ms``.

Partitions of one number in several topics are worked on together, the oldest record first. Where one of them
has nothing, what the others have may be taken too early. So it is held back until the empty one has
something, or has been empty for so long that nothing is expected of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.spark.positions import Offsets, Partition


class Held(NamedTuple):
    """What may be read up to now, and what is waited for: for how long at most, 0 if for nothing."""

    end: Offsets
    empty: list[Partition]
    wait_ms: int


class Idling:
    def __init__(self, idle_max_ms: int) -> None:
        self._idle_max_ms = idle_max_ms
        # Of each partition at whose end the reader is.
        self._empty_since_ms: dict[Partition, int] = {}

    def held(self, begin: Offsets, end: Offsets, now_ms: int) -> Held:
        """`begin` has all partitions of `end`."""
        for place, last in end.items():
            if last > begin[place]:
                self._empty_since_ms.pop(place, None)
            else:
                self._empty_since_ms.setdefault(place, now_ms)
        left_ms = {
            place: since_ms + self._idle_max_ms - now_ms
            for place, since_ms in self._empty_since_ms.items()
            if place in end and since_ms + self._idle_max_ms > now_ms
        }
        waiting = {number for _, number in left_ms}
        stopped = {place for place in end if place[1] in waiting and end[place] > begin[place]}
        missed = sorted(place for place in left_ms if any(number == place[1] for _, number in stopped))
        return Held(
            {place: begin[place] if place in stopped else last for place, last in end.items()},
            missed,
            min((left_ms[place] for place in missed), default=0),
        )
