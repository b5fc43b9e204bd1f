"""Many records at once, a column for each part of them: what connectors give and take where no Python object
per record is wanted.

Whoever cannot work on columns asks for the records they stand for, which are the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla.connect.data import Schema, Struct
from ottla.connect.records import SourceRecord


class Column(ABC):
    """The keys or the values of records, or a field of them. One schema is that of all."""

    schema: Schema

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def values(self) -> list[Any]:
        """As records have them."""

    @abstractmethod
    def part(self, start: int, stop: int) -> Column: ...

    def of(self, schema: Schema) -> Column:
        """The same values under another schema."""
        return replace(self, schema=schema)  # type: ignore[type-var]


@dataclass(frozen=True, slots=True)
class Flat(Column):
    """Text, bytes, whole numbers and booleans; their schema has no logical type."""

    schema: Schema
    array: Any
    """A pa.Array."""

    def __len__(self) -> int:
        return len(self.array)

    def values(self) -> list[Any]:
        found: list[Any] = self.array.to_pylist()
        return found

    def part(self, start: int, stop: int) -> Column:
        return Flat(self.schema, self.array.slice(start, stop - start))


@dataclass(frozen=True, slots=True)
class Single(Column):
    """Values one by one: of types for which there is no array."""

    schema: Schema
    items: Sequence[Any]

    def __len__(self) -> int:
        return len(self.items)

    def values(self) -> list[Any]:
        return list(self.items)

    def part(self, start: int, stop: int) -> Column:
        return Single(self.schema, self.items[start:stop])


@dataclass(frozen=True, slots=True)
class Same(Column):
    """One value that all have."""

    schema: Schema
    value: Any
    count: int

    def __len__(self) -> int:
        return self.count

    def values(self) -> list[Any]:
        return [self.value] * self.count

    def part(self, start: int, stop: int) -> Column:
        return Same(self.schema, self.value, stop - start)


@dataclass(frozen=True, slots=True)
class Fields(Column):
    """Structs, none of which is null: a column for each field of the schema, in its order."""

    schema: Schema
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def values(self) -> list[Any]:
        names = [each.name for each in self.schema.fields]
        rows = zip(*(column.values() for column in self.columns), strict=True)
        return [Struct(self.schema, dict(zip(names, row, strict=True))) for row in rows]

    def part(self, start: int, stop: int) -> Column:
        return Fields(self.schema, tuple(each.part(start, stop) for each in self.columns))


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """Records for one topic, without headers; `source_offset` is where to go on behind the last of them."""

    topic: str
    key: Column | None
    """None where no record has one."""
    value: Column
    timestamp_ms: int | None
    source_partition: Mapping[str, Any] | None
    source_offset: Mapping[str, Any] | None

    def __len__(self) -> int:
        return len(self.value)

    def part(self, start: int, stop: int) -> SourceColumns:
        key = None if self.key is None else self.key.part(start, stop)
        return replace(self, key=key, value=self.value.part(start, stop))

    def records(self) -> list[SourceRecord]:
        count = len(self)
        key_schema = None if self.key is None else self.key.schema
        keys = [None] * count if self.key is None else self.key.values()
        return [
            SourceRecord(
                topic=self.topic,
                key_schema=key_schema,
                key=key,
                value_schema=self.value.schema,
                value=value,
                timestamp_ms=self.timestamp_ms,
                source_partition=self.source_partition,
                source_offset=self.source_offset,
            )
            for key, value in zip(keys, self.value.values(), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Records of one partition, without headers."""

    topic: str
    partition: int
    key: Column
    value: Column
    offset: Any
    """A pa.Int64Array."""
    timestamp: Any
    """A pa.TimestampArray, in microseconds and UTC."""

    def __len__(self) -> int:
        return len(self.value)
