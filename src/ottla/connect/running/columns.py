"""Converters as work on Spark's columns: no Python object per record, but for those of schema registries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.converters.json import JsonConverter
from ottla.connect.converters.registry import RegistryConverter
from ottla.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Converter
from ottla.connect.running.environment import Converters
from ottla.connect.running.registry_columns import FOUND, WHY, read_values, written_values

UNREADABLE: Final = "unreadable"
CORRUPT: Final = "_ottla_corrupt"
_WHOLE: Final[dict[type[Converter], str]] = {
    ShortConverter: "smallint",
    IntegerConverter: "int",
    LongConverter: "bigint",
}
_BYTES: Final = {"smallint": 2, "int": 4, "bigint": 8}
_KINDS: Final = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}


def written_columns(rows: Any, converters: Converters, given: Mapping[str, str]) -> Any:
    """A source's rows as the columns of a topic; where they name none, the configuration has to."""
    from pyspark.sql import functions as F  # noqa: N812

    names = set(rows.columns)
    if "value" not in names:
        raise ConnectError(f"a source's rows need a column value; these have {', '.join(rows.columns)}")
    chosen = [_written(rows, "value", converters.value, given).alias("value")]
    if "key" in names:
        chosen.append(_written(rows, "key", converters.key, given).alias("key"))
    if "topic" in names:
        chosen.append(F.col("topic"))
    elif "topic" not in given:
        raise ConnectError("a source's rows need a column topic, or its configuration a setting topic")
    chosen += [F.col(name) for name in ("partition", "headers", "timestamp") if name in names]
    return rows.select(*chosen)


def read_columns(rows: Any, converters: Converters, given: Mapping[str, str]) -> Any:
    """A topic's rows as a sink takes them: key and value by their converters, and a column `unreadable`
    that says what is wrong with a row, or is null."""
    from pyspark.sql import functions as F  # noqa: N812

    both = (("key", converters.key), ("value", converters.value))
    wrong = []
    for name, converter in both:
        read, why = _read(name, converter, given)
        rows = rows.withColumn(f"{name}_read", read)
        if why is not None:
            wrong.append(why(F.col(f"{name}_read")))
    rows = rows.withColumn(UNREADABLE, F.coalesce(*wrong, F.lit(None).cast("string")))
    for name, converter in both:
        kept = F.col(f"{name}_read")
        if isinstance(converter, RegistryConverter):
            kept = kept[FOUND]
        elif any(field == CORRUPT for field in getattr(rows.schema[f"{name}_read"].dataType, "names", ())):
            kept = kept.dropFields(CORRUPT)
        rows = rows.withColumn(name, kept).drop(f"{name}_read")
    return rows


def refusing(rows: Any) -> Any:
    """Rows without `unreadable`; the job fails at the first that has something in it, and names it."""
    from pyspark.sql import functions as F  # noqa: N812

    place = F.concat_ws("", F.col("topic"), F.lit("-"), F.col("partition"), F.lit("@"), F.col("offset"))
    told = F.concat(F.lit("UNREADABLE "), place, F.lit(": "), F.col(UNREADABLE))
    kind = rows.schema["offset"].dataType
    checked = F.when(F.col(UNREADABLE).isNull(), F.col("offset")).otherwise(F.raise_error(told).cast(kind))
    # Spark leaves out columns that nobody reads, and with them what they would have refused.
    return rows.where(checked >= 0).drop(UNREADABLE)


