"""Values as text and back, as headers carry them and sinks of lines show them; the rules are Kafka
Connect's."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from ottla.connect.data import (
    BOOLEAN,
    DATE_SCHEMA,
    FLOAT64,
    NULL,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    SchemaAndValue,
    Struct,
    array_of,
    map_of,
)

_INTEGER: Final = re.compile(r"[+-]?\d+")
_FRACTION: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME: Final = re.compile(r"\d{2}:\d{2}:\d{2}\.\d{3}Z")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")


def to_text(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime():
            moment = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        case date():
            return value.isoformat()
        case time():
            return value.strftime("%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        case Mapping():
            return "{" + ",".join(f"{_quoted(name)}:{_quoted(each)}" for name, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(_quoted(each) for each in value) + "]"
        case _:
            return str(value)


def _quoted(value: Any) -> str:
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else to_text(value)


def from_text(text: str) -> SchemaAndValue:
    """A literal with the schema that suits it best; text that is none of the others stays text."""
    trimmed = text.strip()
    if trimmed == "null":
        return NULL
    if trimmed in {"true", "false"}:
        return SchemaAndValue(BOOLEAN, trimmed == "true")
    if trimmed[:1] in {"[", "{"}:
        try:
            found = json.loads(trimmed, parse_float=float)
        except ValueError:
            return SchemaAndValue(STRING, text)
        return SchemaAndValue(_schema_of(found), found)
    if trimmed[:1] == trimmed[-1:] == '"' and len(trimmed) > 1:
        return SchemaAndValue(STRING, trimmed[1:-1].replace('\\"', '"').replace("\\\\", "\\"))
    return _number_or_moment(trimmed) or SchemaAndValue(STRING, text)


def _number_or_moment(text: str) -> SchemaAndValue | None:
    if _INTEGER.fullmatch(text):
        return _integer(int(text))
    if _FRACTION.fullmatch(text):
        return SchemaAndValue(FLOAT64, float(text))
    if _TIMESTAMP.fullmatch(text):
        return SchemaAndValue(TIMESTAMP_SCHEMA, datetime.fromisoformat(text.replace("Z", "+00:00")))
    if _DATE.fullmatch(text):
        return SchemaAndValue(DATE_SCHEMA, date.fromisoformat(text))
    if _TIME.fullmatch(text):
        return SchemaAndValue(TIME_SCHEMA, time.fromisoformat(text.removesuffix("Z")))
    return None


def _integer(value: int) -> SchemaAndValue:
    for kind, bits in ((Kind.INT8, 8), (Kind.INT16, 16), (Kind.INT32, 32), (Kind.INT64, 64)):
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return SchemaAndValue(Schema(kind), value)
    return SchemaAndValue(FLOAT64, float(value))


def _schema_of(value: Any) -> Schema | None:
    """Of a list or an object: that of its entries, where all have the same."""
    match value:
        case bool():
            return BOOLEAN
        case str():
            return STRING
        case int():
            return _integer(value).schema
        case float() | Decimal():
            return FLOAT64
        case list():
            items = _common(value)
            return None if items is None else array_of(items)
        case dict():
            values = _common(list(value.values()))
            return None if values is None else map_of(STRING, values)
        case Struct():
            return value.schema
        case _:
            return None


def _common(values: list[Any]) -> Schema | None:
    schemas = {_schema_of(each) for each in values}
    if len(schemas) == 1:
        return schemas.pop()
    whole = [Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64]
    if schemas and all(each is not None and each.kind in whole for each in schemas):
        widest = max(whole.index(each.kind) for each in schemas if each is not None)
        return Schema(whole[widest])
    return None
