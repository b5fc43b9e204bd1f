"""JSON, with the schema beside each value or without any."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar, Final

from ottla.connect.columns import Column
from ottla.connect.converters.common import CONVERTER_TYPE
from ottla.connect.converters.json_columns import joined
from ottla.connect.data import (
    DECIMAL,
    INTEGER_BITS,
    NULL,
    Field,
    Kind,
    Schema,
    SchemaAndValue,
    Struct,
    decode_logical,
    encode_logical,
)
from ottla.connect.errors import DataError
from ottla.connect.plugin import Config, Converter, HeaderConverter
from ottla.connect.records import Header
from ottla.connect.settings.definition import Importance, Setting, Settings, Type
from ottla.connect.settings.validators import one_of

_SCHEMAS: Final = "Schemas"
_SERIALIZATION: Final = "Serialization"
_KINDS: Final = {kind.value: kind for kind in Kind}
_NUMERIC: Final = "NUMERIC"
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")


class JsonConverter(Converter, HeaderConverter):
    settings: ClassVar[Settings] = Settings(
        CONVERTER_TYPE,
        Setting(
            "schemas.enable",
            Type.BOOLEAN,
            True,
            Importance.HIGH,
            'Whether each value stands beside its schema, as {"schema": …, "payload": …}.',
            group=_SCHEMAS,
            order=0,
            width="MEDIUM",
            display="Enable Schemas",
        ),
        Setting(
            "schemas.cache.size",
            Type.INT,
            1000,
            Importance.HIGH,
            "How many schemas are kept in memory.",
            group=_SCHEMAS,
            order=1,
            width="MEDIUM",
            display="Schema Cache Size",
        ),
        Setting(
            "schema.content",
            Type.STRING,
            None,
            Importance.HIGH,
            "The schema of all values that are read, in place of one beside each. For sinks, with "
            "schemas.enable.",
            group=_SCHEMAS,
            order=2,
            width="MEDIUM",
            display="Schema Content",
        ),
        Setting(
            "decimal.format",
            Type.STRING,
            "BASE64",
            Importance.LOW,
            "How decimals are written: BASE64 (exact, of their bytes) or NUMERIC (as JSON numbers).",
            one_of("BASE64", _NUMERIC, any_case=True),
            group=_SERIALIZATION,
            order=0,
            width="MEDIUM",
            display="Decimal Format",
        ),
        Setting(
            "replace.null.with.default",
            Type.BOOLEAN,
            True,
            Importance.LOW,
            "Whether null stands for the default of a field that has one.",
            group=_SERIALIZATION,
            order=1,
            width="MEDIUM",
            display="Replace null with default",
        ),
    )

    def __init__(self, given: Config) -> None:
        super().__init__(given)
        self._has_schemas = self.config["schemas.enable"]
        self._is_numeric = self.config["decimal.format"].upper() == _NUMERIC
        self._replaces_null = self.config["replace.null.with.default"]
        content = self.config["schema.content"]
        self._fixed = read_schema(_loads(content.encode())) if content else None
        cached = lru_cache(maxsize=max(1, self.config["schemas.cache.size"]))
        self._schema_json = cached(self._write_schema)
        self._parsed = cached(_parse_schema)

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is None and value is None:
            return None
        payload = self._write(schema, value)
        if self._has_schemas:
            shown = None if schema is None else self._schema_json(schema)
            return _dumps({"schema": shown, "payload": payload})
        return _dumps(payload)

    def columns_to_bytes(self, topic: str, column: Column) -> Any:
        before, after = b"", b""
        if self._has_schemas:
            before, after = b'{"schema":' + _dumps(self._schema_json(column.schema)) + b',"payload":', b"}"
        return joined(column, lambda schema, value: _dumps(self._write(schema, value)), before, after)

    def from_bytes(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return NULL
        found = _loads(data)
        if not self._has_schemas:
            return SchemaAndValue(None, _plain(found))
        if self._fixed is not None:
            return SchemaAndValue(self._fixed, self._read(self._fixed, found))
        if not isinstance(found, dict) or found.keys() != {"schema", "payload"}:
            raise DataError(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may '
                "not contain "
                "additional fields. If you are trying to deserialize plain JSON data, set "
                "schemas.enable=false "
                "in your converter configuration."
            )
        if found["schema"] is None:
            return SchemaAndValue(None, _plain(found["payload"]))
        schema = self._parsed(json.dumps(found["schema"], sort_keys=True))
        return SchemaAndValue(schema, self._read(schema, found["payload"]))

    def read_as(self, schema: Schema, data: bytes) -> Any:
        """A payload alone, whose schema is known otherwise."""
        return self._read(schema, _loads(data))

    def header_to_bytes(self, topic: str, header: Header) -> bytes | None:
        return self.to_bytes(topic, header.schema, header.value)

    def header_from_bytes(self, topic: str, key: str, data: bytes | None) -> Header:
        return Header(key, *self.from_bytes(topic, data))

    # Writing

    def _write(self, schema: Schema | None, value: Any) -> Any:
        if schema is None:
            return _written_plainly(value)
        if value is None:
            if schema.default is not None and self._replaces_null:
                return self._write(schema, schema.default)
            if schema.optional:
                return None
            raise DataError(
                "Conversion error: null value for field that is required and has no default value"
            )
        if schema.name == DECIMAL and self._is_numeric:
            if not isinstance(value, Decimal):
                raise DataError(f"Invalid type for Decimal: {value!r}")
            return value
        encoded = encode_logical(schema, value)
        match schema.kind:
            case Kind.STRUCT:
                if not isinstance(value, Struct):
                    raise DataError(f"{value!r} is not a Struct, which its schema says it is")
                return self._write_fields(schema, value)
            case Kind.ARRAY:
                return [self._write(schema.values, each) for each in value]
            case Kind.MAP:
                assert schema.keys is not None
                if schema.keys.kind is Kind.STRING and not schema.keys.optional:
                    return {name: self._write(schema.values, each) for name, each in value.items()}
                return [
                    [self._write(schema.keys, name), self._write(schema.values, each)]
                    for name, each in value.items()
                ]
            case Kind.BYTES:
                return base64.b64encode(encoded).decode()
            case kind:
                return _checked(kind, encoded)

    def _write_fields(self, schema: Schema, value: Struct) -> dict[str, Any]:
        written = {}
        for each in schema.fields:
            try:
                written[each.name] = self._write(
                    each.schema, value.get(each.name, default=self._replaces_null)
                )
            except DataError as error:
                raise DataError(f"{each.name}: {error}") from None
        return written

    def _write_schema(self, schema: Schema) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": schema.kind.value}
        if schema.kind is Kind.ARRAY:
            assert schema.values is not None
            shown["items"] = self._write_schema(schema.values)
        elif schema.kind is Kind.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            shown["keys"], shown["values"] = (
                self._write_schema(schema.keys),
                self._write_schema(schema.values),
            )
        elif schema.kind is Kind.STRUCT:
            shown["fields"] = [
                {**self._write_schema(each.schema), "field": each.name} for each in schema.fields
            ]
        shown["optional"] = schema.optional
        for name, value in (("name", schema.name), ("version", schema.version), ("doc", schema.doc)):
            if value is not None:
                shown[name] = value
        if schema.parameters:
            shown["parameters"] = dict(schema.parameters)
        if schema.default is not None:
            shown["default"] = self._write(schema.but(default=None), schema.default)
        return shown

    # Reading

    def _read(self, schema: Schema, value: Any) -> Any:
        return read_value(schema, value, replaces_null=self._replaces_null)


def read_value(schema: Schema, value: Any, *, replaces_null: bool) -> Any:
    if value is None:
        if schema.default is not None and replaces_null:
            return schema.default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.kind.name} field")
    match schema.kind:
        case Kind.STRUCT:
            if not isinstance(value, Mapping):
                raise DataError(f"Structs should be encoded as JSON objects, but found {_node(value)}")
            fields = {
                each.name: read_value(each.schema, value.get(each.name), replaces_null=replaces_null)
                for each in schema.fields
            }
            return Struct(schema, fields)
        case Kind.ARRAY:
            assert schema.values is not None
            if not isinstance(value, list):
                raise DataError(f"Arrays should be encoded as JSON arrays, but found {_node(value)}")
            return [read_value(schema.values, each, replaces_null=replaces_null) for each in value]
        case Kind.MAP:
            return _read_map(schema, value, replaces_null)
        case Kind.BYTES if schema.name == DECIMAL and isinstance(value, int | Decimal):
            return Decimal(value)
        case Kind.BYTES:
            if not isinstance(value, str):
                raise DataError(f"Invalid bytes field: {_node(value)}")
            try:
                return decode_logical(schema, base64.b64decode(value, validate=True))
            except ValueError:
                raise DataError("Invalid bytes field") from None
        case kind:
            return decode_logical(schema, _checked(kind, value))


def _read_map(schema: Schema, value: Any, replaces_null: bool) -> dict[Any, Any]:
    assert schema.keys is not None
    assert schema.values is not None
    values = schema.values
    if schema.keys.kind is Kind.STRING and isinstance(value, Mapping):
        return {name: read_value(values, each, replaces_null=replaces_null) for name, each in value.items()}
    if schema.keys.kind is Kind.STRING:
        raise DataError(
            f"Maps with string fields should be encoded as JSON objects, but found {_node(value)}"
        )
    if not isinstance(value, list) or any(not isinstance(each, list) or len(each) != 2 for each in value):
        raise DataError(
            f"Maps with non-string fields should be encoded as JSON array of tuples, but found {_node(value)}"
        )
    return {
        read_value(schema.keys, name, replaces_null=replaces_null): read_value(
            values, each, replaces_null=replaces_null
        )
        for name, each in value
    }


def read_schema(shown: Any) -> Schema:
    """Raises DataError."""
    if not isinstance(shown, Mapping) or "type" not in shown:
        raise DataError("Schema must contain 'type' field")
    kind = _KINDS.get(shown["type"])
    if kind is None:
        raise DataError(f"Unknown schema type: {shown['type']}")
    schema = Schema(
        kind,
        shown.get("optional") is True,
        None,
        shown.get("name"),
        shown.get("version"),
        shown.get("doc"),
        tuple(sorted((shown.get("parameters") or {}).items())),
    )
    if kind is Kind.ARRAY:
        schema = schema.but(values=read_schema(shown.get("items")))
    elif kind is Kind.MAP:
        schema = schema.but(keys=read_schema(shown.get("keys")), values=read_schema(shown.get("values")))
    elif kind is Kind.STRUCT:
        if not isinstance(shown.get("fields"), list):
            raise DataError('Struct schema\'s "fields" argument is not an array.')
        schema = schema.but(fields=tuple(Field(each["field"], read_schema(each)) for each in shown["fields"]))
    if shown.get("default") is not None:
        schema = schema.but(default=read_value(schema, shown["default"], replaces_null=True))
    return schema


def _parse_schema(text: str) -> Schema:
    return read_schema(json.loads(text, parse_float=Decimal))


def _checked(kind: Kind, value: Any) -> Any:
    """The value, if it is of the kind; whole numbers pass for fractions, as in JSON."""
    match kind:
        case Kind.STRING if isinstance(value, str):
            return value
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.FLOAT32 | Kind.FLOAT64 if isinstance(value, int | float | Decimal) and not isinstance(
            value, bool
        ):
            return float(value)
        case Kind.FLOAT32 | Kind.FLOAT64 if value in _NO_NUMBERS:
            return float(value)
        case _ if kind in INTEGER_BITS and isinstance(value, int) and not isinstance(value, bool):
            bits = INTEGER_BITS[kind]
            if not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise DataError(f"{value} does not fit into {kind.name}")
            return value
        case _:
            raise DataError(f"{value!r} is not of type {kind.name}, which its schema says it is")


def _written_plainly(value: Any) -> Any:
    """Without a schema: what JSON has a form for."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Struct():
            return {name: _written_plainly(each) for name, each in value.as_dict().items()}
        case dict():
            return {str(name): _written_plainly(each) for name, each in value.items()}
        case list() | tuple():
            return [_written_plainly(each) for each in value]
        case _:
            return value


