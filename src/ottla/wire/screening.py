"""What kio must not see of a message: array counts that lie, endless names, tagged fields it does not know,
periods longer than it can hold.

kio's native parser reserves room for as many elements as a request announces before it reads the first one:
a frame of thirty bytes that announces thirty billion ends the process, because a failed allocation aborts.
No element is smaller than a byte, so a count larger than the bytes that are left is a lie.

It refuses tagged fields that it does not know. Those are there to be skipped (KIP-482): a newer client, or
broker, may say more than this one understands. They are cut out. Periods are shortened, see `times`.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, TypeAlias

from ottla.varints import read_uvarint, uvarint
from ottla.wire.frame import MalformedFrame
from ottla.wire.times import FURTHEST_MS

Edit: TypeAlias = tuple[int, int, bytes]
"""From, to, and what belongs there instead."""


class Found:
    """What was found on a walk."""

    __slots__ = ("edits", "items")

    def __init__(self) -> None:
        self.items = 0
        self.edits: list[Edit] = []


Walk: TypeAlias = Callable[[memoryview, int, Found], int]
"""(frame, position of a value, what was found so far) → position behind it."""
ITEMS_MAX = 500_000
"""In all lists of a message: nobody needs so many at once, and each takes its moment, and memory."""

STRING_BYTES_MAX = 0x7FFF

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_WIDTHS = {
    "bool": 1,
    "error_code": 2,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "timedelta_i32": 4,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "uuid": 16,
}


def screened(walk: Walk, frame: memoryview, at: int) -> tuple[memoryview, int]:
    """(what kio may see, where the entity begins in it): the frame itself, as a rule."""
    found = Found()
    walk(frame, at, found)
    if not found.edits:
        return frame, at
    frame = memoryview(edited(frame, found.edits, at, len(frame)))
    # Sizes of tagged fields may lie as well: what is left is looked at as it is left.
    left = Found()
    walk(frame, 0, left)
    if left.edits:
        raise MalformedFrame("the sizes of its tagged fields are wrong")
    return frame, 0


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

    def walk_entity(frame: memoryview, at: int, found: Found) -> int:
        for walk in plain:
            at = walk(frame, at, found)
        return _tags(frame, at, tagged, found) if flexible else at

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
    if kind in FURTHEST_MS:
        return _bounded(*FURTHEST_MS[kind])
    if kind in _WIDTHS:
        width = _WIDTHS[kind]
        return lambda frame, at, found: at + width
    if kind == "string":
        return _string(_length(_INT16, flexible))
    return _sized(_length(_INT32, flexible))


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
    def walk(frame: memoryview, at: int, found: Found) -> int:
        length, at = read_length(frame, at)
        return at + max(length, 0)

    return walk


def _string(read_length: Callable[[memoryview, int], tuple[int, int]]) -> Walk:
    """No Kafka takes longer ones, and names are hashed, compared and kept."""

    def walk(frame: memoryview, at: int, found: Found) -> int:
        length, at = read_length(frame, at)
        if length > STRING_BYTES_MAX:
            raise MalformedFrame(f"it has a string of {length} bytes, and {STRING_BYTES_MAX} is the limit")
        return at + max(length, 0)

    return walk


def _bounded(least: int, most: int) -> Walk:
    def walk(frame: memoryview, at: int, found: Found) -> int:
        (value,) = _INT64.unpack_from(frame, at)
        end = at + _INT64.size
        if not least <= value <= most:
            found.edits.append((at, end, _INT64.pack(least if value < least else most)))
        return end

    return walk


def _array(walk_item: Walk, flexible: bool, nullable: bool) -> Walk:
    read_count = _length(_INT32, flexible)

    def walk(frame: memoryview, at: int, found: Found) -> int:
        count, at = read_count(frame, at)
        if count < 0 and not nullable:
            raise MalformedFrame("an array that has to be there is null")
        if count > len(frame) - at:
            raise MalformedFrame(f"it announces {count} items in {max(len(frame) - at, 0)} bytes")
        found.items += max(count, 0)
        if found.items > ITEMS_MAX:
            raise MalformedFrame(f"it names more than {ITEMS_MAX} things; send fewer at a time")
        for _ in range(count):
            at = walk_item(frame, at, found)
            if at > len(frame):
                raise MalformedFrame("it ends in the middle of an array")
        return at

    return walk


def _nullable_entity(walk_entity: Walk) -> Walk:
    return lambda frame, at, found: at + 1 if frame[at] == 0xFF else walk_entity(frame, at + 1, found)


def _tags(frame: memoryview, at: int, known: dict[int, Walk], found: Found) -> int:
    start = at
    count, at = read_uvarint(frame, at)
    kept: list[tuple[int, int, int]] = []
    within = Found()
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if at + size > len(frame):
            raise MalformedFrame("it ends in the middle of a tagged field")
        if tag in known:
            known[tag](frame, at, within)
            kept.append((tag, at, at + size))
        at += size
    found.items += within.items
    if within.edits or len(kept) < count:
        found.edits.append((start, at, _tags_again(frame, kept, within.edits)))
    return at


def _tags_again(frame: memoryview, kept: list[tuple[int, int, int]], within: list[Edit]) -> bytes:
    parts = [uvarint(len(kept))]
    for tag, start, end in kept:
        value = edited(frame, [edit for edit in within if start <= edit[0] < end], start, end)
        parts += uvarint(tag), uvarint(len(value)), value
    return b"".join(parts)


def edited(frame: memoryview, edits: list[Edit], start: int, end: int) -> bytes:
    """This range of the frame, with what the edits say."""
    parts: list[bytes | memoryview] = []
    for cut, goes_on, instead in edits:
        parts += frame[start:cut], instead
        start = goes_on
    parts.append(frame[start:end])
    return b"".join(parts)
