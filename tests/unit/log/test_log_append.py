from __future__ import annotations

import errno

import pytest
from log_kit import DIR, NOW_MS, LogKit, batch, fill, offsets_in, read_all, values_in

from ottla.records.batch import crc_matches, read_header
from ottla.records.records import Record, encode_batch, iter_records
from ottla.wire.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    RecordListTooLarge,
    RecordTooLarge,
    StorageError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)


def test_batches_get_consecutive_offsets_and_the_leader_epoch() -> None:
    log = LogKit().open()
    first = log.append(memoryview(batch(b"a", b"b")), leader_epoch=4)
    second = log.append(memoryview(batch(b"c")), leader_epoch=5)
    assert first == (0, 1, -1, 0, False)
    assert second == (2, 2, -1, 0, False)
    data = log.read(0, 1 << 20, upto=log.next_offset)
    assert offsets_in(data) == [(0, 1), (2, 2)]
    assert values_in(data) == [b"a", b"b", b"c"]
    assert [read_header(data).leader_epoch, log.latest_epoch] == [4, 5]
    assert log.end_offset_for_epoch(4) == (4, 2)
    assert log.end_offset_for_epoch(5) == (5, 3)


def test_one_request_may_hold_several_batches() -> None:
    log = LogKit().open()
    result = log.append(memoryview(batch(b"a") + batch(b"b", b"c")), leader_epoch=0)
    assert (result.base_offset, result.last_offset) == (0, 2)
    assert read_all(log) == [(0, 0), (1, 2)]


def test_the_file_holds_the_batches_with_only_offset_and_epoch_changed() -> None:
    kit = LogKit()
    log = kit.open()
    sent = batch(b"hello", b"world")
    log.append(memoryview(batch(b"x")), leader_epoch=9)
    size = log.size_bytes
    log.append(memoryview(sent), leader_epoch=9)
    stored = kit.content("00000000000000000000.log")[size:]
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[8:12] == sent[8:12]
    assert stored[12:16] == (9).to_bytes(4, "big")
    assert stored[16:] == sent[16:]


def with_header(data: bytes, **changes: int) -> bytes:
    """The batch with other header fields and a CRC that fits them."""
    from crc32c import crc32c

    from ottla.records.batch import HEADER

    header = read_header(data)._replace(**changes)
    body = HEADER.pack(*header)[21:] + data[61:]
    if "crc" not in changes:
        header = header._replace(crc=crc32c(body))
    return HEADER.pack(*header)[:21] + body


GOOD = batch(b"value", b"another")


