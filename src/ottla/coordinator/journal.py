"""What one command decides: records to append, and replies to release once those are committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ottla.coordinator.records import Key, Value

Ticket: TypeAlias = Any
"""Whatever the caller wants back with the reply; the coordinator only keeps it and gives it back once."""


class Instant(NamedTuple):
    """Wall time is for what gets stored; deadlines go by a clock that nobody can set."""

    wall_ms: int
    monotonic_ms: int


class Outcome(NamedTuple):
    records: list[tuple[Key, Value | None]]
    replies: list[tuple[Ticket, Any]]


class Journal:
    """Collects an outcome. What is written is applied at once, so later steps of a command see it."""

    __slots__ = ("_apply", "_records", "_replies", "now")

    def __init__(self, apply: Callable[[Key, Value | None], None]) -> None:
        self._apply = apply
        self._records: list[tuple[Key, Value | None]] = []
        self._replies: list[tuple[Ticket, Any]] = []
        self.now = Instant(0, 0)

    def write(self, key: Key, value: Value | None) -> None:
        """Change state by a record."""
        self._apply(key, value)
        self._records.append((key, value))

    def persist(self, key: Key, value: Value | None) -> None:
        """Store what the in-memory state has become already."""
        self._records.append((key, value))

    def reply(self, ticket: Ticket, response: Any) -> None:
        self._replies.append((ticket, response))

    @property
    def is_empty(self) -> bool:
        return not self._records

    def take(self) -> Outcome:
        outcome = Outcome(self._records, self._replies)
        self._records, self._replies = [], []
        return outcome
