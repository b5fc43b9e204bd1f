"""What the log has for a share group: aborted batches are told apart, and only what is wanted is cut out."""

from __future__ import annotations

import struct

from ottla.records.markers import Marker, encode_marker
from ottla.records.records import Record, encode_batch
from ottla.replication.share.in_flight import Acquired, LogBatch
from ottla.replication.share.reading import BATCHES_MAX, Reading

A, B = 7, 8


def batch(base: int, count: int, producer: int = -1) -> bytes:
    records = [Record(None, b"v", 1000)] * count
    return encode_batch(records, base_offset=base, producer_id=producer, transactional=producer >= 0)


def marker(base: int, producer: int, *, committed: bool) -> bytes:
    return struct.pack(">q", base) + encode_marker(Marker(producer, 0, 0, committed), 1000)[8:]


def test_batches_of_aborted_transactions_are_told_apart() -> None:
    data = b"".join(
        (
            batch(0, 2, A),
            batch(2, 2, B),
            batch(4, 1),
            marker(5, A, committed=False),
            batch(6, 1, A),
            marker(7, B, committed=False),
            marker(8, A, committed=True),
        )
    )
    reading = Reading(data, [(B, 2), (A, 0)])
    assert list(reading) == [
        LogBatch(0, 1, is_aborted=True),
        LogBatch(2, 3, is_aborted=True),
        LogBatch(4, 4),
        LogBatch(5, 5),
        LogBatch(6, 6),
        LogBatch(7, 7),
        LogBatch(8, 8),
    ]


def test_only_so_many_batches_are_looked_at_in_one_go() -> None:
    data = b"".join(batch(offset, 1, A) for offset in range(BATCHES_MAX + 1))
    assert len(list(Reading(data, [(A, 0)]))) == BATCHES_MAX


def test_whole_batches_are_cut_out_around_what_was_acquired() -> None:
    parts = [batch(0, 5), batch(5, 5), batch(10, 5), batch(15, 5)]
    reading = Reading(b"".join(parts), ())
    assert len(list(reading)) == 4
    assert bytes(reading.records([Acquired(6, 7, 1), Acquired(12, 12, 1)])) == parts[1] + parts[2]
    assert bytes(reading.records([Acquired(0, 0, 1)])) == parts[0]
