"""Transforms that work on either the key or the value of a record, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, TypeVar

from ottla.connect.columns import Column, SourceColumns
from ottla.connect.data import Schema, Struct
from ottla.connect.errors import DataError
from ottla.connect.plugin import AnyRecord, Transform
from ottla.connect.records import ConnectRecord, changed
from ottla.connect.settings.definition import Importance, Setting, Type

REPLACE_NULL: Final = Setting(
    "replace.null.with.default",
    Type.BOOLEAN,
    True,
    Importance.MEDIUM,
    "Whether null stands for the default of a field that has one.",
)

Record = TypeVar("Record", bound=ConnectRecord)


class PartTransform(Transform[AnyRecord]):
    part: ClassVar[Literal["key", "value"]]
    purpose: ClassVar[str]
    """For messages about records that are not made for it."""

    def schema_of(self, record: ConnectRecord) -> Schema | None:
        return record.key_schema if self.part == "key" else record.value_schema

    def value_of(self, record: ConnectRecord) -> Any:
        return record.key if self.part == "key" else record.value

    def with_part(self, record: Record, schema: Schema | None, value: Any) -> Record:
        if self.part == "key":
            return changed(record, key_schema=schema, key=value)
        return changed(record, value_schema=schema, value=value)

    def column_of(self, records: SourceColumns) -> Column | None:
        return records.key if self.part == "key" else records.value

    def with_column(self, records: SourceColumns, column: Column) -> SourceColumns:
        return replace(records, key=column) if self.part == "key" else replace(records, value=column)

    def struct(self, value: Any) -> Struct:
        if not isinstance(value, Struct):
            raise DataError(f"Only Struct objects supported for [{self.purpose}], found: {_type(value)}")
        return value

    def mapping(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise DataError(
                f"Only Map objects supported in absence of schema for [{self.purpose}], found: {_type(value)}"
            )
        return dict(value)

    def field(self, struct: Struct, name: str) -> Any:
        return struct.get(name, default=self.config[REPLACE_NULL.name])

    def fields(self, struct: Struct) -> dict[str, Any]:
        return struct.as_dict(default=self.config[REPLACE_NULL.name])


def _type(value: Any) -> str:
    return "null" if value is None else type(value).__name__
