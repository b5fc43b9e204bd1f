from __future__ import annotations

import asyncio

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from log_kit import NOW_MS, LogKit, batch

from ottla.log.timestamps import WALKED_BYTES_MAX
from ottla.log.types import LogClosed
from ottla.records.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, read_header
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
    assert asyncio.run(log.offset_for_timestamp(NOW_MS + target, below)) == expected
    newest = max(entry[0] for entry in model)
    assert asyncio.run(log.max_timestamp_offset()) == next(entry for entry in model if entry[0] == newest)


def test_log_append_time_gives_the_first_record_of_the_batch() -> None:
    kit = LogKit(message_timestamp_type="LogAppendTime")
    log = kit.open()
    for _ in range(3):
        log.append(memoryview(batch(b"a", b"b", timestamp_ms=5)), leader_epoch=0)
        kit.clock.ms += 10
    assert asyncio.run(log.offset_for_timestamp(NOW_MS + 1, 6)) == (NOW_MS + 10, 2, 0)
    assert asyncio.run(log.max_timestamp_offset()) == (NOW_MS + 20, 4, 0)


def test_an_empty_log_and_one_without_timestamps_have_nothing() -> None:
    log = LogKit().open()
    assert asyncio.run(log.offset_for_timestamp(0, 0)) is None
    assert asyncio.run(log.max_timestamp_offset()) is None
    log.append(memoryview(batch(b"", timestamp_ms=-1)), leader_epoch=0)
    assert asyncio.run(log.offset_for_timestamp(0, 1)) is None
    assert asyncio.run(log.max_timestamp_offset()) is None


def test_records_that_cannot_be_read_are_named() -> None:
    kit = LogKit()
    log = kit.open()
    log.append(memoryview(batch(bytes(100), codec=4)), leader_epoch=0)
    log.close()
    kit.flip("00000000000000000000.log", 63)
    with pytest.raises(CorruptMessage, match="topic orders partition 3"):
        asyncio.run(kit.open().offset_for_timestamp(NOW_MS, 1))


def test_what_inflates_too_far_is_found_to_the_batch() -> None:
    log = LogKit(max_message_bytes=1 << 30).open()
    log.append(memoryview(batch(b"before", timestamp_ms=NOW_MS)), leader_epoch=0)
    bomb = [Record(None, bytes(WALKED_BYTES_MAX // 2), NOW_MS + delta) for delta in (10, 20, 15)]
    log.append(memoryview(encode_batch(bomb, codec=1)), leader_epoch=1)
    log.append(memoryview(batch(b"after", timestamp_ms=NOW_MS + 30)), leader_epoch=2)
    assert asyncio.run(log.offset_for_timestamp(NOW_MS, 5)) == (NOW_MS, 0, 0)
    assert asyncio.run(log.offset_for_timestamp(NOW_MS + 15, 5)) == (NOW_MS + 20, 1, 1)
    assert asyncio.run(log.offset_for_timestamp(NOW_MS + 25, 5)) == (NOW_MS + 30, 4, 2)


def test_headers_that_lie_are_not_all_looked_behind() -> None:
    log = LogKit().open()
    lying = bytearray(encode_batch([Record(None, b"v", NOW_MS)]))
    header = read_header(lying)._replace(max_timestamp=NOW_MS + 100)
    lying[:HEADER_BYTES] = HEADER.pack(*header)
    lying[:HEADER_BYTES] = HEADER.pack(*header._replace(crc=crc32c(bytes(lying[ATTRIBUTES_AT:]))))
    for _ in range(20):
        log.append(memoryview(bytes(lying)), leader_epoch=0)
    found = asyncio.run(log.offset_for_timestamp(NOW_MS + 50, 20))
    assert found == (NOW_MS + 100, 8, 0)


def test_a_log_that_is_deleted_during_a_look_up_is_closed() -> None:
    kit = LogKit()
    log = kit.open()
    log.append(memoryview(batch(b"a", timestamp_ms=NOW_MS)), leader_epoch=0)

    async def scenario() -> None:
        looking = asyncio.ensure_future(log.offset_for_timestamp(NOW_MS, 1))
        log.release()
        for name in kit.disk.list_dir(kit.directory):
            kit.disk.remove(f"{kit.directory}/{name}")
        with pytest.raises(LogClosed):
            await looking

    asyncio.run(scenario())
