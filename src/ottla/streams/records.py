"""The values that flow through a topology: records, changes of a table, windowed keys.

Named tuples, because millions of them are made, and making one costs a third of a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]

new_tuple: Final = tuple.__new__
"""Makes a named tuple of a tuple for half of what its own constructor costs: ``new_tuple(Record, (...))``."""


class Record(NamedTuple):
    """One record between two nodes. Key and value are Python objects, already deserialised."""

    key: Any
    value: Any
    timestamp_ms: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp_ms, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp_ms, self.headers)

    def with_timestamp(self, timestamp_ms: int) -> Record:
        return Record(self.key, self.value, timestamp_ms, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        return Record(self.key, self.value, self.timestamp_ms, headers)


class Change(NamedTuple):
    """An update of a table: the new value and, where somebody downstream asked for it, the old one."""

    new: Any
    old: Any = None


class Window(NamedTuple):
    """A span of time. The end is exclusive for time windows, inclusive for session and sliding windows."""

    start_ms: int
    end_ms: int


class Windowed(NamedTuple):
    """The key of a windowed table."""

    key: Any
    window: Window


class ValueAndTimestamp(NamedTuple):
    """What a store of a table holds for a key."""

    value: Any
    timestamp_ms: int


class Origin(NamedTuple):
    """Where the record that caused the work came from."""

    topic: str
    partition: int
    offset: int


class InputRecord(NamedTuple):
    """A record as it lies in a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    # Where it lay before a shuffle that stands for a repartition topic, if it came through one.
    read_from: Origin | None = None

    @property
    def origin(self) -> Origin:
        return self.read_from or Origin(self.topic, self.partition, self.offset)


@dataclass(slots=True)
class InputBatch:
    """Records of one partition of a topic, column by column: so they reach tasks, because an object for each
    would cost as much as the work on it."""

    topic: str
    partition: int
    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    # None where no record has any.
    headers: list[Headers] | None = None
    # Topic and partition before a shuffle that stands for a repartition topic, if they came through one.
    read_from: tuple[str, int] | None = None
    # Keys and values as objects, once a task has read them all; None if it could not.
    objects: tuple[list[Any], list[Any]] | None = None
    is_decoded: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    def record(self, index: int) -> InputRecord:
        return InputRecord(
            self.topic,
            self.partition,
            self.offsets[index],
            self.timestamps_ms[index],
            self.keys[index],
            self.values[index],
            () if self.headers is None else self.headers[index],
            None if self.read_from is None else Origin(*self.read_from, self.offsets[index]),
        )

    def records(self) -> Iterator[InputRecord]:
        return map(self.record, range(len(self)))


class OutputRecord(NamedTuple):
    """A record as it will lie in a topic. Without a partition the key's hash decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None
