"""What the broker acknowledged, and what it must therefore still have."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class Ledger:
    """Written by many threads. Values are unique, so that a record which is there twice can be told."""

    acknowledged: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """The value at each offset that a producer was told, transactions only once they were committed."""
    aborted: set[bytes] = field(default_factory=set)
    """Values whose transaction was aborted, and the broker said so."""
    latest: dict[tuple[str, bytes], int] = field(default_factory=dict)
    """Of compacted topics: the last number acknowledged for each key."""
    deleted_before: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    """What administration had deleted need not be there."""
    consumed: dict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Offsets that the members of the group have seen."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, place: Place, offset: int, value: bytes) -> None:
        with self.lock:
            there = self.acknowledged[place].setdefault(offset, value)
        assert there == value, f"{place} offset {offset} was given to {there!r} and to {value!r}"

    def consume(self, place: Place, offset: int) -> None:
        with self.lock:
            self.consumed[place].add(offset)

    @property
    def count(self) -> int:
        with self.lock:
            return sum(map(len, self.acknowledged.values()))
