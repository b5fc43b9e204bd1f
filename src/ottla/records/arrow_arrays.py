"""Arrow arrays over the memory of others.

`pa.array`, `pa.scalar` and `to_numpy` look for pandas when they are first called: a second, and 60 MB, where
nobody else wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def int32s(numbers: npt.NDArray[np.int32]) -> Any:
    return _numbers(np.ascontiguousarray(numbers, np.int32), pa.int32())


def int64s(numbers: npt.NDArray[np.int64]) -> Any:
    return _numbers(np.ascontiguousarray(numbers, np.int64), pa.int64())


def booleans(flags: npt.NDArray[np.bool_]) -> Any:
    bits = np.packbits(flags, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(bits)])


def numbers_of(array: Any) -> npt.NDArray[Any]:
    """Of an array of signed whole numbers, none of which is null."""
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    every: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], kind)
    return every[array.offset : array.offset + len(array)]


def booleans_of(array: Any) -> npt.NDArray[np.bool_]:
    """Of an array of booleans, none of which is null."""
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    found = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return found[array.offset :].astype(np.bool_)


def binaries(data: Any, lengths: npt.NDArray[Any]) -> Any:
    """What stands behind each other in `data`, cut into lengths; none is null."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def binaries_of(items: Sequence[bytes]) -> Any:
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    return binaries(b"".join(items), lengths)


def binary_scalar(data: bytes) -> Any:
    return binaries_of([data])[0]


def as_text(array: Any) -> Any:
    """A binary array whose bytes are known to be UTF-8, as strings."""
    return array.view(pa.string())


def _numbers(numbers: npt.NDArray[Any], kind: Any) -> Any:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
