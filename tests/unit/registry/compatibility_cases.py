"""What may become of a schema, as data: an old one, a new one, and which of them reads the other's records."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Case(NamedTuple):
    kind: str
    name: str
    old: str
    new: str
    backward: bool
    """The new schema reads what was written with the old one."""
    forward: bool

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def _record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields), **more}


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


_ID = _field("id", "string")
_NOTE = _field("note", "string")
_NODE = _record(_ID, _field("next", ["null", "Order"], default=None))
_COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
_FEWER = {"type": "enum", "name": "Colour", "symbols": ["RED"]}

_AVRO: list[tuple[str, Any, Any, bool, bool]] = [
    ("the same", _record(_ID), _record(_ID), True, True),
    ("a field without default is added", _record(_ID), _record(_ID, _NOTE), False, True),
    ("a field with default is added", _record(_ID), _record(_ID, {**_NOTE, "default": ""}), True, True),
    ("a field with a null default is added", _record(_ID), _record(_ID, _field("n", ["null", "int"], default=None)), True, True),
    ("a field is renamed", _record(_ID), _record(_field("key", "string")), False, False),
    ("a field is renamed and has the old name as alias", _record(_ID), _record(_field("key", "string", aliases=["id"])), True, False),
    ("fields change places", _record(_ID, _NOTE), _record(_NOTE, _ID), True, True),
    ("int becomes long", _record(_field("n", "int")), _record(_field("n", "long")), True, False),
    ("int becomes double", _record(_field("n", "int")), _record(_field("n", "double")), True, False),
    ("long becomes float", _record(_field("n", "long")), _record(_field("n", "float")), True, False),
    ("string becomes bytes", _record(_field("n", "string")), _record(_field("n", "bytes")), True, True),
    ("int becomes string", _record(_field("n", "int")), _record(_field("n", "string")), False, False),
    ("a type becomes a union with it", "string", ["null", "string"], True, False),
    ("a union gets a branch", ["null", "string"], ["null", "string", "int"], True, False),
    ("branches change places", ["null", "string"], ["string", "null"], True, True),
    ("a union of numbers is read as one", ["int", "long"], "double", True, False),
    ("an enum gets a symbol", _FEWER, _COLOUR, True, False),
    ("an enum with a default loses a symbol", _COLOUR, {**_FEWER, "default": "RED"}, True, True),
    ("a fixed grows", {"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, False, False),
    ("items change", {"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True, False),
    ("values change", {"type": "map", "values": "string"}, {"type": "map", "values": "int"}, False, False),
    ("an array becomes a map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, False, False),
    ("a record is renamed", _record(_ID), {**_record(_ID), "name": "Purchase"}, False, False),
    ("a record is renamed with an alias", _record(_ID), {**_record(_ID), "name": "Purchase", "aliases": ["Order"]}, True, False),
    ("a record moves to another namespace", _record(_ID), _record(_ID, namespace="shop"), True, True),
    ("a recursive record stays", _NODE, _NODE, True, True),
    ("a recursive record gets a field without default", _NODE, {**_NODE, "fields": [*_NODE["fields"], _NOTE]}, False, True),
]  # fmt: skip

_OPEN = {"type": "object", "properties": {"id": {"type": "string"}}}
_CLOSED = {**_OPEN, "additionalProperties": False}
_LIST = {
    "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}},
    "$ref": "#/$defs/n",
}


def _with(schema: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {**schema, "properties": {**schema["properties"], **properties}}


_JSON: list[tuple[str, Any, Any, bool, bool]] = [
    ("the same", _OPEN, _OPEN, True, True),
    ("a title changes", {"title": "a", **_OPEN}, {"title": "b", **_OPEN}, True, True),
    ("anything becomes an object", {}, _OPEN, False, True),
    ("nothing becomes an object", False, _OPEN, True, False),
    ("integer becomes number", {"type": "integer"}, {"type": "number"}, True, False),
    ("string becomes number", {"type": "string"}, {"type": "number"}, False, False),
    ("maxLength grows", {"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, True, False),
    ("minLength appears", {"type": "string"}, {"type": "string", "minLength": 1}, False, True),
    ("a pattern changes", {"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, False, False),
    ("minimum falls", {"type": "number", "minimum": 5}, {"type": "number", "minimum": 1}, True, False),
    ("exclusiveMaximum falls", {"type": "number", "exclusiveMaximum": 9}, {"type": "number", "exclusiveMaximum": 5}, False, True),
    ("multipleOf is divided", {"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 2}, True, False),
    ("multipleOf changes", {"type": "number", "multipleOf": 10}, {"type": "number", "multipleOf": 3}, False, False),
    ("an enum grows", {"enum": ["a"]}, {"enum": ["a", "b"]}, True, False),
    ("a constant changes", {"const": 1}, {"const": 2}, False, False),
    ("an excluded type is narrowed", {"not": {"type": "number"}}, {"not": {"type": "integer"}}, True, False),
    ("a property is added to an open object", _OPEN, _with(_OPEN, n={"type": "integer"}), False, True),
    ("a property is added to a closed object", _CLOSED, _with(_CLOSED, n={"type": "integer"}), True, False),
    ("a required property is added to a closed object", _CLOSED, {**_with(_CLOSED, n={"type": "integer"}), "required": ["n"]}, False, False),
    ("a required property with a default is added to a closed object", _CLOSED, {**_with(_CLOSED, n={"type": "integer", "default": 0}), "required": ["n"]}, True, False),
    ("a property becomes required", _OPEN, {**_OPEN, "required": ["id"]}, False, True),
    ("an object is closed", _OPEN, _CLOSED, False, True),
    ("a property fits what others had to be", {**_OPEN, "additionalProperties": {"type": "integer"}}, {**_with(_OPEN, n={"type": "number"}), "additionalProperties": {"type": "integer"}}, True, False),
    ("a dependency appears", _OPEN, {**_OPEN, "dependentRequired": {"id": ["n"]}}, False, True),
    ("items change", {"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": {"type": "number"}}, True, False),
    ("a place is added to an open array", {"type": "array", "prefixItems": [{}], "$schema": "https://json-schema.org/draft/2020-12/schema"}, {"type": "array", "prefixItems": [{}, {"type": "string"}], "$schema": "https://json-schema.org/draft/2020-12/schema"}, False, True),
    ("items become unique", {"type": "array"}, {"type": "array", "uniqueItems": True}, False, True),
    ("a type becomes oneOf", {"type": "string"}, {"oneOf": [{"type": "null"}, {"type": "string"}]}, True, False),
    ("oneOf changes its order", {"oneOf": [{"type": "null"}, {"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, True, True),
    ("allOf gets one more", {"allOf": [{"type": "string"}]}, {"allOf": [{"type": "string"}, {"maxLength": 3}]}, False, True),
    ("oneOf becomes allOf", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"allOf": [{"type": "string"}, {"type": "integer"}]}, False, False),
    ("a type list grows", {"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, True, False),
    ("a schema that refers to itself", _LIST, _LIST, True, True),
]  # fmt: skip


def _proto(body: str, more: str = "") -> str:
    return f'syntax = "proto3"; package shop; {more} message Order {{ {body} }}'


def _proto2(body: str) -> str:
    return f'syntax = "proto2"; message Order {{ {body} }}'


_PROTOBUF: list[tuple[str, str, str, bool, bool]] = [
    ("the same", _proto("string id = 1;"), _proto("string id = 1;"), True, True),
    ("a field is added", _proto("string id = 1;"), _proto("string id = 1; int32 n = 2;"), True, True),
    ("a field is renamed", _proto("string id = 1;"), _proto("string key = 1;"), True, True),
    ("int32 becomes int64", _proto("int32 n = 1;"), _proto("int64 n = 1;"), True, True),
    ("int32 becomes sint32", _proto("int32 n = 1;"), _proto("sint32 n = 1;"), False, False),
    ("string becomes bytes", _proto("string n = 1;"), _proto("bytes n = 1;"), True, True),
    ("string becomes int32", _proto("string n = 1;"), _proto("int32 n = 1;"), False, False),
    ("an enum becomes int32", _proto("E n = 1; enum E { A = 0; }"), _proto("int32 n = 1;"), True, True),
    ("a message becomes string", _proto("M n = 1; message M {}"), _proto("string n = 1; message M {}"), False, False),
    ("a message is added", _proto("string id = 1;"), _proto("string id = 1;") + " message Other {}", True, False),
    ("the package changes", _proto("string id = 1;"), _proto("string id = 1;").replace("shop", "store"), False, False),
    ("a required field is added", _proto2("optional string a = 1;"), _proto2("optional string a = 1; required string b = 2;"), False, False),
    ("a number becomes repeated", _proto2("optional int32 a = 1;"), _proto2("repeated int32 a = 1;"), False, False),
    ("a string becomes repeated", _proto2("optional string a = 1;"), _proto2("repeated string a = 1;"), True, True),
    ("a field moves into a new oneof", _proto("string a = 1;"), _proto("oneof o { string a = 1; int32 b = 2; }"), True, False),
    ("two fields move into a oneof", _proto("string a = 1; int32 b = 2;"), _proto("oneof o { string a = 1; int32 b = 2; }"), False, True),
    ("a oneof loses a member", _proto("oneof o { string a = 1; int32 b = 2; }"), _proto("oneof o { string a = 1; }"), False, True),
    ("a map's values change", _proto("map<string, int32> m = 1;"), _proto("map<string, string> m = 1;"), False, False),
    ("a map becomes a message", _proto("map<string, int32> m = 1;"), _proto("M m = 1; message M {}"), False, False),
    ("an inner message changes", _proto("M m = 1; message M { string a = 1; }"), _proto("M m = 1; message M { int32 a = 1; }"), False, False),
]  # fmt: skip

CASES = [
    *(Case("AVRO", name, json.dumps(old), json.dumps(new), *fits) for name, old, new, *fits in _AVRO),
    *(Case("JSON", name, json.dumps(old), json.dumps(new), *fits) for name, old, new, *fits in _JSON),
    *(Case("PROTOBUF", name, old, new, *fits) for name, old, new, *fits in _PROTOBUF),
]