def _plain(value: Any) -> Any:
    """Fractions are read as decimals to keep those of schemas exact; where there is none they are floats."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def _whole(value: Any) -> Any:
    """Halves of characters, which JSON can name and nothing can store, are question marks, as with Java."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            return {_whole(name): _whole(each) for name, each in value.items()}
        case list():
            return [_whole(each) for each in value]
        case _:
            return value


def _node(value: Any) -> str:
    names = {dict: "OBJECT", list: "ARRAY", str: "STRING", bool: "BOOLEAN"}
    return names.get(type(value), "NUMBER")


def _dumps(value: Any) -> bytes:
    try:
        return json.dumps(_numbers(value), separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"the value has no JSON form: {error}") from error


def _numbers(value: Any) -> Any:
    match value:
        case Decimal():
            # What Python's encoder cannot write exactly goes out as the nearest double, which readers
            # make of it anyway.
            return int(value) if value.as_tuple().exponent == 0 else float(value)
        case float() if not math.isfinite(value):
            # JSON has no numbers for these; Java writes the words in quotes, and reads nothing else.
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case dict():
            return {name: _numbers(each) for name, each in value.items()}
        case list():
            return [_numbers(each) for each in value]
        case _:
            return value


def _loads(data: bytes) -> Any:
    try:
        found = json.loads(data, parse_float=Decimal)
        return _whole(found) if _HALF.search(data) else found
    except ValueError as error:
        shown = data[:60].decode(errors="replace")
        raise DataError(f"{shown!r} is not JSON: {error}") from error
