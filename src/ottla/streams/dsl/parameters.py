"""What a program can say about an operation besides its function: serdes, names, stores, partitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ottla.streams.plan.plan import Partitioner, TimestampExtractor
from ottla.streams.serdes import Serde, Serdes
from ottla.streams.windows import Duration, milliseconds

SerdeLike = Serde | type | None


def _serde(kind: SerdeLike) -> Serde | None:
    return None if kind is None else Serdes.of(kind)


@dataclass(frozen=True, slots=True)
class Consumed:
    """How a topic is read."""

    key: Serde | None = None
    value: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None
    name: str | None = None

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None) -> Consumed:
        return cls(_serde(key), _serde(value))

    @classmethod
    def as_(cls, name: str) -> Consumed:
        return cls(name=name)

    def with_timestamp_extractor(self, extractor: TimestampExtractor) -> Consumed:
        return replace(self, timestamp_extractor=extractor)

    def with_offset_reset_policy(self, reset: str) -> Consumed:
        """``"earliest"`` or ``"latest"``: where to begin when nothing is committed."""
        return replace(self, offset_reset=reset)

    def with_name(self, name: str) -> Consumed:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Produced:
    """How a topic is written."""

    key: Serde | None = None
    value: Serde | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None) -> Produced:
        return cls(_serde(key), _serde(value))

    @classmethod
    def as_(cls, name: str) -> Produced:
        return cls(name=name)

    def with_stream_partitioner(self, partitioner: Partitioner) -> Produced:
        return replace(self, partitioner=partitioner)

    def with_name(self, name: str) -> Produced:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Grouped:
    """Serdes of a grouping and the name of its repartition topic."""

    key: Serde | None = None
    value: Serde | None = None
    name: str | None = None

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None) -> Grouped:
        return cls(_serde(key), _serde(value))

    @classmethod
    def as_(cls, name: str) -> Grouped:
        return cls(name=name)

    def with_name(self, name: str) -> Grouped:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Repartitioned:
    key: Serde | None = None
    value: Serde | None = None
    name: str | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None) -> Repartitioned:
        return cls(_serde(key), _serde(value))

    @classmethod
    def as_(cls, name: str) -> Repartitioned:
        return cls(name=name)

    def with_name(self, name: str) -> Repartitioned:
        return replace(self, name=name)

    def with_number_of_partitions(self, partitions: int) -> Repartitioned:
        return replace(self, partitions=partitions)

    def with_stream_partitioner(self, partitioner: Partitioner) -> Repartitioned:
        return replace(self, partitioner=partitioner)


@dataclass(frozen=True, slots=True)
class Materialized:
    """How a table is stored. A name makes it queryable and logs it to a changelog topic of that name."""

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int | None = None
    logged: bool = True

    @classmethod
    def as_(cls, name: str) -> Materialized:
        return cls(name)

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None) -> Materialized:
        return cls(None, _serde(key), _serde(value))

    def with_key_serde(self, key: Serde | type) -> Materialized:
        return replace(self, key=_serde(key))

    def with_value_serde(self, value: Serde | type) -> Materialized:
        return replace(self, value=_serde(value))

    def with_retention(self, retention: Duration) -> Materialized:
        return replace(self, retention_ms=milliseconds("retention", retention, minimum_ms=1))

    def with_logging_disabled(self) -> Materialized:
        return replace(self, logged=False)


@dataclass(frozen=True, slots=True)
class Joined:
    """Serdes of a stream-table join, needed where the stream has to be repartitioned first, or waits."""

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    name: str | None = None
    grace_ms: int = 0

    @classmethod
    def with_(cls, key: SerdeLike = None, value: SerdeLike = None, other_value: SerdeLike = None) -> Joined:
        return cls(_serde(key), _serde(value), _serde(other_value))

    @classmethod
    def as_(cls, name: str) -> Joined:
        return cls(name=name)

    def with_name(self, name: str) -> Joined:
        return replace(self, name=name)

    def with_grace_period(self, grace: Duration) -> Joined:
        """Let records of the stream wait for rows that come later than they should. The table needs a
        ``history`` as long."""
        return replace(self, grace_ms=milliseconds("grace period", grace))


@dataclass(frozen=True, slots=True)
class StreamJoined:
    """Serdes and names of a stream-stream join."""

    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    name: str | None = None
    store_name: str | None = None

    @classmethod
    def with_(
        cls, key: SerdeLike = None, value: SerdeLike = None, other_value: SerdeLike = None
    ) -> StreamJoined:
        return cls(_serde(key), _serde(value), _serde(other_value))

    @classmethod
    def as_(cls, store_name: str) -> StreamJoined:
        return cls(store_name=store_name)

    def with_name(self, name: str) -> StreamJoined:
        return replace(self, name=name)

    def with_store_name(self, store_name: str) -> StreamJoined:
        return replace(self, store_name=store_name)


@dataclass(frozen=True, slots=True)
class TableJoined:
    """The name of a foreign-key join."""

    name: str | None = None

    @classmethod
    def as_(cls, name: str) -> TableJoined:
        return cls(name)


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """How much a suppression may hold back, and what it does when that is not enough."""

    records_max: int | None = None
    bytes_max: int | None = None
    emit_early: bool = False

    @classmethod
    def unbounded(cls) -> BufferConfig:
        return cls()

    @classmethod
    def max_records(cls, records_max: int) -> BufferConfig:
        return cls(records_max=records_max, emit_early=True)

    @classmethod
    def max_bytes(cls, bytes_max: int) -> BufferConfig:
        return cls(bytes_max=bytes_max, emit_early=True)

    def with_max_records(self, records_max: int) -> BufferConfig:
        return replace(self, records_max=records_max)

    def with_max_bytes(self, bytes_max: int) -> BufferConfig:
        return replace(self, bytes_max=bytes_max)

    def shut_down_when_full(self) -> BufferConfig:
        return replace(self, emit_early=False)

    def emit_early_when_full(self) -> BufferConfig:
        return replace(self, emit_early=True)


@dataclass(frozen=True, slots=True)
class Suppressed:
    """When a table's updates may leave."""

    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig | None = None) -> Suppressed:
        """One final result per window, once no more records can change it."""
        return cls(None, buffer or BufferConfig.unbounded())

    @classmethod
    def until_time_limit(cls, wait: Duration, buffer: BufferConfig | None = None) -> Suppressed:
        """At most one result per key in a span of stream time."""
        return cls(milliseconds("time limit", wait), buffer or BufferConfig.unbounded())

    def with_name(self, name: str) -> Suppressed:
        return replace(self, name=name)


class EmitStrategy:
    """When windowed aggregations give results: with every update, or once when the window closes."""

    ON_WINDOW_UPDATE = "on window update"
    ON_WINDOW_CLOSE = "on window close"

    @staticmethod
    def on_window_update() -> str:
        return EmitStrategy.ON_WINDOW_UPDATE

    @staticmethod
    def on_window_close() -> str:
        return EmitStrategy.ON_WINDOW_CLOSE


@dataclass(frozen=True, slots=True)
class Branched:
    """A branch of ``split``: its name and, optionally, what is done with its stream."""

    name: str | None = None
    chain: Any = None

    @classmethod
    def as_(cls, name: str) -> Branched:
        return cls(name)

    @classmethod
    def with_function(cls, chain: Any, name: str | None = None) -> Branched:
        """The function gets the branch's stream and returns the one to keep in the result, or ``None``."""
        return cls(name, chain)

    @classmethod
    def with_consumer(cls, consumer: Any, name: str | None = None) -> Branched:
        def consume(stream: Any) -> None:
            consumer(stream)

        return cls(name, consume)
