"""Schemas of Connect as JSON Schema and back, by the rules of Confluent's JsonSchemaConverter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.data import Field, Kind, Schema
from ottla.connect.errors import DataError

_TYPES: Final = {
    Kind.INT8: "integer",
    Kind.INT16: "integer",
    Kind.INT32: "integer",
    Kind.INT64: "integer",
    Kind.FLOAT32: "number",
    Kind.FLOAT64: "number",
    Kind.BOOLEAN: "boolean",
    Kind.STRING: "string",
    Kind.BYTES: "string",
    Kind.ARRAY: "array",
    Kind.STRUCT: "object",
    Kind.MAP: "object",
}
_CONNECT: Final = {
    **{kind.value: kind for kind in Kind if kind not in {Kind.FLOAT32, Kind.FLOAT64}},
    "float32": Kind.FLOAT32,
    "float64": Kind.FLOAT64,
}
_NAMES: Final = {kind: name for name, kind in _CONNECT.items()}
_DEFAULTS: Final = {
    "integer": Kind.INT64,
    "number": Kind.FLOAT64,
    "boolean": Kind.BOOLEAN,
    "string": Kind.STRING,
}


def to_json_schema(schema: Schema) -> dict[str, Any]:
    made = _made(schema)
    return {"oneOf": [{"type": "null"}, made]} if schema.optional else made


def _made(schema: Schema) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _TYPES[schema.kind]}
    if schema.kind not in {Kind.STRING, Kind.BOOLEAN, Kind.ARRAY, Kind.STRUCT}:
        made["connect.type"] = _NAMES[schema.kind]
    if schema.name is not None:
        made["title"] = schema.name
    if schema.version is not None:
        made["connect.version"] = schema.version
    if schema.parameters:
        made["connect.parameters"] = dict(schema.parameters)
    if schema.doc is not None:
        made["description"] = schema.doc
    if schema.kind is Kind.STRUCT:
        made["properties"] = {
            each.name: {**to_json_schema(each.schema), "connect.index": index}
            for index, each in enumerate(schema.fields)
        }
    elif schema.kind is Kind.ARRAY:
        assert schema.values is not None
        made["items"] = to_json_schema(schema.values)
    elif schema.kind is Kind.MAP:
        assert schema.keys is not None
        assert schema.values is not None
        if schema.keys.kind is Kind.STRING and not schema.keys.optional:
            made["additionalProperties"] = to_json_schema(schema.values)
        else:
            raise DataError("JSON Schema has no maps whose keys are not text")
    return made


def from_json_schema(shown: Any) -> Schema:
    """Raises DataError for what Connect has no schema for: references, and a choice of several types."""
    if not isinstance(shown, Mapping):
        raise DataError(f"{shown!r} is no JSON schema of a value")
    choice = shown.get("oneOf") or shown.get("anyOf")
    if choice is not None:
        return _one_of(choice)
    kind = shown.get("type")
    if isinstance(kind, list):
        return _one_of([{**shown, "type": each} for each in kind])
    named: dict[str, Any] = {
        "name": shown.get("title"),
        "version": shown.get("connect.version"),
        "doc": shown.get("description"),
        "parameters": tuple(sorted((shown.get("connect.parameters") or {}).items())),
    }
    match kind:
        case "object" if "properties" in shown:
            required = set(shown.get("required") or ())
            return Schema(Kind.STRUCT, fields=tuple(_fields(shown["properties"], required)), **named)
        case "object" if isinstance(shown.get("additionalProperties"), Mapping):
            values = from_json_schema(shown["additionalProperties"])
            return Schema(Kind.MAP, keys=Schema(Kind.STRING), values=values, **named)
        case "object":
            return Schema(Kind.STRUCT, **named)
        case "array":
            return Schema(Kind.ARRAY, values=from_json_schema(shown.get("items")), **named)
        case str() if kind in _DEFAULTS:
            return Schema(_CONNECT.get(shown.get("connect.type", ""), _DEFAULTS[kind]), **named)
        case _:
            raise DataError(f"Connect has no schema for {dict(shown)}")


def _fields(properties: Mapping[str, Any], required: set[str]) -> list[Field]:
    """In the order that a writer of Connect's has noted; a field of others may be missing unless required."""
    placed = sorted(properties.items(), key=lambda each: each[1].get("connect.index", len(properties)))
    fields = []
    for name, shown in placed:
        schema = from_json_schema(shown)
        is_ours = "connect.index" in shown
        fields.append(Field(name, schema if is_ours or name in required else schema.but(optional=True)))
    return fields


def _one_of(choice: list[Any]) -> Schema:
    rest = [each for each in choice if not (isinstance(each, Mapping) and each.get("type") == "null")]
    if len(rest) != 1:
        raise DataError(f"Connect has no schema for one of {len(rest)} types: {choice}")
    return from_json_schema(rest[0]).but(optional=len(rest) < len(choice))
