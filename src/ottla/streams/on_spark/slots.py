"""Slots: which Spark task does the work of which partition.

Spark spreads groups over its tasks by a hash, which puts three of four partitions into one task as likely as
not, and the others wait for it. So a partition is grouped under a number chosen for its hash: with any usual
number of Spark tasks, partitions go round them in turn. The number depends on the partition alone, because
state is found by it.
"""

from __future__ import annotations

from functools import cache

# What all numbers of tasks up to eight divide.
_ROUND = 840
# Room to look for a number within; of so many, some fit for certain.
_ROOM = 1 << 20
_SEED = 42
_WORD = 0xFFFFFFFF


@cache
def slot_of(partition: int) -> int:
    """The number under which a partition is grouped."""
    first = partition * _ROOM
    return next(
        slot for slot in range(first, first + _ROOM) if spark_hash(slot) % _ROUND == partition % _ROUND
    )


def partition_of(slot: int) -> int:
    return slot // _ROOM


def spark_hash(number: int) -> int:
    """What Spark's ``hash`` gives for a bigint: Murmur3 of its lower and upper word."""
    state = _SEED
    for word in (number & _WORD, number >> 32 & _WORD):
        mixed = word * 0xCC9E2D51 & _WORD
        mixed = _rotated(mixed, 15) * 0x1B873593 & _WORD
        state = (_rotated(state ^ mixed, 13) * 5 + 0xE6546B64) & _WORD
    state ^= 8
    state = (state ^ state >> 16) * 0x85EBCA6B & _WORD
    state = (state ^ state >> 13) * 0xC2B2AE35 & _WORD
    state ^= state >> 16
    return state - (1 << 32) if state >> 31 else state


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD
