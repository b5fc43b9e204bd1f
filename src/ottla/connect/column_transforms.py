"""Transforms and predicates as work on Spark's columns: a chain costs no Python object per record.

Each gives what it gives record by record for values with a schema. Types of columns are those of all rows,
so a transform that changes the type cannot have a predicate that lets some rows pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.connect.chain import Chain, Step
from ottla.connect.connector_settings import aliases
from ottla.connect.data import INTEGER_BITS, Kind
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Predicate, Transform
from ottla.connect.plugins import Kind as PluginKind
from ottla.connect.plugins import Plugins
from ottla.connect.transforms.cast import Cast
from ottla.connect.transforms.fields import (
    ExtractField,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    ValueToKey,
)
from ottla.connect.transforms.paths import FieldPath
from ottla.connect.transforms.routing import (
    Filter,
    HasHeaderKey,
    RecordIsTombstone,
    RegexRouter,
    TopicNameMatches,
)
from ottla.connect.transforms.times import TimestampRouter

_NUMBERS: Final = ("byte", "short", "integer", "long", "float", "double", "decimal")
_WHOLE: Final = ("byte", "short", "integer", "long")
SPARK_NAMES: Final = {
    Kind.INT8: "tinyint",
    Kind.INT16: "smallint",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "string",
}
_PATTERN: Final = re.compile(r"[yMdHms\W_]*")
_LONG_MAX: Final = (1 << 63) - 1


def transformed_columns(rows: Any, chain: Chain, topic: str | None = None) -> Any:
    """Rows of key, value, topic, partition, timestamp and headers, as far as they are there, after the chain.

    `topic` is that of all rows where they do not say. Raises ConnectError for what does not suit the columns.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not chain:
        return rows
    is_named = "topic" in rows.columns
    if not is_named and topic is not None:
        rows = rows.withColumn("topic", F.lit(topic))
    for step in chain.steps:
        rows = _applied(rows, step)
    is_routed = any(isinstance(step.transform, RegexRouter | TimestampRouter) for step in chain.steps)
    return rows if is_named or is_routed else rows.drop("topic")


def without_columns(plugins: Plugins, given: Mapping[str, str]) -> list[str]:
    """Transforms and predicates of a configuration that there is no such way for."""
    kinds = (
        ("transforms", PluginKind.TRANSFORM, tuple(_TRANSFORMS)),
        ("predicates", PluginKind.PREDICATE, _PREDICATES),
    )
    names = []
    for setting, kind, known in kinds:
        for alias in aliases(given.get(setting)):
            found = plugins.find(given.get(f"{setting}.{alias}.type"), kind)
            if found is not None and not issubclass(found.load(), known):
                names.append(str(given.get(f"{setting}.{alias}.type")))
    return names


def _applied(rows: Any, step: Step) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    meant = None if step.predicate is None else _is_meant(rows, step.predicate, negated=step.is_negated)
    if isinstance(step.transform, Filter):
        return rows.where(F.lit(False) if meant is None else ~meant)
    for kind, change in _TRANSFORMS.items():
        if isinstance(step.transform, kind):
            name, column = change(step.transform, rows)
            break
    else:
        raise ConnectError(f"{type(step.transform).__name__} cannot be used on Spark")
    if meant is None:
        return rows.withColumn(name, column)
    before = rows.schema[name].dataType if name in rows.columns else None
    changed = rows.withColumn(name, column)
    if changed.schema[name].dataType != before:
        raise ConnectError(
            f"{type(step.transform).__name__} with a predicate would give the {name} of some rows another "
            "type, which columns of Spark cannot have: leave out the predicate, or filter"
        )
    return rows.withColumn(name, F.when(meant, column).otherwise(F.col(name)))


def _is_meant(rows: Any, predicate: Predicate, *, negated: bool) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    match predicate:
        case RecordIsTombstone():
            found = F.col("value").isNull()
        case TopicNameMatches():
            found = F.col("topic").rlike(_whole_text(predicate.config["pattern"]))
        case HasHeaderKey():
            wanted = predicate.config["name"]
            has_headers = "headers" in rows.columns
            found = (
                F.exists("headers", lambda header: header["key"] == wanted) if has_headers else F.lit(False)
            )
            found = F.coalesce(found, F.lit(False))
        case _:
            raise ConnectError(f"{type(predicate).__name__} cannot be used on Spark")
    return ~found if negated else found


def _whole_text(pattern: str) -> str:
    return f"^(?:{pattern})$"


# What each does: the column that changes, and what it becomes


def _struct(rows: Any, name: str, what: str) -> Any:
    """The type of a column that has fields."""
    kind = rows.schema[name].dataType if name in rows.columns else None
    if kind is None or kind.typeName() != "struct":
        shown = "is not there" if kind is None else f"is {kind.simpleString()}"
        raise ConnectError(
            f"{what} needs fields, and the {name} {shown}: give {name}.schema, or use HoistField before"
        )
    return kind


def _kept(name: str, fields: list[Any]) -> Any:
    """A struct of the fields where there was one."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(F.col(name).isNotNull(), F.struct(*fields))


def _or_error(is_fine: Any, column: Any, message: Any, target: str | None = None) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    failure = F.raise_error(message)
    return F.when(is_fine, column).otherwise(failure if target is None else failure.cast(target))


def _insert(transform: InsertField[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    part = transform.part
    kind = _struct(rows, part, "InsertField")
    if "offset" in transform.inserted and "offset" not in rows.columns:
        raise ConnectError("InsertField: offset.field is for sinks; a source has no offset yet")
    nothing = {"topic": "string", "partition": "int", "timestamp": "timestamp"}
    added = []
    for name, inserted in transform.inserted.items():
        if name == "static":
            column = F.lit(transform.config["static.value"])
        elif name in rows.columns:
            column = F.col(name)
        else:
            column = F.lit(None).cast(nothing[name])
        added.append(column.alias(inserted.name))
    if twice := {field.name for field in transform.inserted.values()} & set(kind.names):
        raise ConnectError(f"InsertField: the {part} has a field {sorted(twice)[0]} already")
    return part, _kept(part, [*(F.col(part)[name].alias(name) for name in kind.names), *added])


def _replace(transform: ReplaceField[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    part = transform.part
    names = [name for name in _struct(rows, part, "ReplaceField").names if transform.keeps(name)]
    if not names:
        raise ConnectError(
            f"ReplaceField leaves no field of the {part}, and Spark has no structs without any"
        )
    return part, _kept(part, [F.col(part)[name].alias(transform.renamed(name)) for name in names])


def _mask(transform: MaskField[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    part = transform.part
    kind = _struct(rows, part, "MaskField")
    fields = []
    for field in kind.fields:
        column = F.col(part)[field.name]
        if field.name in transform.config["fields"]:
            column = F.when(column.isNotNull(), _masked(field, transform.config["replacement"]))
        fields.append(column.alias(field.name))
    told = F.lit("Only Struct objects supported for [mask fields], found: null")
    return part, _or_error(F.col(part).isNotNull(), F.struct(*fields), told)


def _masked(field: Any, replacement: str | None) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    kind = field.dataType.typeName()
    if replacement is not None:
        if kind not in {*_NUMBERS, "string"}:
            raise ConnectError(f"MaskField: {field.name} is {kind}, which takes no replacement")
        return F.lit(replacement).cast(field.dataType)
    empty: dict[str, Any] = {
        "boolean": False,
        "string": "",
        "timestamp": "1970-01-01 00:00:00",
        "date": "1970-01-01",
    }
    if kind in _NUMBERS:
        return F.lit(0).cast(field.dataType)
    if kind == "array":
        return F.array().cast(field.dataType)
    if kind == "map":
        return F.create_map().cast(field.dataType)
    if kind not in empty:
        raise ConnectError(f"MaskField: {field.name} is {kind}, which cannot be masked")
    return F.lit(empty[kind]).cast(field.dataType)


def _extract(transform: ExtractField[Any], rows: Any) -> tuple[str, Any]:
    part = transform.part
    return part, _at(rows, part, transform.path, "ExtractField")


def _at(rows: Any, part: str, path: FieldPath, what: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    kind, column = _struct(rows, part, what), F.col(part)
    for step in path.steps:
        if kind.typeName() != "struct" or step not in kind.names:
            raise ConnectError(f"{what}: the {part} has no field {path.text}")
        kind, column = kind[step].dataType, column[step]
    return column


def _hoist(transform: HoistField[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    return transform.part, F.struct(F.col(transform.part).alias(transform.config["field"]))


def _value_to_key(transform: ValueToKey[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    fields = [_at(rows, "value", path, "ValueToKey").alias(path.text) for path in transform.paths]
    told = F.lit("Only Struct objects supported for [copying fields from value to key]")
    return "key", _or_error(F.col("value").isNotNull(), F.struct(*fields), told)


def _route(transform: RegexRouter[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    pattern = _whole_text(transform.config["regex"])
    replaced = F.regexp_replace("topic", F.lit(pattern), F.lit(transform.config["replacement"]))
    return "topic", F.when(F.col("topic").rlike(pattern), replaced).otherwise(F.col("topic"))


def _route_by_time(transform: TimestampRouter[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    pattern = transform.config["timestamp.format"]
    if _PATTERN.fullmatch(pattern) is None or "'" in pattern:
        raise ConnectError(f"TimestampRouter on Spark: {pattern} has other letters than y, M, d, H, m and s")
    if "timestamp" not in rows.columns:
        raise ConnectError("TimestampRouter needs rows with a column timestamp")
    stamp = F.date_format("timestamp", pattern)
    named = F.replace(F.lit(transform.config["topic.format"]), F.lit("${topic}"), F.col("topic"))
    told = F.concat(F.lit("Timestamp missing on record of topic "), F.col("topic"))
    return "topic", _or_error(
        F.col("timestamp").isNotNull(), F.replace(named, F.lit("${timestamp}"), stamp), told
    )


def _cast(transform: Cast[Any], rows: Any) -> tuple[str, Any]:
    from pyspark.sql import functions as F  # noqa: N812

    part = transform.part
    whole = transform.casts.get(None)
    if whole is not None:
        return part, _cast_one(F.col(part), rows.schema[part].dataType, whole, f"the {part}")
    fields = []
    for field in _struct(rows, part, "Cast").fields:
        column, target = F.col(part)[field.name], transform.casts.get(field.name)
        if target is not None:
            column = _cast_one(column, field.dataType, target, field.name)
        fields.append(column.alias(field.name))
    return part, _kept(part, fields)


def _cast_one(column: Any, kind: Any, target: Kind, name: str) -> Any:
    """By Java's rules: text has to fit, fractions stop at the ends, whole numbers lose what is too high."""
    from pyspark.sql import functions as F  # noqa: N812

    given, wanted = kind.typeName(), SPARK_NAMES[target]
    if given not in {*_NUMBERS, "string", "boolean"}:
        raise ConnectError(f"Cast does not support casting {name} from {given} on Spark")
    told = F.concat(
        F.lit("Value ("), column.cast("string"), F.lit(") was out of range for requested data type")
    )
    if target is Kind.STRING:
        return column.cast("string")
    if target is Kind.BOOLEAN:
        if given == "boolean":
            return column
        return F.lower(column) == "true" if given == "string" else (column >= 1) | (column <= -1)
    if target not in INTEGER_BITS:
        if given != "string":
            return column.cast("double").cast(wanted)
        read = column.try_cast("double")
        return _or_error(column.isNull() | read.isNotNull(), read.cast(wanted), told, wanted)
    if given == "boolean":
        return column.cast("int").cast(wanted)
    if given == "string":
        read = F.when(column.rlike(r"^[+-]?[0-9]+$"), column.try_cast("bigint")).try_cast(wanted)
        return _or_error(column.isNull() | read.isNotNull(), read, told, wanted)
    number = column.cast("bigint") if given in _WHOLE else _stopped(column.cast("double"), target)
    return _wrapped(number, INTEGER_BITS[target]).cast(wanted)


def _stopped(column: Any, target: Kind) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    high = _LONG_MAX if target is Kind.INT64 else (1 << 31) - 1
    return (
        F.when(F.isnan(column), F.lit(0).cast("bigint"))
        .when(column >= float(high), F.lit(high).cast("bigint"))
        .when(column <= float(-high - 1), F.lit(-high).cast("bigint") - 1)
        .otherwise(column.cast("bigint"))
    )


def _wrapped(number: Any, bits: int) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    if bits == INTEGER_BITS[Kind.INT64]:
        return number
    low = number.bitwiseAND(F.lit((1 << bits) - 1).cast("bigint"))
    sign = F.lit(1 << bits - 1).cast("bigint")
    return low.bitwiseXOR(sign) - sign


_TRANSFORMS: Final[dict[type[Transform[Any]], Callable[[Any, Any], tuple[str, Any]]]] = {
    InsertField: _insert,
    ReplaceField: _replace,
    MaskField: _mask,
    ExtractField: _extract,
    HoistField: _hoist,
    ValueToKey: _value_to_key,
    Cast: _cast,
    RegexRouter: _route,
    TimestampRouter: _route_by_time,
    Filter: lambda transform, rows: ("value", rows["value"]),
}
_PREDICATES: Final = (RecordIsTombstone, TopicNameMatches, HasHeaderKey)
