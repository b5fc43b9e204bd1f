from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_kit import NOW_MS, LogKit, batch

from ottla.records.records import Record, encode_batch
from ottla.wire.errors import CorruptMessage


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(0, 4)),
        min_size=1,
        max_size=30,
    ),
    target=st.integers(-5, 70),
    start=st.integers(0, 20),
    below=st.integers(0, 100),
    clean=st.booleans(),
)
def test_lookups_agree_with_a_search_through_all_records(
    batches: list[tuple[list[int], int]], target: int, start: int, below: int, clean: bool
) -> None:
    kit = LogKit(segment_bytes=700, index_interval_bytes=150)
    log = kit.open()
    model: list[tuple[int, int, int]] = []
    for epoch, (timestamps, codec) in enumerate(batches):
        for timestamp in timestamps:
            model.append((NOW_MS + timestamp, len(model), epoch))
        records = [Record(None, bytes(30), NOW_MS + timestamp) for timestamp in timestamps]
        log.append(memoryview(encode_batch(records, codec=codec)), leader_epoch=epoch)
    if clean:
        log.close()
        log = kit.open()
    log.delete_records_before(min(start, log.next_offset))
    expected = next(
        (entry for entry in model if entry[0] >= NOW_MS + target and entry[1] >= log.start_offset), None
    )
    if expected is not None and expected[1] >= below:
        expected = None
    assert log.offset_for_timestamp(NOW_MS + target, below) == expected
    newest = max(entry[0] for entry in model)
    assert log.max_timestamp_offset() == next(entry for entry in model if entry[0] == newest)


def test_log_append_time_gives_the_first_record_of_the_batch() -> None:
    kit = LogKit(message_timestamp_type="LogAppendTime")
    log = kit.open()
    for _ in range(3):
        log.append(memoryview(batch(b"a", b"b", timestamp_ms=5)), leader_epoch=0)
        kit.clock.ms += 10
    assert log.offset_for_timestamp(NOW_MS + 1, 6) == (NOW_MS + 10, 2, 0)
    assert log.max_timestamp_offset() == (NOW_MS + 20, 4, 0)


def test_an_empty_log_and_one_without_timestamps_have_nothing() -> None:
    log = LogKit().open()
    assert log.offset_for_timestamp(0, 0) is None
    assert log.max_timestamp_offset() is None
    log.append(memoryview(batch(b"", timestamp_ms=-1)), leader_epoch=0)
    assert log.offset_for_timestamp(0, 1) is None
    assert log.max_timestamp_offset() is None


def test_records_that_cannot_be_read_are_named() -> None:
    kit = LogKit()
    log = kit.open()
    log.append(memoryview(batch(bytes(100), codec=4)), leader_epoch=0)
    log.close()
    kit.flip("00000000000000000000.log", 63)
    with pytest.raises(CorruptMessage, match="topic orders partition 3"):
        kit.open().offset_for_timestamp(NOW_MS, 1)
