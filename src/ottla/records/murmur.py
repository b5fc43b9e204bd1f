"""Which partition a key belongs to, as Kafka's Java client decides: murmur2, for a whole column at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFF_FFFF)


def murmur2(keys: Any) -> npt.NDArray[np.uint32]:
    """Of each key of a pa.BinaryArray; what null keys give means nothing."""
    count = len(keys)
    if count == 0:
        return np.empty(0, np.uint32)
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
    # Four bytes are read at once wherever a key stands, so there must be some behind the last one.
    data = np.zeros(int(offsets[-1] - offsets[0]) + 4, np.uint8)
    if data_buffer is not None:
        data[:-4] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    at = offsets[:-1] - offsets[0]
    lengths = np.diff(offsets)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    blocks = lengths >> 2
    all_rows = slice(None)
    for block in range(int(blocks.max())):
        active: Any = all_rows if int(blocks.min()) > block else np.flatnonzero(blocks > block)
        mixed = words[at[active] + 4 * block] * _M
        mixed ^= mixed >> np.uint32(24)
        mixed *= _M
        hashes[active] = hashes[active] * _M ^ mixed
    left = lengths & 3
    if bool(left.any()):
        rows = np.flatnonzero(left)
        bits = (left[rows] << 3).astype(np.uint32)
        tail = words[at[rows] + (blocks[rows] << 2)] & ((np.uint32(1) << bits) - np.uint32(1))
        hashes[rows] = (hashes[rows] ^ tail) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def key_partitions(keys: Any, partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key."""
    return ((murmur2(keys) & _POSITIVE) % np.uint32(partition_count)).astype(np.int32)
