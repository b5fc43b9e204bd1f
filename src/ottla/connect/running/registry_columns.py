"""Values of a schema registry as columns of Spark, and columns as such values.

What a value is, only its bytes say, so the converters themselves read and write them, in Python and one by
one. The columns of a topic have to be known before: they are those of its newest schema when a micro-batch
begins, or what `key.schema` and `value.schema` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from ottla.connect.column_transforms import SPARK_NAMES
from ottla.connect.converters.registry import RegistryConverter
from ottla.connect.data import (
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    Struct,
    array_of,
    decimal_of,
    encode_logical,
    map_of,
    struct_of,
)
from ottla.connect.errors import ConnectError, DataError

FOUND: Final = "found"
WHY: Final = "why"
# Spark has no time of day: it is milliseconds since midnight there.
_LOGICAL: Final = {DATE: "date", TIMESTAMP: "timestamp", TIME: "int"}
_NAMES: Final = {**SPARK_NAMES, Kind.BYTES: "binary"}
_SCHEMAS: Final = {
    **{name: Schema(kind) for kind, name in _NAMES.items()},
    "date": DATE_SCHEMA,
    "timestamp": TIMESTAMP_SCHEMA,
}
_PYTHON: Final[Mapping[str, type[Any] | tuple[type[Any], ...]]] = {
    "float": float,
    "double": float,
    "boolean": bool,
    "string": str,
    "binary": (bytes, bytearray),
    "timestamp": datetime,
}
_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}


def spark_type(schema: Schema) -> str:
    """As DDL."""
    if schema.name == DECIMAL:
        return f"decimal(38,{schema.scale})"
    if schema.name in _LOGICAL:
        return _LOGICAL[schema.name]
    match schema.kind:
        case Kind.STRUCT:
            inner = (f"`{each.name.replace('`', '``')}`:{spark_type(each.schema)}" for each in schema.fields)
            return f"struct<{','.join(inner)}>"
        case Kind.ARRAY:
            assert schema.values is not None
            return f"array<{spark_type(schema.values)}>"
        case Kind.MAP:
            assert schema.keys is not None and schema.values is not None
            return f"map<{spark_type(schema.keys)},{spark_type(schema.values)}>"
        case kind:
            return _NAMES[kind]


def connect_schema(kind: Any, name: str, *, optional: bool = True) -> Schema:
    """Of a column of Spark. `name` is what structs are called, which Avro wants to know."""
    match kind.typeName():
        case "struct":
            fields = (
                (each.name, connect_schema(each.dataType, f"{name}_{each.name}", optional=each.nullable))
                for each in kind.fields
            )
            return struct_of(*fields, name=name, optional=optional)
        case "array":
            items = connect_schema(kind.elementType, name, optional=kind.containsNull)
            return array_of(items, optional=optional)
        case "map":
            keys = connect_schema(kind.keyType, f"{name}_key", optional=False)
            values = connect_schema(kind.valueType, name, optional=kind.valueContainsNull)
            return map_of(keys, values, optional=optional)
        case "decimal":
            return decimal_of(kind.scale, optional=optional)
    found = _SCHEMAS.get(kind.simpleString())
    if found is None:
        raise ConnectError(
            f"a column of type {kind.simpleString()} cannot be written with a registry: cast it"
        )
    return found.but(optional=optional)


def read_values(column: Any, name: str, converter: RegistryConverter, given: Mapping[str, str]) -> Any:
    """A struct of what is found, and of why it cannot be read."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DataType, StructType

    declared = given.get(f"{name}.schema") or spark_type(_newest(name, converter, given))
    kind = DataType.fromDDL(declared)

    def read(topic: str, data: bytes | None) -> dict[str, Any]:
        try:
            return {FOUND: _shaped(converter.from_bytes(topic, data).value, kind), WHY: None}
        except DataError as error:
            return {FOUND: None, WHY: str(error)}

    whole = StructType().add(FOUND, kind).add(WHY, "string")
    return F.udf(read, whole, useArrow=False)(F.col("topic"), column)


def written_values(rows: Any, name: str, converter: RegistryConverter, given: Mapping[str, str]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    schema = connect_schema(rows.schema[name].dataType, f"connect.{name}")

    def write(topic: str, value: Any) -> bytes | None:
        return converter.to_bytes(topic, schema, _connect_value(schema, value))

    topic = F.col("topic") if "topic" in rows.columns else F.lit(given.get("topic", ""))
    return F.udf(write, "binary", useArrow=False)(topic, F.col(name))


def _newest(name: str, converter: RegistryConverter, given: Mapping[str, str]) -> Schema:
    topics = [each.strip() for each in given.get("topics", "").split(",") if each.strip()]
    if len(topics) != 1:
        raise ConnectError(
            f"{type(converter).__name__} on Spark needs to know the columns of several topics: say them in "
            f"{name}.schema, such as id BIGINT, name STRING, or give each topic a connector of its own"
        )
    try:
        return converter.newest_schema(topics[0])
    except DataError as error:
        raise ConnectError(
            f"the columns of {topics[0]} are not known: {error}. Say them in {name}.schema, or start the "
            "connector once the topic has a schema"
        ) from error


def _shaped(value: Any, kind: Any) -> Any:
    """As Spark's type wants it: fields that a value does not have are null, those that it has besides are
    left out. Raises DataError where it is of another type."""
    if value is None:
        return None
    match kind.typeName():
        case "struct" if isinstance(value, Struct):
            names = {each.name for each in value.schema.fields}
            return {
                each.name: _shaped(value.get(each.name), each.dataType) if each.name in names else None
                for each in kind.fields
            }
        case "array" if isinstance(value, list | tuple):
            return [_shaped(each, kind.elementType) for each in value]
        case "map" if isinstance(value, Mapping):
            return {_shaped(key, kind.keyType): _shaped(each, kind.valueType) for key, each in value.items()}
        case "integer" if isinstance(value, time):
            return encode_logical(TIME_SCHEMA, value)
        case _ if _has_type(value, kind):
            return value
        case _:
            raise DataError(f"{type(value).__name__} is no {kind.simpleString()}, which the column is")


def _has_type(value: Any, kind: Any) -> bool:
    match kind.typeName():
        case "byte" | "short" | "integer" | "long":
            bound = 1 << _BITS[kind.typeName()] - 1
            return isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound
        case "decimal":
            return isinstance(value, Decimal) and value == round(value, kind.scale)
        case "date":
            return isinstance(value, date) and not isinstance(value, datetime)
        case other:
            wanted = _PYTHON.get(other)
            return wanted is not None and isinstance(value, wanted)


def _connect_value(schema: Schema, value: Any) -> Any:
    if value is None:
        return None
    match schema.kind:
        case Kind.STRUCT:
            return Struct(
                schema, {each.name: _connect_value(each.schema, value[each.name]) for each in schema.fields}
            )
        case Kind.ARRAY:
            assert schema.values is not None
            return [_connect_value(schema.values, each) for each in value]
        case Kind.MAP:
            assert schema.keys is not None and schema.values is not None
            return {
                _connect_value(schema.keys, key): _connect_value(schema.values, each)
                for key, each in value.items()
            }
        case Kind.BYTES if schema.name is None:
            return bytes(value)
        case Kind.INT64 if schema.name == TIMESTAMP:
            # Spark gives moments as of the machine's time zone, without saying so.
            return value.astimezone(UTC)
        case _:
            return value
