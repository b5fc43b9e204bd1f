"""Replicas side by side: the same batches, as far as they are committed."""

from __future__ import annotations

from ottla.cli.cluster.replica_comparison import compare
from ottla.client.fetch import Fetched
from ottla.records.records import Record, encode_batch
from ottla.wire.errors import ErrorCode


def batch(base_offset: int, text: bytes) -> bytes:
    return encode_batch([Record(b"k", text, 0)], base_offset=base_offset)


def fetched(*batches: bytes, high_watermark: int = 100) -> Fetched:
    return Fetched(ErrorCode.none, high_watermark, high_watermark, 0, (), memoryview(b"".join(batches)))


def test_the_same_is_the_same_as_far_as_the_slowest() -> None:
    first = fetched(batch(5, b"a"), batch(6, b"b"), batch(7, b"c"))
    second = fetched(batch(5, b"a"), batch(6, b"b"))
    compared = compare({1: first, 2: second}, 5)
    assert compared == (7, [], False)
    # What is not committed on one of them is not compared, nor is half a batch.
    early = fetched(batch(5, b"a"), batch(6, b"other"), high_watermark=6)
    assert compare({1: first, 2: early}, 5) == (6, [], False)
    half = fetched(batch(5, b"a"), batch(6, b"b")[:-1])
    assert compare({1: first, 2: half}, 5) == (6, [], False)


def test_other_records_are_told_and_stepped_over() -> None:
    compared = compare({1: fetched(batch(5, b"a")), 3: fetched(batch(5, b"x"))}, 5)
    assert compared.next_offset == 6
    assert "has unmatched checksum at offset 5; replica 1's checksum" in compared.faults[0]


def test_rot_that_leaves_the_checksum_alone_is_told() -> None:
    rotten = bytearray(batch(5, b"abc"))
    rotten[-2] ^= 1
    compared = compare({1: fetched(batch(5, b"abc")), 2: fetched(bytes(rotten))}, 5)
    assert "has different bytes at offset 5 in replica 1 and replica 2" in compared.faults[0]


def test_other_offsets_are_the_end_of_it() -> None:
    compared = compare({1: fetched(batch(5, b"a")), 2: fetched(batch(6, b"a"))}, 5)
    assert compared.is_hopeless
    assert compared.faults == [": replica 1's offset 5 doesn't match replica 2's offset 6"]
