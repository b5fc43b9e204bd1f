"""Which partition one key belongs to, as Kafka's Java client decides. `murmur` does it for whole columns."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF
_POSITIVE = 0x7FFF_FFFF


def key_partition(key: bytes, partition_count: int) -> int:
    return (_murmur2(key) & _POSITIVE) % partition_count


def _murmur2(data: bytes) -> int:
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        mixed = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ mixed
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
