from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from log_kit import NOW_MS, LogKit, batch, fill, offsets_in

from ottla.log.index import WAITING_MAX, OffsetIndex, TimeIndex
from ottla.sim.disk import SimDisk


def disk() -> SimDisk:
    made = SimDisk()
    made.make_dirs("/i")
    return made


ascending = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=60)


@given(steps=ascending, written=st.integers(0, 60), target=st.integers(0, 3500))
def test_offset_lookups_agree_with_a_plain_list(
    steps: list[tuple[int, int]], written: int, target: int
) -> None:
    index = OffsetIndex(disk(), "/i/0.index")
    entries, offset, position = [], 0, 0
    for count, (offset_step, position_step) in enumerate(steps):
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
        index.append(offset, position)
        if count == written:
            index.write()
    assert len(index) == len(entries)
    assert index.floor_offset(target) == max((p for o, p in entries if o <= target), default=0)
    assert index.floor_position(target) == max((p for _, p in entries if p <= target), default=0)
    assert index.next_position(target) == min((p for _, p in entries if p > target), default=None)
    index.truncate(target)
    kept = [(o, p) for o, p in entries if o < target]
    assert len(index) == len(kept)
    index.append(10_000, 10_000)
    index.write()
    reopened = OffsetIndex(index.file._disk, "/i/0.index")
    assert reopened.file.attach()
    assert [reopened.file.entry(slot) for slot in range(len(reopened))] == [*kept, (10_000, 10_000)]


@given(steps=ascending, written=st.integers(0, 60), target=st.integers(0, 3500))
def test_time_lookups_agree_with_a_plain_list(
    steps: list[tuple[int, int]], written: int, target: int
) -> None:
    index = TimeIndex(disk(), "/i/0.timeindex")
    entries, timestamp, offset = [], 0, 0
    for count, (time_step, offset_step) in enumerate(steps):
        timestamp, offset = timestamp + time_step, offset + offset_step
        entries.append((timestamp, offset))
        index.append(timestamp, offset)
        # Not larger than what is known: says nothing new.
        index.append(timestamp, offset + 1)
        if count == written:
            index.write()
    assert len(index) == len(entries)
    assert index.last == (entries[-1] if entries else (-1, 0))
    assert index.floor_timestamp(target) == max((o for t, o in entries if t <= target), default=0)
    index.truncate(target)
    assert len(index) == len([o for _, o in entries if o < target])


def test_index_files_have_apache_kafkas_layout() -> None:
    kit = LogKit(index_interval_bytes=300)
    log = kit.open(start_offset=1000)
    size = len(batch(bytes(100)))
    for timestamp in (5, 9, 7, 7, 20, 11, 12, 13, 14, 15):
        log.append(memoryview(batch(bytes(100), timestamp_ms=NOW_MS + timestamp)), leader_epoch=0)
    log.close()
    name = "00000000000000001000"
    # An entry once more than 300 bytes, two batches, have passed since the last: its batch's last offset,
    # relative to the base, and where it begins.
    expected = b"".join(struct.pack(">ii", slot, slot * size) for slot in (2, 4, 6, 8))
    assert kit.content(f"{name}.index") == expected
    # The largest timestamp so far, with the offset that has it; closing adds nothing that is known.
    assert kit.content(f"{name}.timeindex") == struct.pack(">qi", NOW_MS + 9, 1) + struct.pack(
        ">qi", NOW_MS + 20, 4
    )


def test_sealing_notes_the_largest_timestamp() -> None:
    kit = LogKit()
    log = kit.open()
    for timestamp in (3, 8, 5):
        log.append(memoryview(batch(b"", timestamp_ms=NOW_MS + timestamp)), leader_epoch=0)
    assert kit.content("00000000000000000000.timeindex") == b""
    log.roll()
    assert kit.content("00000000000000000000.timeindex") == struct.pack(">qi", NOW_MS + 8, 1)
    assert kit.content("00000000000000000000.index") == b""


def test_entries_in_memory_are_bounded() -> None:
    kit = LogKit(index_interval_bytes=0)
    log = kit.open()
    fill(log, WAITING_MAX + 10, size=1)
    waiting = log.segments.active.offsets.waiting
    assert waiting < WAITING_MAX
    assert len(kit.content("00000000000000000000.index")) == 8 * (WAITING_MAX + 10 - 1 - waiting)
    for offset in (0, 1, 500, WAITING_MAX, WAITING_MAX + 9):
        assert offsets_in(log.read(offset, 1, upto=log.next_offset)) == [(offset, offset)]


def test_index_files_that_cannot_be_right_are_not_taken_over() -> None:
    made = disk()
    for content in (b"1234567", bytes(16), struct.pack(">iiii", 5, 100, 4, 200)):
        made.replace_file("/i/0.index", content)
        assert not OffsetIndex(made, "/i/0.index").file.attach()
    assert not OffsetIndex(made, "/i/1.index").file.attach()
    made.replace_file("/i/0.index", struct.pack(">iiii", 4, 100, 5, 200))
    assert OffsetIndex(made, "/i/0.index").file.attach()
