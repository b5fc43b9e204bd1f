"""What one command decides: records to append; replies and effects once those are committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from ottla.wire.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")

Ticket: TypeAlias = Any
"""Whatever the caller wants back with the reply; the coordinator only keeps it and gives it back once."""


class Instant(NamedTuple):
    """Wall time is for what gets stored; deadlines go by a clock that nobody can set."""

    wall_ms: int
    monotonic_ms: int


class Outcome(NamedTuple):
    records: list[tuple[Any, Any]]
    """Keys and values; a value of None is a tombstone."""
    replies: list[tuple[Ticket, Any]]
    effects: Sequence[Any] = ()
    """What is to be done besides; nobody waits for it."""


class Journal(Generic[K, V]):
    """Collects an outcome. What is written is applied at once, so later steps of a command see it."""

    __slots__ = ("_apply", "_effects", "_records", "_replies", "now")

    def __init__(self, apply: Callable[[K, V | None], None]) -> None:
        self._apply = apply
        self._records: list[tuple[K, V | None]] = []
        self._replies: list[tuple[Ticket, Any]] = []
        self._effects: list[Any] = []
        self.now = Instant(0, 0)

    def write(self, key: K, value: V | None) -> None:
        """Change state by a record."""
        self._apply(key, value)
        self._records.append((key, value))

    def persist(self, key: K, value: V | None) -> None:
        """Store what the in-memory state has become already."""
        self._records.append((key, value))

    def reply(self, ticket: Ticket, response: Any) -> None:
        self._replies.append((ticket, response))

    def effect(self, effect: Any) -> None:
        self._effects.append(effect)

    @property
    def is_empty(self) -> bool:
        return not self._records

    def run(self, command: Callable[[], None], ticket: Ticket, now: Instant) -> Outcome:
        """What a command decides; one that refuses must not have changed anything before."""
        self.now = now
        try:
            command()
        except KafkaError as error:
            if not self.is_empty:
                raise AssertionError(f"a command failed after it had changed state: {error}") from error
            self.reply(ticket, error)
        return self.take()

    def take(self) -> Outcome:
        outcome = Outcome(self._records, self._replies, self._effects)
        self._records, self._replies, self._effects = [], [], []
        return outcome
