"""The few primitive encodings that the hand-written codecs share."""

from __future__ import annotations

import struct

from ottla.varints import read_uvarint
from ottla.wire.frame import MalformedFrame

_I16 = struct.Struct(">h")


def read_nullable_string(frame: memoryview, at: int) -> tuple[str | None, int]:
    length = _I16.unpack_from(frame, at)[0]
    at += 2
    if length <= 0:
        return ("" if length == 0 else None), at
    end = at + length
    if end > len(frame):
        raise MalformedFrame(f"a string of {length} bytes does not fit into the request")
    return str(frame[at:end], "utf-8"), end


def read_compact_string(frame: memoryview, at: int) -> tuple[str | None, int]:
    length, at = read_uvarint(frame, at)
    if length <= 1:
        return ("" if length else None), at
    end = at + length - 1
    if end > len(frame):
        raise MalformedFrame(f"a string of {length - 1} bytes does not fit into the request")
    return str(frame[at:end], "utf-8"), end


def skip_tags(frame: memoryview, at: int) -> int:
    """Position after a section of tagged fields nobody here reads."""
    count = frame[at]
    if count == 0:
        return at + 1
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
        if at > len(frame):
            raise MalformedFrame("a tagged field does not fit into the request")
    return at
