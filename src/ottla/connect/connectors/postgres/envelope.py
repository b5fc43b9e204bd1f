"""Records in Debezium's form: names of topics, keys, and values with before, after and their origin."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla import __version__
from ottla.connect.columns import Column as Columns
from ottla.connect.columns import Fields, Flat, Same, SourceColumns
from ottla.connect.connectors.postgres.catalog import ColumnInfo, TypeInfo
from ottla.connect.connectors.postgres.columns import Mapped, Modes, mapped
from ottla.connect.connectors.postgres.pgoutput import UNCHANGED, Row
from ottla.connect.connectors.postgres.position import Position
from ottla.connect.data import INT64, STRING, Kind, Schema, Struct, array_of, struct_of
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.records import Header, SourceRecord

_NAME: Final = "postgresql"
_OPTIONAL_INT64: Final = INT64.but(optional=True)
_OPTIONAL_STRING: Final = STRING.but(optional=True)
_SNAPSHOT: Final = Schema(
    Kind.STRING,
    optional=True,
    default="false",
    name="io.debezium.data.Enum",
    version=1,
    parameters=(
        (
            "allowed",
            "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
        ),
    ),
)
_SOURCE: Final = struct_of(
    ("version", STRING),
    ("connector", STRING),
    ("name", STRING),
    ("ts_ms", INT64),
    ("snapshot", _SNAPSHOT),
    ("db", STRING),
    ("sequence", _OPTIONAL_STRING),
    ("ts_us", _OPTIONAL_INT64),
    ("ts_ns", _OPTIONAL_INT64),
    ("schema", STRING),
    ("table", STRING),
    ("txId", _OPTIONAL_INT64),
    ("lsn", _OPTIONAL_INT64),
    ("xmin", _OPTIONAL_INT64),
    name="io.debezium.connector.postgresql.Source",
).but(version=1)
_BLOCK: Final = struct_of(
    ("id", STRING),
    ("total_order", INT64),
    ("data_collection_order", INT64),
    name="event.block",
    optional=True,
).but(version=1)
_COLLECTION: Final = struct_of(
    ("data_collection", STRING), ("event_count", INT64), name="event.collection"
).but(version=1)
_TRANSACTION_KEY: Final = struct_of(
    ("id", STRING), name="io.debezium.connector.common.TransactionMetadataKey"
).but(version=1)
_TRANSACTION: Final = struct_of(
    ("status", STRING),
    ("id", STRING),
    ("event_count", _OPTIONAL_INT64),
    ("data_collections", array_of(_COLLECTION, optional=True)),
    ("ts_ms", INT64),
    name="io.debezium.connector.common.TransactionMetadataValue",
).but(version=1)
_HEARTBEAT_KEY: Final = struct_of(
    ("serverName", STRING), name="io.debezium.connector.common.ServerNameKey"
).but(version=1)
_HEARTBEAT: Final = struct_of(("ts_ms", INT64), name="io.debezium.connector.common.Heartbeat").but(version=1)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Mapped
    is_required: bool

    def value(self, text: Any) -> Any:
        if text is None:
            # Not known, if the column is required: of a row that is gone there may be the key alone.
            return self.type.empty if self.is_required else None
        if text is UNCHANGED:
            lacking = self.type.unavailable
            return self.type.empty if lacking is None and self.is_required else lacking
        return self.type.read(text)


class Shape:
    """A table as it is at one time: how its rows become keys and values."""

    def __init__(
        self, schema: str, name: str, topic: str, columns: Sequence[Column | None], key: Sequence[str]
    ) -> None:
        """`columns` are those of a row, None for one that is left out."""
        self.schema, self.name, self.topic = schema, name, topic
        self.full_name = f"{schema}.{name}"
        self._wanted_key = key
        self._set_columns(list(columns))

    def _set_columns(self, columns: list[Column | None]) -> None:
        self._columns = columns
        fields = {
            column.name: column.type.schema.but(optional=not column.is_required)
            for column in columns
            if column is not None
        }
        topic = self.topic
        self._key = tuple(each for each in self._wanted_key if each in fields)
        self.key_schema = (
            struct_of(*((each, fields[each].but(optional=False)) for each in self._key), name=f"{topic}.Key")
            if self._key
            else None
        )
        self.value_schema = struct_of(*fields.items(), name=f"{topic}.Value", optional=True)
        self.envelope_schema = struct_of(
            ("before", self.value_schema),
            ("after", self.value_schema),
            ("source", _SOURCE),
            ("transaction", _BLOCK),
            ("op", STRING),
            ("ts_ms", _OPTIONAL_INT64),
            ("ts_us", _OPTIONAL_INT64),
            ("ts_ns", _OPTIONAL_INT64),
            name=f"{topic}.Envelope",
        ).but(version=2)

    def old_value(self, row: Row) -> Struct:
        """Of a row that is gone, of which there may be the key alone: required columns are never null."""
        return self._value(row)

    def value(self, row: Row) -> Struct:
        for place, column in enumerate(self._columns):
            if column is not None and column.is_required and row[place] is None:
                # The column is required today, and was not when the row was written.
                relaxed = self._columns.copy()
                relaxed[place] = Column(column.name, column.type, False)
                self._set_columns(relaxed)
        return self._value(row)

    def _value(self, row: Row) -> Struct:
        values = {}
        for column, text in zip(self._columns, row, strict=True):
            if column is not None:
                try:
                    values[column.name] = column.value(text)
                except (ValueError, ArithmeticError, DataError) as error:
                    raise DataError(
                        f"the column {self.full_name}.{column.name}: {error}. Put the row right, or leave "
                        "the column out in column.exclude.list, and restart the task"
                    ) from error
        return Struct(self.value_schema, values)

    def columns(self, texts: Sequence[Any]) -> tuple[Fields | None, Fields]:
        """Keys and values of many rows, whose columns are pa.StringArrays. DataError where they have to be
        looked at one by one, ArrowInvalid and ValueError too."""
        found: dict[str, Columns] = {}
        kinds = {each.name: each.schema for each in self.value_schema.fields}
        for column, array in zip(self._columns, texts, strict=True):
            if column is not None:
                if column.is_required and array.null_count:
                    raise DataError(f"the column {self.full_name}.{column.name} has null in it")
                found[column.name] = column.type.column(kinds[column.name], array)
        if not found:
            raise DataError(f"{self.full_name} has no columns")
        value = Fields(self.value_schema, tuple(found.values()))
        if self.key_schema is None:
            return None, value
        return Fields(self.key_schema, tuple(found[name] for name in self._key)), value

    def key(self, value: Struct) -> Struct | None:
        if self.key_schema is None:
            return None
        return Struct(self.key_schema, {name: value.get(name) for name in self._key})


class Shapes:
    """Makes them, of columns as the database describes them."""

    def __init__(
        self,
        prefix: str,
        modes: Modes,
        is_column_wanted: Callable[[str], bool],
    ) -> None:
        self._prefix = prefix
        self._modes = modes
        self._is_wanted = is_column_wanted

    def made(
        self,
        schema: str,
        name: str,
        columns: Sequence[ColumnInfo],
        key: Sequence[str],
        type_of: Callable[[int], TypeInfo | None],
    ) -> Shape:
        found: list[Column | None] = []
        for column in columns:
            kind = type_of(column.type)
            how = None if kind is None else mapped(kind, column.modifier, self._modes, type_of)
            if how is None:
                _log.warning(
                    "the column %s.%s.%s is left out: its type %s has no place in a record (as bytes with "
                    "include.unknown.datatypes=true)",
                    schema,
                    name,
                    column.name,
                    column.type if kind is None else kind.name,
                )
            is_wanted = column.name in key or self._is_wanted(f"{schema}.{name}.{column.name}")
            found.append(
                Column(column.name, how, column.is_required) if how is not None and is_wanted else None
            )
        return Shape(schema, name, topic_of(f"{self._prefix}.{schema}.{name}"), found, key)


def topic_of(name: str) -> str:
    """With what topics may be called."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", name)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where and when a change was made."""

    lsn: int
    time_us: int
    transaction: int | None = None
    completed_lsn: int | None = None
    snapshot: str = "false"


@dataclass(frozen=True, slots=True)
class Place:
    """A change in its transaction, for those who ask for that."""

    transaction: str
    total_order: int
    table_order: int


class Envelopes:
    def __init__(self, prefix: str, database: str, config: Mapping[str, Any]) -> None:
        self._prefix = prefix
        self._database = database
        self._skipped = {code.strip() for code in config["skipped.operations"]} - {"none"}
        self._has_tombstones = config["tombstones.on.delete"]
        self._heartbeat_topic = topic_of(f"{config['topic.heartbeat.prefix']}.{prefix}")
        self._transaction_topic = topic_of(f"{prefix}.{config['topic.transaction']}")
        self.partition = {"server": prefix}

    def read(self, shape: Shape, origin: Origin, row: Row, position: Position) -> list[SourceRecord]:
        after = shape.value(row)
        return self._changed(shape, origin, None, position, "r", shape.key(after), None, after)

    def read_columns(
        self, shape: Shape, origin: Origin, marks: Any, texts: Sequence[Any], position: Position
    ) -> SourceColumns | None:
        """As `read`, of many rows; `marks` is a pa.StringArray for what `origin` says of each. None if
        nobody wants them. Raises as `columns` of the shape."""
        if "r" in self._skipped:
            return None
        key, after = shape.columns(texts)
        count = len(after)
        told = self._source(shape, origin)
        source = [
            Flat(field.schema, marks)
            if field.name == "snapshot"
            else Same(field.schema, told.get(field.name), count)
            for field in _SOURCE.fields
        ]
        now_ns = time.time_ns()
        values: dict[str, Any] = {
            "op": "r",
            "ts_ms": now_ns // 1_000_000,
            "ts_us": now_ns // 1000,
            "ts_ns": now_ns,
        }
        columns: dict[str, Columns] = {"after": after, "source": Fields(_SOURCE, tuple(source))}
        envelope = Fields(
            shape.envelope_schema,
            tuple(
                columns.get(field.name) or Same(field.schema, values.get(field.name), count)
                for field in shape.envelope_schema.fields
            ),
        )
        return SourceColumns(shape.topic, key, envelope, None, self.partition, position.as_offset())

    def inserted(
        self, shape: Shape, origin: Origin, place: Place | None, row: Row, position: Position
    ) -> list[SourceRecord]:
        after = shape.value(row)
        return self._changed(shape, origin, place, position, "c", shape.key(after), None, after)

    def updated(
        self, shape: Shape, origin: Origin, place: Place | None, old: Row | None, new: Row, position: Position
    ) -> list[SourceRecord]:
        if old is not None:
            new = [was if value is UNCHANGED else value for was, value in zip(old, new, strict=True)]
        after = shape.value(new)
        key = shape.key(after)
        if old is None:
            return self._changed(shape, origin, place, position, "u", key, None, after)
        before = shape.old_value(old)
        old_key = shape.key(before)
        if old_key is None or key is None or old_key == key:
            return self._changed(shape, origin, place, position, "u", key, before, after)
        # The row has another name from here on.
        gone = self._changed(
            shape,
            origin,
            place,
            position,
            "d",
            old_key,
            before,
            None,
            (Header("__debezium.newkey", shape.key_schema, key),),
        )
        came = self._changed(
            shape,
            origin,
            place,
            position,
            "c",
            key,
            None,
            after,
            (Header("__debezium.oldkey", shape.key_schema, old_key),),
        )
        return [*gone, *came]

    def deleted(
        self, shape: Shape, origin: Origin, place: Place | None, old: Row, position: Position
    ) -> list[SourceRecord]:
        before = shape.old_value(old)
        return self._changed(shape, origin, place, position, "d", shape.key(before), before, None)

    def truncated(
        self, shape: Shape, origin: Origin, place: Place | None, position: Position
    ) -> list[SourceRecord]:
        return self._changed(shape, origin, place, position, "t", None, None, None)

    def heartbeat(self, position: Position) -> SourceRecord:
        return self._record(
            self._heartbeat_topic,
            position,
            Struct(_HEARTBEAT_KEY, {"serverName": self._prefix}),
            Struct(_HEARTBEAT, {"ts_ms": time.time_ns() // 1_000_000}),
        )

    def began(self, transaction: str, time_us: int, position: Position) -> SourceRecord:
        value = {"status": "BEGIN", "id": transaction, "ts_ms": time_us // 1000}
        return self._record(
            self._transaction_topic,
            position,
            Struct(_TRANSACTION_KEY, {"id": transaction}),
            Struct(_TRANSACTION, value),
        )

    def ended(
        self, transaction: str, time_us: int, counts: Mapping[str, int], position: Position
    ) -> SourceRecord:
        collections = [
            Struct(_COLLECTION, {"data_collection": name, "event_count": count})
            for name, count in counts.items()
        ]
        value = {
            "status": "END",
            "id": transaction,
            "event_count": sum(counts.values()),
            "data_collections": collections,
            "ts_ms": time_us // 1000,
        }
        return self._record(
            self._transaction_topic,
            position,
            Struct(_TRANSACTION_KEY, {"id": transaction}),
            Struct(_TRANSACTION, value),
        )

    def _changed(
        self,
        shape: Shape,
        origin: Origin,
        place: Place | None,
        position: Position,
        operation: str,
        key: Struct | None,
        before: Struct | None,
        after: Struct | None,
        headers: tuple[Header, ...] = (),
    ) -> list[SourceRecord]:
        if operation in self._skipped:
            return []
        now_ns = time.time_ns()
        value = Struct(
            shape.envelope_schema,
            {
                "before": before,
                "after": after,
                "source": self._source(shape, origin),
                "transaction": None
                if place is None
                else Struct(
                    _BLOCK,
                    {
                        "id": place.transaction,
                        "total_order": place.total_order,
                        "data_collection_order": place.table_order,
                    },
                ),
                "op": operation,
                "ts_ms": now_ns // 1_000_000,
                "ts_us": now_ns // 1000,
                "ts_ns": now_ns,
            },
        )
        records = [self._record(shape.topic, position, key, value, headers)]
        if operation == "d" and self._has_tombstones and key is not None:
            records.append(self._record(shape.topic, position, key, None, headers))
        return records

    def _source(self, shape: Shape, origin: Origin) -> Struct:
        completed = None if origin.completed_lsn is None else str(origin.completed_lsn)
        return Struct(
            _SOURCE,
            {
                "version": __version__,
                "connector": _NAME,
                "name": self._prefix,
                "ts_ms": origin.time_us // 1000,
                "snapshot": origin.snapshot,
                "db": self._database,
                "sequence": json.dumps([completed, str(origin.lsn)], separators=(",", ":")),
                "ts_us": origin.time_us,
                "ts_ns": origin.time_us * 1000,
                "schema": shape.schema,
                "table": shape.name,
                "txId": origin.transaction,
                "lsn": origin.lsn,
            },
        )

    def _record(
        self,
        topic: str,
        position: Position,
        key: Struct | None,
        value: Struct | None,
        headers: tuple[Header, ...] = (),
    ) -> SourceRecord:
        return SourceRecord(
            topic=topic,
            key_schema=None if key is None else key.schema,
            key=key,
            value_schema=None if value is None else value.schema,
            value=value,
            headers=headers,
            source_partition=self.partition,
            source_offset=position.as_offset(),
        )


def matcher(include: Sequence[str], exclude: Sequence[str]) -> Callable[[str], bool]:
    """Of names by patterns that match as a whole, whatever the case. Without patterns, all."""
    wanted, unwanted = _patterns(include), _patterns(exclude)

    def matches(name: str) -> bool:
        if wanted and not any(pattern.fullmatch(name) for pattern in wanted):
            return False
        return not any(pattern.fullmatch(name) for pattern in unwanted)

    return matches


def _patterns(given: Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(each, re.IGNORECASE) for each in given if each]
    except re.error as error:
        raise ConnectError(f"{','.join(given)} is not a list of regular expressions: {error}") from error
