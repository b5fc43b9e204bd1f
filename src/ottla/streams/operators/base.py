"""What an operator is and what it may ask of its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ottla.streams.records import Headers, Origin, Record, ValueAndTimestamp

Step = Callable[[Any, Any, int, Headers], None]
"""Takes a record as what it consists of: key, value, timestamp and headers."""


@dataclass(frozen=True, slots=True)
class Directed:
    """An output for one child only."""

    child: str
    record: Record


Output = Record | Directed


class Context(Protocol):
    """The surroundings of one node in one task."""

    @property
    def origin(self) -> Origin:
        """Where the record being worked on came from."""
        ...

    @property
    def partition(self) -> int:
        """The partition of the task."""
        ...

    @property
    def now_ms(self) -> int:
        """Wall-clock time, as the host tells it."""
        ...

    def store(self, name: str) -> Any: ...

    def observe(self, timestamp_ms: int, clock: str = "") -> int:
        """Move the node's (or a shared) stream time forward and return it. It survives restarts."""
        ...

    def remember(self, name: str, number: int) -> None:
        """Keep a number for the node across restarts."""
        ...

    def recall(self, name: str) -> int | None: ...

    def columns(self) -> Any:
        """Evaluates Spark column expressions record by record; only the test driver can."""
        ...

    def drop(self, reason: str) -> None:
        """Count a record that is skipped by the rules of the operator, such as a late one."""
        ...


class RecordOperator(Protocol):
    """An operator that makes records of a record."""

    def process(self, record: Record, context: Context) -> Iterable[Output]: ...


@runtime_checkable
class BoundOperator(Protocol):
    """An operator that many records go through: it is tied to its surroundings once per task, and no record
    is made on its way in or out."""

    def bind(self, context: Context, forward: Step) -> Step:
        """What takes the records of the node, and passes what becomes of them on."""
        ...


Operator = RecordOperator | BoundOperator
"""A node's behaviour. Instances are immutable; everything that changes lives in stores."""


class View(Protocol):
    """How other operators look up a table that may not be stored as such."""

    def get(self, key: Any, context: Context, as_of_ms: int | None = None) -> ValueAndTimestamp | None:
        """The row of a key: as it is, or, of a table with versions, as it was at a time."""
        ...
