"""Columns of values as JSON texts, the same as of each value by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any, Final

from ottla.connect.columns import Column, Fields, Flat, Same
from ottla.connect.data import DATE, DECIMAL, INTEGER_BITS, TIME, TIMESTAMP, Kind, Schema

_LOGICAL: Final = (DATE, DECIMAL, TIME, TIMESTAMP)
_FIRST_PRINTABLE: Final = 0x20
_QUOTE, _BACKSLASH = b'"\\'

Write = Callable[[Schema, Any], bytes]


def joined(column: Column, write: Write, before: bytes = b"", after: bytes = b"") -> Any:
    """A pa.BinaryArray of texts between `before` and `after`; `write` makes the text of one value."""
    import pyarrow.compute as pc

    from ottla.records.arrow_arrays import binaries_of, binary_scalar

    parts = _merged([before, *_parts(column, column.schema, write), after])
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return binaries_of([parts[0]] * len(column))
    shown = [binary_scalar(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*shown, binary_scalar(b""))


def _merged(parts: list[Any]) -> list[Any]:
    """Text that is the same in all of them is one part."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def _parts(column: Column, schema: Schema, write: Write) -> list[Any]:
    """Bytes that all texts have, and pa.BinaryArrays of those that differ."""
    match column:
        case Same(_, value, _):
            return [write(schema, value)]
        case Fields(_, columns):
            parts: list[Any] = [b"{"]
            for number, (field, each) in enumerate(zip(schema.fields, columns, strict=True)):
                name = json.dumps(field.name, ensure_ascii=False)
                parts += [f"{',' if number else ''}{name}:".encode(), *_parts(each, field.schema, write)]
            return [*parts, b"}"]
        case Flat(_, array) if (texts := _texts(array, schema)) is not None:
            return [texts]
        case _:
            from ottla.records.arrow_arrays import binaries_of

            return [binaries_of([write(schema, value) for value in column.values()])]


def _texts(array: Any, schema: Schema) -> Any:
    """None where each has to be looked at."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla.records.arrow_arrays import binary_scalar

    has_null = bool(array.null_count)
    if schema.name in _LOGICAL or (has_null and (schema.default is not None or not schema.optional)):
        return None
    kind = array.type
    if schema.kind is Kind.STRING and pa.types.is_string(kind):
        texts = _quoted(array)
    elif pa.types.is_signed_integer(kind) and kind.bit_width <= INTEGER_BITS.get(schema.kind, 0):
        texts = array.cast(pa.string()).view(pa.binary())
    elif schema.kind is Kind.BOOLEAN and pa.types.is_boolean(kind):
        texts = pc.if_else(array, binary_scalar(b"true"), binary_scalar(b"false"))
    else:
        return None
    return pc.fill_null(texts, binary_scalar(b"null")) if has_null else texts


def _quoted(array: Any) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla.records.arrow_arrays import binaries_of, binary_scalar

    seen = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    if not bool(((seen < _FIRST_PRINTABLE) | (seen == _QUOTE) | (seen == _BACKSLASH)).any()):
        quote, nothing = binary_scalar(b'"'), binary_scalar(b"")
        return pc.binary_join_element_wise(quote, array.view(pa.binary()), quote, nothing)
    texts = [b"null" if text is None else encode_basestring(text).encode() for text in array.to_pylist()]
    return binaries_of(texts)
