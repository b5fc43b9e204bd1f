"""Records of coordinators, packed by kio. First come two bytes: the type of a key, the version of a value.

kio takes about a millisecond per type to find out how, so that is done when a record of it first comes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from kio.serial import entity_reader, entity_writer

NUMBER = struct.Struct(">h")

_T = TypeVar("_T")


def encoder(entity_type: type[_T], number: int) -> Callable[[_T], bytes]:
    write: Callable[[Any, _T], None] | None = None
    head = NUMBER.pack(number)

    def encode(entity: _T) -> bytes:
        nonlocal write
        if write is None:
            write = entity_writer(entity_type)  # type: ignore[type-var]
        buffer = io.BytesIO()
        buffer.write(head)
        write(buffer, entity)
        return buffer.getvalue()

    return encode


def decoder(entity_type: type[_T]) -> Callable[[bytes], _T]:
    read: Any = None

    def decode(data: bytes) -> _T:
        nonlocal read
        if read is None:
            read = entity_reader(entity_type)
        entity: _T = read(data, NUMBER.size)[0]
        return entity

    return decode
