"""Values with their schemas, as converters read them and connectors see them.

Kafka Connect's model in Python's types: a struct is a `Struct`, a map a dict, an array a list, bytes are
bytes. Logical types are Python's own: `Decimal`, `date`, `time` and `datetime` (UTC). A schema of None
means that nothing is known but the value.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ottla.connect.errors import DataError

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1)


class Kind(enum.Enum):
    """Types by the names that JSON schemas give them."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


INTEGER_BITS: Final = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


class Field(NamedTuple):
    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    kind: Kind
    optional: bool = False
    default: Any = field(default=None, compare=False)
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    keys: Schema | None = None
    values: Schema | None = None
    """Of the entries of a map, or the items of an array."""

    def field(self, name: str) -> Field | None:
        return next((each for each in self.fields if each.name == name), None)

    def but(self, **changes: Any) -> Schema:
        return replace(self, **changes)

    @property
    def scale(self) -> int:
        return int(dict(self.parameters).get(SCALE, "0"))


def struct_of(*fields: tuple[str, Schema], name: str | None = None, optional: bool = False) -> Schema:
    return Schema(Kind.STRUCT, optional, name=name, fields=tuple(Field(*each) for each in fields))


def array_of(items: Schema, *, optional: bool = False) -> Schema:
    return Schema(Kind.ARRAY, optional, values=items)


def map_of(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    return Schema(Kind.MAP, optional, keys=keys, values=values)


def decimal_of(scale: int, *, optional: bool = False) -> Schema:
    return Schema(Kind.BYTES, optional, name=DECIMAL, version=1, parameters=((SCALE, str(scale)),))


STRING: Final = Schema(Kind.STRING)
BYTES: Final = Schema(Kind.BYTES)
BOOLEAN: Final = Schema(Kind.BOOLEAN)
INT32: Final = Schema(Kind.INT32)
INT64: Final = Schema(Kind.INT64)
FLOAT64: Final = Schema(Kind.FLOAT64)
DATE_SCHEMA: Final = Schema(Kind.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(Kind.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(Kind.INT64, name=TIMESTAMP, version=1)


class Struct:
    """The fields of a struct schema with their values."""

    __slots__ = ("_values", "schema")

    def __init__(self, schema: Schema, values: Mapping[str, Any] | None = None) -> None:
        self.schema = schema
        self._values: dict[str, Any] = dict(values or {})
        unknown = self._values.keys() - {each.name for each in schema.fields}
        if unknown:
            raise DataError(f"{sorted(unknown)[0]} is not a valid field name")

    def get(self, name: str, *, default: bool = True) -> Any:
        """The value, or the schema's default where there is none unless `default` says otherwise."""
        declared = self.schema.field(name)
        if declared is None:
            raise DataError(f"{name} is not a valid field name")
        value = self._values.get(name)
        return declared.schema.default if value is None and default else value

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def as_dict(self, *, default: bool = True) -> dict[str, Any]:
        return {each.name: self.get(each.name, default=default) for each in self.schema.fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ",".join(f"{name}={value}" for name, value in self.as_dict().items() if value is not None)
        return f"Struct{{{shown}}}"


class SchemaAndValue(NamedTuple):
    schema: Schema | None
    value: Any


NULL: Final = SchemaAndValue(None, None)


def plain(value: Any) -> Any:
    """Without schemas: structs as dicts, all the way down."""
    match value:
        case Struct():
            return {name: plain(each) for name, each in value.as_dict().items()}
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return value


def to_millis(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(milliseconds=1)


def from_millis(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def encode_logical(schema: Schema, value: Any) -> Any:
    """The number or the bytes that stand for a value of a logical type; others stay what they are."""
    match schema.name:
        case _ if value is None:
            return None
        case "org.apache.kafka.connect.data.Decimal":
            return encode_decimal(value, schema.scale)
        case "org.apache.kafka.connect.data.Date" if isinstance(value, date):
            day = value.date() if isinstance(value, datetime) else value
            return (day - EPOCH_DAY).days
        case "org.apache.kafka.connect.data.Time" if isinstance(value, time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return seconds * 1000 + value.microsecond // 1000
        case "org.apache.kafka.connect.data.Timestamp" if isinstance(value, datetime):
            return to_millis(value)
        case _:
            return value


def decode_logical(schema: Schema, value: Any) -> Any:
    match schema.name:
        case _ if value is None:
            return None
        case "org.apache.kafka.connect.data.Decimal" if isinstance(value, bytes):
            return decode_decimal(value, schema.scale)
        case "org.apache.kafka.connect.data.Date" if isinstance(value, int):
            return EPOCH_DAY + timedelta(days=value)
        case "org.apache.kafka.connect.data.Time" if isinstance(value, int):
            return from_millis(value).time()
        case "org.apache.kafka.connect.data.Timestamp" if isinstance(value, int):
            return from_millis(value)
        case _:
            return value


def encode_decimal(value: Any, scale: int) -> bytes:
    """Two's complement of the unscaled number, the fewest bytes that hold it, as Java's BigInteger
    writes it."""
    if not isinstance(value, Decimal):
        raise DataError(f"{value!r} is not a Decimal")
    # Not by arithmetic, which rounds to the digits of the context.
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise DataError(f"{value} is no number")
    whole, shift = int("".join(map(str, digits))), exponent + scale
    unscaled, rest = (whole * 10**shift, 0) if shift >= 0 else divmod(whole, 10**-shift)
    if rest:
        raise DataError(f"{value} has more than {scale} digits after the point, which its schema allows")
    unscaled = int(-unscaled if sign else unscaled)
    length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(length, "big", signed=True)


def decode_decimal(data: bytes, scale: int) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