def claiming(count: int, codec: int = 0) -> bytes:
    return with_header(GOOD, record_count=count, last_offset_delta=count - 1, attributes=codec)


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"", InvalidRecord, "no record batch"),
        (GOOD[:40], CorruptMessage, "40 bytes are too few"),
        (GOOD[:-1], CorruptMessage, "claims"),
        (GOOD + GOOD[:30], CorruptMessage, "30 bytes are too few"),
        (with_header(GOOD, length=20), CorruptMessage, "claims 32 bytes"),
        (with_header(GOOD, magic=1), UnsupportedForMessageFormat, "message format 1"),
        (with_header(GOOD, magic=3), CorruptMessage, "format 3 does not exist"),
        (with_header(GOOD, crc=1), CorruptMessage, "CRC"),
        (with_header(GOOD, attributes=5), UnsupportedCompressionType, "codec 5"),
        (with_header(GOOD, attributes=0x20), InvalidRecord, "control batches"),
        (with_header(GOOD, attributes=0x08), InvalidTimestamp, "LogAppendTime"),
        (with_header(GOOD, base_offset=3), InvalidRecord, "must be 0"),
        (with_header(GOOD, record_count=3), InvalidRecord, "3 records ends with offset delta 1"),
        (with_header(GOOD, record_count=0, last_offset_delta=-1), InvalidRecord, "0 records"),
        (claiming(5), InvalidRecord, "claims 5 records, which cannot be in 28 bytes of codec none"),
        (claiming(2_000_000_000), InvalidRecord, "claims 2000000000 records"),
        (claiming(28 * 1032 // 7 + 1, codec=1), InvalidRecord, "28 bytes of codec gzip"),
        (claiming(28 * 22 // 7 + 1, codec=2), InvalidRecord, "28 bytes of codec snappy"),
        (claiming(28 * 255 // 7 + 1, codec=3), InvalidRecord, "28 bytes of codec lz4"),
        (claiming(2_000_000_000, codec=4), InvalidRecord, "28 bytes of codec zstd"),
        (with_header(GOOD, producer_id=5, producer_epoch=0), InvalidRecord, "sequence -1"),
        (batch(b"x" * 2000), RecordTooLarge, "2071 bytes, max.message.bytes of the topic is 1000"),
    ],
)
def test_bad_batches_are_refused_and_leave_nothing_behind(
    data: bytes, error: type[KafkaError], says: str
) -> None:
    log = LogKit(max_message_bytes=1000).open()
    log.append(memoryview(GOOD), leader_epoch=0)
    before = (log.next_offset, log.size_bytes)
    # The bad one comes last, so that it is known whether the good one before it was written.
    with pytest.raises(error, match=says) as caught:
        log.append(memoryview(GOOD + data if data else data), leader_epoch=0)
    assert "orders-3" in caught.value.message
    assert (log.next_offset, log.size_bytes) == before
    log.append(memoryview(GOOD), leader_epoch=0)
    assert read_all(log) == [(0, 1), (2, 3)]


def test_a_request_larger_than_a_segment_is_refused() -> None:
    log = LogKit(segment_bytes=300).open()
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes"):
        log.append(memoryview(batch(bytes(100)) + batch(bytes(100))), leader_epoch=0)
    assert log.next_offset == 0


def test_timestamps_must_lie_within_the_limits() -> None:
    kit = LogKit(message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=5_000)
    log = kit.open()
    for timestamp in (NOW_MS - 10_000, NOW_MS + 5_000, -1):
        log.append(memoryview(batch(b"", timestamp_ms=timestamp)), leader_epoch=0)
    for timestamp in (NOW_MS - 10_001, NOW_MS + 5_001):
        with pytest.raises(InvalidTimestamp, match=str(timestamp)):
            log.append(memoryview(batch(b"", timestamp_ms=timestamp)), leader_epoch=0)
    assert log.next_offset == 3


def test_log_append_time_replaces_the_timestamp_and_keeps_the_batch_valid() -> None:
    kit = LogKit(message_timestamp_type="LogAppendTime")
    log = kit.open()
    sent = batch(b"a", b"b", timestamp_ms=77, codec=3)
    kit.clock.ms += 5
    result = log.append(memoryview(sent), leader_epoch=2)
    assert result.log_append_time_ms == NOW_MS + 5
    data = bytes(log.read(0, 1000, upto=2))
    header = read_header(data)
    assert crc_matches(data, header.crc)
    assert header.attributes == 0x08 | 3
    assert (header.base_timestamp, header.max_timestamp) == (77, NOW_MS + 5)
    assert [record.timestamp_ms for record in iter_records(data)] == [NOW_MS + 5] * 2
    assert values_in(data) == [b"a", b"b"]


def test_compacted_topics_need_keys() -> None:
    log = LogKit(cleanup_compact=True, cleanup_delete=False).open()
    with pytest.raises(InvalidRecord, match="record 1: Compacted topic cannot accept"):
        log.append(memoryview(encode_batch([Record(b"k", b""), Record(None, b"")])), leader_epoch=0)
    with pytest.raises(InvalidRecord, match="7 bytes are left after the 1 records"):
        garbage = with_header(batch(b"x") + b"garbage", length=len(batch(b"x")) + 7 - 12)
        log.append(memoryview(garbage), leader_epoch=0)
    log.append(memoryview(encode_batch([Record(b"k", b"")], codec=4)), leader_epoch=0)
    log.append(memoryview(encode_batch([Record(None, b"")])), leader_epoch=0, trusted=True)
    assert log.next_offset == 2


def test_the_broker_itself_may_write_control_batches() -> None:
    log = LogKit().open()
    marker = batch(b"", control=True, transactional=True)
    log.append(memoryview(marker), leader_epoch=0, trusted=True)
    assert log.next_offset == 1


def test_a_failed_write_changes_nothing() -> None:
    from ottla.sim.disk import SimDisk

    disk = SimDisk()
    log = LogKit(disk).open()
    fill(log, 3)
    disk.fail("append", errno.ENOSPC, path=DIR)
    with pytest.raises(StorageError, match=r"while appending to /data/orders-3; check the disk"):
        fill(log, 1)
    fill(log, 1)
    assert read_all(log) == [(i, i) for i in range(4)]


# Rolling.


def base_offsets(kit: LogKit) -> list[int]:
    return [int(name[:20]) for name in kit.files() if name.endswith(".log")]


def test_segments_roll_by_size() -> None:
    kit = LogKit(segment_bytes=1000)
    log = kit.open()
    size = len(batch(bytes(100)))
    fill(log, 12)
    per_segment = 1000 // size
    assert base_offsets(kit) == list(range(0, 12, per_segment))
    assert read_all(log) == [(i, i) for i in range(12)]


def test_segments_roll_by_time_between_first_and_new_batch() -> None:
    kit = LogKit(segment_ms=1000)
    log = kit.open()
    for timestamp in (0, 1000, 1001, 1002, 2001, 2002):
        kit.clock.ms = NOW_MS + timestamp
        log.append(memoryview(batch(b"", timestamp_ms=NOW_MS + timestamp)), leader_epoch=0)
    assert base_offsets(kit) == [0, 2, 5]


def test_segments_without_timestamps_roll_by_the_clock() -> None:
    kit = LogKit(segment_ms=1000)
    log = kit.open()
    for elapsed in (0, 1000, 1001):
        kit.clock.ms = NOW_MS + elapsed
        log.append(memoryview(batch(b"", timestamp_ms=-1)), leader_epoch=0)
    assert base_offsets(kit) == [0, 2]


def test_jitter_makes_segments_roll_earlier() -> None:
    kit = LogKit(segment_ms=1000, segment_jitter_ms=900)
    log = kit.open()
    log.append(memoryview(batch(b"", timestamp_ms=NOW_MS)), leader_epoch=0)
    log.append(memoryview(batch(b"", timestamp_ms=NOW_MS + 999)), leader_epoch=0)
    assert base_offsets(kit) == [0, 1]


def test_segments_roll_when_an_index_is_full() -> None:
    kit = LogKit(index_interval_bytes=0, segment_index_bytes=36)
    log = kit.open()
    fill(log, 10)
    # Room for two entries in the time index, the third is kept for sealing; the first batch has none.
    assert base_offsets(kit) == [0, 3, 6, 9]


def test_segments_roll_before_relative_offsets_overflow() -> None:
    kit = LogKit()
    log = kit.open()
    log.append_as_follower(batch(b"a", base_offset=0))
    log.append_as_follower(batch(b"b", base_offset=2**31 - 2))
    log.append_as_follower(batch(b"c", base_offset=2**31 - 1))
    log.append_as_follower(batch(b"d", base_offset=2**33))
    assert base_offsets(kit) == [0, 2**31 - 1, 2**33]
    assert read_all(log) == [(o, o) for o in (0, 2**31 - 2, 2**31 - 1, 2**33)]


def test_new_settings_apply_at_once() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 3)
    log.update_config(LogKit(segment_bytes=200, max_message_bytes=180).config)
    fill(log, 1)
    assert base_offsets(kit) == [0, 3]
    with pytest.raises(RecordTooLarge):
        fill(log, 1, size=200)
