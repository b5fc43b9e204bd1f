"""What of a fetch counts, and in which form it is sent on."""

from __future__ import annotations

import pytest

from ottla.client.fetch import Aborted
from ottla.mirror.batches import OldFormat, Piece, merge_small, read_committed
from ottla.records.batch import read_header
from ottla.records.compression import CorruptRecords
from ottla.records.filtering import body_of, select, with_records
from ottla.records.markers import Marker, encode_marker
from ottla.records.records import Record, encode_batch, iter_records


def batch(offset: int, *values: str, producer_id: int = -1, append_time_ms: int | None = None) -> bytes:
    records = [Record(b"k", value.encode(), 1000 + at) for at, value in enumerate(values)]
    return encode_batch(
        records,
        base_offset=offset,
        producer_id=producer_id,
        transactional=producer_id >= 0,
        log_append_time_ms=append_time_ms,
    )


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    data = bytearray(encode_marker(Marker(producer_id, 0, 0, committed), 5))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def values_in(data: memoryview) -> list[str]:
    return [(record.value or b"").decode() for record in iter_records(data)]


def read(
    *batches: bytes, aborted: list[Aborted] | None = None, offset: int = 0
) -> tuple[list[list[str]], int]:
    found = read_committed(memoryview(b"".join(batches)), aborted or [], offset)
    return [values_in(each.data) for each in found.batches], found.next_offset


def test_aborted_batches_and_markers_are_left_out() -> None:
    log = (
        batch(0, "plain"),
        batch(1, "gone", producer_id=7),
        batch(2, "kept", producer_id=8),
        marker(3, 7, committed=False),
        batch(4, "kept later", producer_id=7),
        marker(5, 8, committed=True),
        marker(6, 7, committed=True),
    )
    assert read(*log, aborted=[Aborted(7, 1)]) == ([["plain"], ["kept"], ["kept later"]], 7)


def test_a_batch_that_is_cut_off_waits() -> None:
    whole = batch(0, "a") + batch(1, "b")
    assert read(whole[:-1]) == ([["a"]], 1)
    assert read(whole[:10]) == ([], 0)


def test_what_was_read_before_is_not_read_again() -> None:
    assert read(batch(0, "a", "b", "c"), batch(3, "d"), offset=2) == ([["c"], ["d"]], 4)


def test_a_compacted_batch_is_numbered_anew() -> None:
    data = batch(10, "a", "b", "c", "d")
    header = read_header(data)
    body = body_of(data, header)
    compacted = with_records(header, body, select(body, bytes([1, 0, 1, 1])), None)
    found = read_committed(memoryview(compacted), [], 10)
    (only,) = found.batches
    assert values_in(only.data) == ["a", "c", "d"]
    assert only.pieces == [Piece(10, 0, 1), Piece(12, 1, 2)]
    assert (found.next_offset, only.last_offset) == (14, 13)
    assert read_header(only.data).last_offset_delta == 2


def test_the_time_of_the_broker_becomes_that_of_the_records() -> None:
    found = read_committed(memoryview(batch(0, "a", "b", append_time_ms=777)), [], 0)
    assert [record.timestamp_ms for record in iter_records(found.batches[0].data)] == [777, 777]


def test_a_batch_as_it_is_is_not_copied() -> None:
    data = memoryview(batch(0, "a", "b"))
    assert read_committed(data, [], 0).batches[0].data.obj is data.obj


def test_what_cannot_be_read_is_said() -> None:
    damaged = bytearray(batch(5, "a"))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords, match="offset 5"):
        read(bytes(damaged))
    old = bytearray(batch(5, "a"))
    old[16] = 1
    with pytest.raises(OldFormat, match="message format 1"):
        read(bytes(old))


def test_small_neighbours_become_one() -> None:
    large = [str(number) for number in range(17)]
    log = [
        batch(0, "a"),
        batch(1, "b", "c"),
        marker(3, 9, committed=True),
        batch(4, "d"),
        batch(5, *large),
        batch(22, "e"),
    ]
    found = read_committed(memoryview(b"".join(log)), [], 0)
    merged = merge_small(found.batches)
    assert [values_in(each.data) for each in merged] == [["a", "b", "c", "d"], large, ["e"]]
    assert list(merged[0].pieces) == [Piece(0, 0, 3), Piece(4, 3, 1)]
    assert merged[0].record_count == 4