def _written(rows: Any, name: str, converter: Converter, given: Mapping[str, str]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(converter, RegistryConverter):
        return written_values(rows, name, converter, given)
    kind, column = rows.schema[name].dataType, F.col(name)
    if isinstance(converter, JsonConverter):
        shown = _as_json(kind, name)
        if converter.config["schemas.enable"]:
            prefix = (
                '{"schema":' + json.dumps(_schema(kind, optional=True), separators=(",", ":")) + ',"payload":'
            )
            shown = F.concat(F.lit(prefix), F.coalesce(shown, F.lit("null")), F.lit("}"))
        return F.when(column.isNotNull(), shown).cast("binary")
    if isinstance(converter, StringConverter):
        return _text(kind, name).cast("binary")
    if isinstance(converter, ByteArrayConverter):
        if kind.simpleString() not in {"binary", "string"}:
            raise ConnectError(
                f"the column {name} is of type {kind.simpleString()}, and ByteArrayConverter takes bytes"
            )
        return column.cast("binary")
    if isinstance(converter, BooleanConverter):
        return F.when(column, F.lit(b"\1")).when(~column, F.lit(b"\0"))
    whole = _WHOLE.get(type(converter))
    if whole is not None:
        # Spark's bytes of a whole number are big-endian, as Kafka's are.
        return column.cast(whole).cast("binary")
    raise ConnectError(f"{type(converter).__name__} cannot be used on Spark")


def _read(
    name: str, converter: Converter, given: Mapping[str, str]
) -> tuple[Any, Callable[[Any], Any] | None]:
    """The column, and what tells of it why it could not be read, which is null where it could."""
    from pyspark.sql import functions as F  # noqa: N812

    column, by = F.col(name), type(converter).__name__

    def unless(is_wrong: Callable[[Any], Any], wanted: str = f"what {by} reads") -> Callable[[Any], Any]:
        return lambda found: F.when(is_wrong(found), F.lit(f"the {name} is not {wanted}"))

    if isinstance(converter, RegistryConverter):
        told = F.lit(f"the {name} is not what {by} reads: ")
        return read_values(column, name, converter, given), lambda found: F.concat(told, found[WHY])
    if isinstance(converter, ByteArrayConverter):
        return column, None
    if isinstance(converter, StringConverter):
        return column.cast("string"), unless(lambda found: ~F.is_valid_utf8(found))
    if isinstance(converter, JsonConverter):
        read, is_wrong = _read_json(column, converter, given.get(f"{name}.schema"))
        return read, None if is_wrong is None else unless(is_wrong, f"JSON as {name}.schema has it")
    if isinstance(converter, BooleanConverter):
        return column == F.lit(b"\1"), unless(lambda _: ~column.isin(b"\0", b"\1"))
    whole = _WHOLE.get(type(converter))
    if whole is not None:
        size = _BYTES[whole]
        number = F.when(F.length(column) == size, F.conv(F.hex(column), 16, -10).cast("bigint"))
        bound = 1 << 8 * size - 1
        if size < _BYTES["bigint"]:
            number = F.when(number >= bound, number - 2 * bound).otherwise(number)
        return number.cast(whole), unless(lambda _: F.length(column) != size)
    raise ConnectError(f"{by} cannot be used on Spark")


def _read_json(
    column: Any, converter: JsonConverter, schema: str | None
) -> tuple[Any, Callable[[Any], Any] | None]:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DataType, StructType

    text = column.cast("string")
    if converter.config["schemas.enable"]:
        text = F.get_json_object(text, "$.payload")
    if schema is None:
        return text, None
    kind = DataType.fromDDL(schema)
    if not isinstance(kind, StructType):
        return F.from_json(text, schema), lambda found: found.isNull() & (F.trim(text) != "null")
    read = F.from_json(
        text, StructType([*kind.fields]).add(CORRUPT, "string"), {"columnNameOfCorruptRecord": CORRUPT}
    )
    return read, lambda found: found[CORRUPT].isNotNull()


def _as_json(kind: Any, name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if kind.typeName() in {"struct", "map", "array"}:
        return F.to_json(F.col(name), {"ignoreNullFields": "false"})
    # A value alone is no JSON to Spark: it is taken out of {"v":…}.
    wrapped = F.to_json(F.struct(F.col(name).alias("v")))
    return F.substring(wrapped, F.lit(6), F.length(wrapped) - 6)


def _text(kind: Any, name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if kind.typeName() in {"struct", "map", "array"}:
        return F.to_json(F.col(name))
    return F.base64(F.col(name)) if kind.typeName() == "binary" else F.col(name).cast("string")


def _schema(kind: Any, *, optional: bool) -> dict[str, Any]:
    """The schema of a column as it stands beside values in JSON."""
    match kind.typeName():
        case "struct":
            fields = [
                {**_schema(field.dataType, optional=field.nullable), "field": field.name}
                for field in kind.fields
            ]
            return {"type": "struct", "fields": fields, "optional": optional}
        case "array":
            items = _schema(kind.elementType, optional=kind.containsNull)
            return {"type": "array", "items": items, "optional": optional}
        case "map":
            keys, values = (
                _schema(kind.keyType, optional=False),
                _schema(kind.valueType, optional=kind.valueContainsNull),
            )
            return {"type": "map", "keys": keys, "values": values, "optional": optional}
    name = _KINDS.get(kind.simpleString())
    if name is None:
        raise ConnectError(
            f"a column of type {kind.simpleString()} has no schema in JSON here: cast it, or set "
            "schemas.enable=false"
        )
    return {"type": name, "optional": optional}
