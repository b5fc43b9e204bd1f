"""Numbers of variable length: seven bits to a byte, the lowest first, the top bit says that more follow.

A signed number has its sign in the lowest bit. All readers take a position and give back the number and the
position after it; where the data ends inside a number, or the number has more bytes than there can be, they
raise IndexError, as any access behind the end does. Walkers that meet millions of numbers read those of one
or two bytes themselves (`records/checking.py`, `records/filtering.py`): a call takes longer than all the
rest.
"""

from __future__ import annotations

from ottla.runtime.disk import ReadableBuffer

_ONE_BYTE = tuple(bytes([value]) for value in range(128))


class VarintTooLong(IndexError):
    """To whoever reads it, the same as data that ends too early."""


def read_uvarint(data: ReadableBuffer, at: int) -> tuple[int, int]:
    """An unsigned number of 32 bits."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 28:
            raise VarintTooLong("a variable-length integer is longer than five bytes")


def read_uvarlong(data: ReadableBuffer, at: int) -> tuple[int, int]:
    """An unsigned number of 64 bits; or a signed one as it is written."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise VarintTooLong("a variable-length integer is longer than ten bytes")


def read_varint(data: ReadableBuffer, at: int) -> tuple[int, int]:
    """A signed number of up to 64 bits."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    # Not by `read_uvarlong`: a second call per number would make decoding records a fifth slower.
    value = byte & 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise VarintTooLong("a variable-length integer is longer than ten bytes")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def append_varint(target: bytearray, number: int) -> None:
    """A signed number."""
    number = number << 1 if number >= 0 else (~number << 1) | 1
    while number > 0x7F:
        target.append(number & 0x7F | 0x80)
        number >>= 7
    target.append(number)
