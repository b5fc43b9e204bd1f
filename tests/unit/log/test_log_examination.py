"""Records that are looked at before they are appended: what is refused, corrected, and left to others."""

from __future__ import annotations

import pytest
from log_kit import NOW_MS, LogKit, read_all
from test_log_append import with_header

from ottla.log.examination import TakesLong, corrected, examine, examine_elsewhere
from ottla.records.batch import crc_matches, read_header
from ottla.records.compression import InflatesTooFar
from ottla.records.records import Record, encode_batch
from ottla.runtime.workers import take_slice
from ottla.sim.disk import SimDisk
from ottla.wire.errors import InvalidRecord, InvalidTimestamp, RecordTooLarge

COMPACTED = {"cleanup_compact": True, "cleanup_delete": False}
GARBAGE = with_header(
    encode_batch([Record(b"k", b"v" * 20, NOW_MS)])[:61] + b"\xde\xad\xbe\xef" * 8, length=49 + 32
)


def bomb(codec: int = 1, records: int = 1, value_bytes: int = 10 << 20) -> bytes:
    return encode_batch([Record(b"k", bytes(value_bytes), NOW_MS)] * records, codec=codec)


def test_every_bad_record_is_named_and_a_bad_timestamp_decides() -> None:
    log = LogKit(message_timestamp_before_max_ms=1000, **COMPACTED).open()
    no_key = [Record(None, b"", NOW_MS), Record(b"k", b"", NOW_MS), Record(None, b"", NOW_MS)]
    with pytest.raises(InvalidRecord) as missing:
        log.append(memoryview(encode_batch(no_key)), leader_epoch=0)
    assert [index for index, _ in missing.value.record_errors] == [0, 2]
    assert all("without key" in text for _, text in missing.value.record_errors)
    mixed = [*no_key, Record(b"k", b"", NOW_MS - 1001), Record(None, b"", NOW_MS - 1001)]
    with pytest.raises(InvalidTimestamp) as found:
        log.append(memoryview(encode_batch(mixed)), leader_epoch=0)
    errors = dict(found.value.record_errors)
    assert list(errors) == [0, 2, 3, 4]
    assert str(NOW_MS - 1001) in errors[3]
    assert "without key" in errors[4]
    assert "4 records of the batch were refused" in found.value.message
    assert log.next_offset == 0


def test_records_too_old_are_found_behind_a_young_one() -> None:
    log = LogKit(message_timestamp_before_max_ms=1000).open()
    records = [Record(None, b"", NOW_MS - 5000), Record(None, b"", NOW_MS), Record(None, b"", NOW_MS - 1001)]
    with pytest.raises(InvalidTimestamp) as found:
        log.append(memoryview(encode_batch(records)), leader_epoch=0)
    assert [index for index, _ in found.value.record_errors] == [0, 2]


def test_a_header_that_lies_about_the_future_is_corrected_and_does_not_steer_retention() -> None:
    log = LogKit(message_timestamp_after_max_ms=3_600_000).open()
    lying = with_header(
        encode_batch([Record(None, b"a", NOW_MS), Record(None, b"b", NOW_MS + 3)]), max_timestamp=1 << 60
    )
    log.append(memoryview(lying), leader_epoch=0)
    stored = bytes(log.read(0, 10_000, upto=2))
    header = read_header(stored)
    assert header.max_timestamp == NOW_MS + 3
    assert crc_matches(stored, header.crc)
    assert log.segments.active.largest_timestamp == NOW_MS + 3


def test_a_header_that_lies_is_corrected_wherever_records_are_looked_at() -> None:
    log = LogKit().open()
    lying = with_header(encode_batch([Record(None, b"a", NOW_MS)]), max_timestamp=5)
    log.append(memoryview(lying * 2), leader_epoch=0, walk=True)
    assert log.segments.active.largest_timestamp == NOW_MS
    assert read_all(log) == [(0, 0), (1, 1)]


def test_a_timestamp_that_is_really_out_of_range_is_refused_with_its_record() -> None:
    log = LogKit().open()
    future = NOW_MS + 2 * 3_600_000
    with pytest.raises(InvalidTimestamp) as found:
        log.append(
            memoryview(encode_batch([Record(None, b"", NOW_MS), Record(None, b"", future)])), leader_epoch=0
        )
    assert [index for index, _ in found.value.record_errors] == [1]


def test_garbage_passes_by_its_header_and_not_when_records_are_looked_at() -> None:
    log = LogKit().open()
    with pytest.raises(InvalidRecord, match="too many bytes"):
        log.append(memoryview(GARBAGE), leader_epoch=0, walk=True)
    assert log.next_offset == 0
    log.append(memoryview(GARBAGE), leader_epoch=0)
    assert log.next_offset == 1


@pytest.mark.parametrize(
    "data",
    [
        bomb(),
        bomb(codec=4),
        encode_batch([Record(b"k", b"v", NOW_MS)] * 65, codec=1),
        encode_batch([Record(b"k", b"v", NOW_MS)] * 513),
        encode_batch([Record(b"k", b"v" * 1024, NOW_MS)]) * 17,
        encode_batch([Record(b"k", bytes(100_000), NOW_MS)], codec=4),
    ],
)
def test_what_takes_long_is_left_to_others(data: bytes) -> None:
    log = LogKit(**COMPACTED).open()
    with pytest.raises(TakesLong):
        log.append(memoryview(data), leader_epoch=0)
    assert log.next_offset == 0
    examination = log.examination(walk=False)
    assert examination is not None
    done = take_slice(examine_elsewhere(SimDisk(), data, examination), lambda: 0.0, 1.0, 1 << 40)
    assert done.ended
    assert done.results == [[]]
    log.append(memoryview(corrected(data, done.results[0])), leader_epoch=0, prepared=True)
    assert log.next_offset > 0


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_all_batches_together_inflate_to_no_more_than_allowed(codec: int) -> None:
    log = LogKit(max_message_bytes=100_000, **COMPACTED).open()
    examination = log.examination(walk=False)
    assert examination is not None
    assert examination.inflated_bytes_max == 6_400_000
    one = encode_batch([Record(b"k", bytes(1 << 20), NOW_MS)], codec=codec)
    assert list(examine(one * 6, examination)) != []
    with pytest.raises(InflatesTooFar):
        list(examine(one * 7, examination))
    with pytest.raises(RecordTooLarge, match=r"64 times max\.message\.bytes"):
        list(examine_elsewhere(SimDisk(), one * 7, examination))


def test_recompressing_is_bounded_too() -> None:
    log = LogKit(max_message_bytes=100_000, compression_type="zstd").open()
    log.recompressed(bomb(value_bytes=1 << 20) * 6)
    with pytest.raises(RecordTooLarge, match=r"64 times max\.message\.bytes"):
        log.recompressed(bomb(value_bytes=1 << 20) * 7)
