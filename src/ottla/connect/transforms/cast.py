"""Cast: fields, or the whole key or value, as another type, by Java's rules."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.data import INTEGER_BITS, Field, Kind, Schema, Struct, encode_logical
from ottla.connect.errors import DataError, SettingError
from ottla.connect.plugin import AnyRecord, Config
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.text import to_text
from ottla.connect.transforms.part import REPLACE_NULL, PartTransform

_TARGETS: Final = (
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.INT64,
    Kind.FLOAT32,
    Kind.FLOAT64,
    Kind.BOOLEAN,
    Kind.STRING,
)
_NAMES: Final = {kind.name: kind for kind in Kind}
_LONG_BITS: Final = 64
_INT_BITS: Final = 32


def _parsed(mappings: list[str]) -> dict[str | None, Kind]:
    """By field; None stands for the whole."""
    found: dict[str | None, Kind] = {}
    for mapping in mappings:
        parts = mapping.split(":")
        if len(parts) > 2:
            raise SettingError.of("renames", mappings, f"Invalid rename mapping: {mapping}")
        name = parts[-1].strip().upper()
        if name not in _NAMES:
            raise SettingError(f"Invalid type found in casting spec: {parts[-1].strip()}")
        if _NAMES[name] not in _TARGETS:
            listed = ", ".join(kind.name for kind in _TARGETS)
            raise SettingError(
                f"Cast transformation does not support casting to {name}; supported types are [{listed}]"
            )
        found[parts[0].strip() if len(parts) == 2 else None] = _NAMES[name]
    if None in found and len(mappings) > 1:
        raise SettingError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single "
            "cast in their spec"
        )
    return found


def _spec(name: str, value: Any) -> None:
    if not value:
        raise SettingError("Must specify at least one field to cast.")
    _parsed(value)


class Cast(PartTransform[AnyRecord]):
    purpose = "cast types"
    settings: ClassVar[Settings] = Settings(
        Setting(
            "spec",
            Type.LIST,
            REQUIRED,
            Importance.HIGH,
            "Fields and their new types, as field:type, or one type for the whole: int8, int16, "
            "int32, int64, "
            "float32, float64, boolean, string.",
            _spec,
        ),
        REPLACE_NULL,
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self.casts = _parsed(self.config["spec"])

    def apply(self, record: AnyRecord) -> AnyRecord:
        value, schema = self.value_of(record), self.schema_of(record)
        if value is None:
            return record
        whole = self.casts.get(None)
        if whole is not None:
            updated = None if schema is None else self._recast(schema, whole)
            return self.with_part(record, updated, _cast(schema, value, whole))
        if schema is None:
            plain = self.mapping(value)
            cast = {str(name): _cast(None, plain.get(str(name)), kind) for name, kind in self.casts.items()}
            return self.with_part(record, None, plain | cast)
        struct = self.struct(value)
        fields = [
            Field(each.name, self._recast(each.schema, self.casts[each.name]))
            if each.name in self.casts
            else each
            for each in schema.fields
        ]
        updated = schema.but(fields=tuple(fields))
        values = self.fields(struct)
        for each in schema.fields:
            if each.name in self.casts:
                values[each.name] = _cast(each.schema, values[each.name], self.casts[each.name])
        return self.with_part(record, updated, Struct(updated, values))

    def _recast(self, schema: Schema, kind: Kind) -> Schema:
        return Schema(kind, schema.optional, _cast(schema, schema.default, kind))


def _cast(schema: Schema | None, value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if isinstance(value, Struct | list | dict):
        name = {Struct: "STRUCT", list: "ARRAY", dict: "MAP"}[type(value)]
        raise DataError(f"Cast transformation does not support casting from {name}")
    if kind is Kind.STRING:
        return _text(value)
    if schema is not None and schema.name is not None and not isinstance(value, Decimal):
        value = encode_logical(schema, value)
    if isinstance(value, bytes | date | datetime | time):
        raise DataError(f"Unexpected type in Cast transformation: {type(value).__name__}")
    try:
        if kind is Kind.BOOLEAN:
            return value.lower() == "true" if isinstance(value, str) else int(value) != 0
        if kind in INTEGER_BITS:
            return _whole(value, INTEGER_BITS[kind])
        return float(value)
    except (ValueError, OverflowError):
        raise DataError(f"Value ({value}) was out of range for requested data type") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and value == int(value) and abs(value) < 1e7:
        return f"{value:.1f}"
    return to_text(value)


def _whole(value: Any, bits: int) -> int:
    """Text has to fit; fractions stop at the ends of an int or a long; whole numbers lose what is too
    high."""
    if isinstance(value, str):
        number = int(value)
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            raise ValueError(value)
        return number
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        width = _LONG_BITS if bits == _LONG_BITS else _INT_BITS
        low, high = -(1 << width - 1), (1 << width - 1) - 1
        number = low if value <= low else high if value >= high else int(value)
    else:
        number = int(value)
    wrapped = number & (1 << bits) - 1
    return wrapped - (1 << bits) if wrapped >> bits - 1 else wrapped


class CastKey(Cast[AnyRecord]):
    part = "key"


class CastValue(Cast[AnyRecord]):
    part = "value"
