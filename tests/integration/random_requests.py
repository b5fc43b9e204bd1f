"""Requests whose structure is valid and whose contents are arbitrary, for any API that kio knows."""

from __future__ import annotations

import datetime
import random
import types
import typing
import uuid
from dataclasses import fields
from functools import cache
from typing import Any

from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from raw_client import encode, framed, header

INTEGER_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32, "uint64": 64}
STRINGS = ("", "a", "topic", "x" * 300, "ünïcode", "../../etc", "a,b;c d")
EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


def random_request(api_key: int, version: int, dice: random.Random) -> bytes:
    """A whole frame."""
    request = _entity(load_request_schema(api_key, version), dice)
    return framed(header(api_key, version) + encode(request))


@cache
def _fields(entity_type: type[Any]) -> list[tuple[str, Any, str | None]]:
    hints = typing.get_type_hints(entity_type)
    return [
        (field.name, hints[field.name], field.metadata.get("kafka_type")) for field in fields(entity_type)
    ]


def _entity(entity_type: type[Any], dice: random.Random) -> Any:
    return entity_type(**{name: _value(hint, kind, dice) for name, hint, kind in _fields(entity_type)})


def _value(hint: Any, kind: str | None, dice: random.Random) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if dice.random() < 0.3:
            return None
        return _value(next(argument for argument in arguments if argument is not types.NoneType), kind, dice)
    if origin is tuple:
        return tuple(_value(arguments[0], kind, dice) for _ in range(dice.choice((0, 0, 1, 1, 2, 5))))
    if kind is None:
        return _entity(hint, dice)
    return _primitive(kind, dice)


def _primitive(kind: str, dice: random.Random) -> Any:
    if kind in INTEGER_BITS:
        largest = (1 << INTEGER_BITS[kind]) - 1
        value = dice.choice((0, 1, 2, 100, largest, dice.randint(0, largest)))
        return value if kind.startswith("u") or dice.random() < 0.7 else -value
    match kind:
        case "string":
            return dice.choice(STRINGS)
        case "bytes" | "records":
            return dice.randbytes(dice.choice((0, 1, 61, 200)))
        case "bool":
            return dice.random() < 0.5
        case "uuid":
            return uuid.UUID(int=dice.getrandbits(128))
        case "float64":
            return dice.random()
        case "error_code":
            return ErrorCode.none
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=dice.choice((0, 1, 100, 2**31 - 1)))
        case "datetime_i64":
            return EPOCH + datetime.timedelta(seconds=dice.choice((0, 1, 2**31)))
    raise AssertionError(f"kio has a new type: {kind}")
