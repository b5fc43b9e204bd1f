"""Records of coordinators, packed by kio. First come two bytes: the type of a key, the version of a value."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from kio.serial import entity_reader, entity_writer

NUMBER = struct.Struct(">h")

_T = TypeVar("_T")


def encoder(entity_type: type[_T], number: int) -> Callable[[_T], bytes]:
    write: Callable[[Any, _T], None] = entity_writer(entity_type)  # type: ignore[type-var]
    head = NUMBER.pack(number)

    def encode(entity: _T) -> bytes:
        buffer = io.BytesIO()
        buffer.write(head)
        write(buffer, entity)
        return buffer.getvalue()

    return encode


def decoder(entity_type: type[_T]) -> Callable[[bytes], _T]:
    read: Any = entity_reader(entity_type)

    def decode(data: bytes) -> _T:
        entity: _T = read(data, NUMBER.size)[0]
        return entity

    return decode
