"""The few primitive encodings that the hand-written codecs share."""

from __future__ import annotations

import struct

from ottla.wire.frame import MalformedFrame

_I16 = struct.Struct(">h")
_ONE_BYTE = tuple(bytes([value]) for value in range(128))


def read_uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    """(value, position after it)."""
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 28:
            raise MalformedFrame("a variable-length integer is longer than five bytes")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_nullable_string(frame: memoryview, at: int) -> tuple[str | None, int]:
    length = _I16.unpack_from(frame, at)[0]
    at += 2
    if length < 0:
        return None, at
    end = at + length
    if end > len(frame):
        raise MalformedFrame(f"a string of {length} bytes does not fit into the request")
    return str(frame[at:end], "utf-8"), end


def read_compact_string(frame: memoryview, at: int) -> tuple[str | None, int]:
    length, at = read_uvarint(frame, at)
    if length == 0:
        return None, at
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
