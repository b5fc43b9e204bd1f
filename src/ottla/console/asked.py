"""What a request asks for: a dataclass, read from path, query and body, and described as a schema.

Fields are annotated with what they mean: `limit: Annotated[int, "how many"] = 50`.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from ottla.console.problems import Refused

T = TypeVar("T")

_INT_MAX = (1 << 63) - 1
"""More than that the protocol cannot say."""
_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off", ""}


class Secret:
    """Marks a field that must not be written down."""


class Field(NamedTuple):
    name: str
    kind: Any
    doc: str
    required: bool
    default: Any
    secret: bool


def fields_of(asked: Any) -> tuple[Field, ...]:
    hints = get_type_hints(asked, include_extras=True)
    found = []
    for field in dataclasses.fields(asked):
        kind: Any = hints[field.name]
        notes: list[Any] = []
        if get_origin(kind) is Annotated:
            kind, *notes = get_args(kind)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        required = default is dataclasses.MISSING
        doc = next((note for note in notes if isinstance(note, str)), "")
        found.append(Field(field.name, kind, doc, required, None if required else default, Secret in notes))
    return tuple(found)


def read_asked(asked: type[T], texts: Mapping[str, str], body: Mapping[str, Any]) -> T:
    """`texts` are from the path and the query, where everything is text."""
    known = {field.name: field for field in fields_of(asked)}
    for name in (*texts, *body):
        if name not in known:
            there_are = ", ".join(known) or "none"
            raise Refused(f"there is no parameter {name!r}; there are: {there_are}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name in texts:
            values[name] = _read(field, field.kind, texts[name], is_text=True)
        elif name in body:
            values[name] = _read(field, field.kind, body[name], is_text=False)
        elif field.required:
            raise Refused(f"{name} is missing: {field.doc}" if field.doc else f"{name} is missing")
    return asked(**values)


def written_down(asked: Any) -> dict[str, Any]:
    """Without secrets, and without what was left as it is by default."""
    shown = {}
    for field in fields_of(type(asked)):
        value = getattr(asked, field.name)
        if field.secret:
            shown[field.name] = "(not written down)"
        elif field.required or value != field.default:
            shown[field.name] = value
    return shown


def _read(field: Field, kind: Any, value: Any, *, is_text: bool) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None or (is_text and value == "" and str not in parts):
            return None
        [kind] = [part for part in parts if part is not type(None)]
        return _read(field, kind, value, is_text=is_text)
    if origin is Literal:
        if value not in parts:
            raise Refused(f"{field.name} is {value!r}; it must be one of {', '.join(map(str, parts))}")
        return value
    if origin is list:
        items = value.split(",") if is_text else value
        if not isinstance(items, list):
            raise Refused(f"{field.name} must be a list")
        return [_read(field, parts[0], item, is_text=is_text) for item in items if item != ""]
    if origin is dict:
        if not isinstance(value, dict):
            raise Refused(f"{field.name} must be an object")
        return {
            _plain(field, str, key, is_text=is_text): _read(field, parts[1], item, is_text=is_text)
            for key, item in value.items()
        }
    return _plain(field, kind, value, is_text=is_text)


def _plain(field: Field, kind: Any, value: Any, *, is_text: bool) -> Any:
    try:
        if kind is bool:
            if isinstance(value, bool):
                return value
            if is_text and value.lower() in _TRUE | _FALSE:
                return value.lower() in _TRUE
        elif kind is int and not isinstance(value, bool):
            if isinstance(value, int) or (isinstance(value, str) and value.strip()):
                read = int(value)
                if -_INT_MAX <= read <= _INT_MAX:
                    return read
        elif kind is float and not isinstance(value, bool):
            return float(value)
        elif kind is str and isinstance(value, str):
            # Half of a pair of surrogates, which JSON can name, is no text that could be sent.
            value.encode()
            return value
    except (TypeError, ValueError):
        pass
    # Refusals are written down, too.
    said = "not that" if field.secret else f"{value!r}"
    raise Refused(f"{field.name} is {said}; it must be {_NAMES[kind]}")


_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(kind: Any) -> dict[str, Any]:
    """As OpenAPI 3.1 describes values."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        [kept] = [part for part in parts if part is not type(None)]
        inner = schema_of(kept)
        return {**inner, "type": [inner["type"], "null"]} if "type" in inner else inner
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": schema_of(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(parts[1])}
    return {"type": _TYPES[kind]}
