"""Array counts checked before kio sees a request.

kio's native parser reserves room for as many elements as a request announces before it reads the first one:
a frame of thirty bytes that announces thirty billion ends the process, because a failed allocation aborts.
No element is smaller than a byte, so a count larger than the bytes that are left is a lie.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias

from ottla.wire.frame import MalformedFrame
from ottla.wire.primitives import read_uvarint

Walk: TypeAlias = Callable[[memoryview, int], int]
"""(frame, position of a value) → position behind it."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_WIDTHS = {
    "bool": 1,
    "datetime_i64": 8,
    "error_code": 2,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "uuid": 16,
}


@cache
def walker(entity_type: type[Any]) -> Walk:
    """Walks over one entity. MalformedFrame at a lying count, IndexError or struct.error past the end."""
    flexible = entity_type.__flexible__
    hints = typing.get_type_hints(entity_type)
    plain: list[Walk] = []
    tagged: dict[int, Walk] = {}
    for field in fields(entity_type):
        walk = _value(hints[field.name], field.metadata.get("kafka_type"), flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walk
        else:
            plain.append(walk)

    def walk_entity(frame: memoryview, at: int) -> int:
        for walk in plain:
            at = walk(frame, at)
        return _tags(frame, at, tagged) if flexible else at

    return walk_entity


def _value(hint: Any, kind: str | None, flexible: bool) -> Walk:
    nullable = typing.get_origin(hint) in (types.UnionType, typing.Union)
    if nullable:
        (hint,) = (argument for argument in typing.get_args(hint) if argument is not types.NoneType)
    if typing.get_origin(hint) is tuple:
        item = _value(typing.get_args(hint)[0], kind, flexible)
        return _array(item, flexible, nullable)
    if kind is None:
        return _nullable_entity(walker(hint)) if nullable else walker(hint)
    if kind in _WIDTHS:
        width = _WIDTHS[kind]
        return lambda frame, at: at + width
    return _sized(_length(_INT16 if kind == "string" else _INT32, flexible))


def _length(legacy: struct.Struct, flexible: bool) -> Callable[[memoryview, int], tuple[int, int]]:
    """Reads a length or count: (it, position behind it); null reads as -1."""
    if flexible:

        def read_compact(frame: memoryview, at: int) -> tuple[int, int]:
            length, at = read_uvarint(frame, at)
            return length - 1, at

        return read_compact
    unpack, width = legacy.unpack_from, legacy.size
    return lambda frame, at: (unpack(frame, at)[0], at + width)


def _sized(read_length: Callable[[memoryview, int], tuple[int, int]]) -> Walk:
    def walk(frame: memoryview, at: int) -> int:
        length, at = read_length(frame, at)
        return at + max(length, 0)

    return walk


def _array(walk_item: Walk, flexible: bool, nullable: bool) -> Walk:
    read_count = _length(_INT32, flexible)

    def walk(frame: memoryview, at: int) -> int:
        count, at = read_count(frame, at)
        if count < 0 and not nullable:
            raise MalformedFrame("an array that has to be there is null")
        if count > len(frame) - at:
            raise MalformedFrame(f"it announces {count} items in {max(len(frame) - at, 0)} bytes")
        for _ in range(count):
            at = walk_item(frame, at)
            if at > len(frame):
                raise MalformedFrame("it ends in the middle of an array")
        return at

    return walk


def _nullable_entity(walk_entity: Walk) -> Walk:
    return lambda frame, at: at + 1 if frame[at] == 0xFF else walk_entity(frame, at + 1)


def _tags(frame: memoryview, at: int, known: dict[int, Walk]) -> int:
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if tag in known:
            known[tag](frame, at)
        at += size
        if at > len(frame):
            raise MalformedFrame("it ends in the middle of a tagged field")
    return at
