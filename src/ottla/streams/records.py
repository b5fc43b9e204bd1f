"""The values that flow through a topology: records, changes of a table, windowed keys.

Named tuples, because millions of them are made, and making one costs a third of a frozen dataclass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


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


class OutputRecord(NamedTuple):
    """A record as it will lie in a topic. Without a partition the key's hash decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()
    partition: int | None = None
