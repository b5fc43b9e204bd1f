"""Retention, DeleteRecords and truncation."""

from __future__ import annotations

import asyncio

import pytest
from log_kit import NOW_MS, LogKit, batch, fill, read_all

from ottla.sim.disk import SimDisk
from ottla.sim.medium import TailFault
from ottla.wire.errors import OffsetOutOfRange

SIZE = len(batch(bytes(100)))
DAY_MS = 86_400_000


def kit(**config: object) -> LogKit:
    return LogKit(segment_bytes=5 * SIZE, **config)


def log_files(of: LogKit) -> list[int]:
    return [int(name[:20]) for name in of.files() if name.endswith(".log")]


def test_retention_by_time_goes_by_the_largest_timestamp() -> None:
    one = kit(retention_ms=1000)
    log = one.open()
    fill(log, 20, step_ms=100)
    assert log.enforce_retention(NOW_MS + 1400) == 0
    # Segments end with timestamps 400, 900, 1400 and 1900.
    assert log.enforce_retention(NOW_MS + 1401) == 1
    assert (log.start_offset, log_files(one)) == (5, [5, 10, 15])
    assert log.enforce_retention(NOW_MS + 2500) == 2
    assert read_all(log) == [(i, i) for i in range(15, 20)]
    with pytest.raises(OffsetOutOfRange):
        log.read(14, 1, upto=20)


def test_an_active_segment_that_is_too_old_goes_as_well() -> None:
    one = kit(retention_ms=1000)
    log = one.open()
    fill(log, 7)
    assert log.enforce_retention(NOW_MS + DAY_MS) == 2
    assert (log.start_offset, log.next_offset, log.size_bytes) == (7, 7, 0)
    assert log.enforce_retention(NOW_MS + 2 * DAY_MS) == 0
    fill(log, 1)
    assert read_all(log) == [(7, 7)]


def test_retention_by_size() -> None:
    one = kit(retention_bytes=12 * SIZE, retention_ms=-1)
    log = one.open()
    fill(log, 20)
    # Whole segments only, and never below the limit.
    assert log.enforce_retention(NOW_MS + DAY_MS) == 1
    assert log.size_bytes == 15 * SIZE
    fill(log, 2)
    assert log.enforce_retention(NOW_MS + DAY_MS) == 1
    assert log.start_offset == 10


def test_nothing_beyond_the_high_watermark_is_deleted() -> None:
    log = kit(retention_ms=0).open()
    fill(log, 20)
    assert log.enforce_retention(NOW_MS + DAY_MS, upto=12) == 2
    assert log.start_offset == 10


def test_compacted_topics_keep_everything_above_the_start() -> None:
    log = kit(retention_ms=0, cleanup_delete=False, cleanup_compact=True).open()
    fill(log, 20)
    assert log.enforce_retention(NOW_MS + DAY_MS) == 0
    log.delete_records_before(11)
    assert log.enforce_retention(NOW_MS) == 2
    assert (log.start_offset, log.segments[0].base_offset) == (11, 10)


def test_records_without_timestamps_count_from_the_creation_of_their_segment() -> None:
    one = kit(retention_ms=1000)
    log = one.open()
    log.append(memoryview(batch(b"", timestamp_ms=-1)), leader_epoch=0)
    assert log.enforce_retention(NOW_MS + 1000) == 0
    assert log.enforce_retention(NOW_MS + 1001) == 1


def test_deleting_records_moves_the_start() -> None:
    one = kit()
    log = one.open()
    fill(log, 20)
    log.delete_records_before(7)
    assert log.start_offset == 7
    with pytest.raises(OffsetOutOfRange):
        log.read(6, 1, upto=20)
    log.delete_records_before(3)
    assert log.start_offset == 7
    with pytest.raises(OffsetOutOfRange, match="ends at offset 20, before 21"):
        log.delete_records_before(21)
    log.enforce_retention(NOW_MS)
    assert log_files(one) == [5, 10, 15]
    assert read_all(log)[0] == (7, 7)
    log.delete_records_before(20)
    log.enforce_retention(NOW_MS)
    assert (log.start_offset, log_files(one)) == (20, [15])


def test_epochs_follow_the_start() -> None:
    log = kit().open()
    for epoch in (0, 1, 3):
        for _ in range(4):
            log.append(memoryview(batch(b"")), leader_epoch=epoch)
    log.delete_records_before(6)
    assert log.epochs.entries == [(1, 6), (3, 8)]
    assert log.end_offset_for_epoch(0) == (0, 6)
    assert log.epoch_at(5) == -1


def test_deleted_segments_are_renamed_first_and_removed_later() -> None:
    one = kit(retention_ms=0, file_delete_delay_ms=60_000)
    log = one.open()
    fill(log, 20)
    log.enforce_retention(NOW_MS + DAY_MS, upto=10)
    deleted = [name for name in one.files() if name.endswith(".deleted")]
    assert sorted(deleted) == [
        f"{base:020d}.{suffix}.deleted"
        for base, suffixes in (
            (0, ("index", "log", "timeindex")),
            (5, ("index", "log", "snapshot", "timeindex")),
        )
        for suffix in suffixes
    ]
    assert log.files.removal.take_due(NOW_MS + 59_999) == ([], [])
    files, _ = log.files.removal.take_due(NOW_MS + 60_000)
    log.files.removal.remove(files, [])
    assert not [name for name in one.files() if name.endswith(".deleted")]
    assert read_all(log) == [(i, i) for i in range(10, 20)]


# Truncation.


@pytest.mark.parametrize("offset", [0, 3, 5, 7, 10, 14, 19])
def test_truncation_drops_what_is_at_and_after_the_offset(offset: int) -> None:
    one = kit(index_interval_bytes=200)
    log = one.open()
    fill(log, 20)
    log.truncate_to(offset)
    assert (log.next_offset, log.recovery_point) == (offset, 0)
    assert read_all(log) == [(i, i) for i in range(offset)]
    fill(log, 8)
    assert read_all(log) == [(i, i) for i in range(offset + 8)]
    reopened = one.open(clean=False)
    assert reopened.next_offset == offset + 8
    for at in range(offset + 8):
        assert reopened.read(at, 1, upto=offset + 8)


def test_truncating_beyond_the_end_only_drops_an_epoch_without_records() -> None:
    log = kit().open()
    fill(log, 5)
    log.epochs.assign(9, 5)
    log.truncate_to(5)
    assert log.epochs.entries == [(1, 0)]
    assert log.next_offset == 5


def test_truncating_before_the_start_begins_anew() -> None:
    one = kit(retention_ms=0)
    log = one.open()
    fill(log, 20)
    log.enforce_retention(NOW_MS + DAY_MS, upto=10)
    log.truncate_to(4)
    assert (log.start_offset, log.next_offset, log_files(one)) == (4, 4, [4])
    fill(log, 1)
    assert read_all(log) == [(4, 4)]


def test_truncation_takes_producers_epochs_and_timestamps_back() -> None:
    one = kit()
    log = one.open()
    for index in range(12):
        data = batch(
            bytes(100),
            timestamp_ms=NOW_MS + index,
            producer_id=7,
            producer_epoch=0,
            base_sequence=index,
        )
        log.append(memoryview(data), leader_epoch=index // 4)
    log.truncate_to(7)
    assert log.epochs.entries == [(0, 0), (1, 4)]
    assert log.producers.active[7].next_sequence == 7
    assert log.segments.active.largest_timestamp == NOW_MS + 6
    assert asyncio.run(log.max_timestamp_offset()) == (NOW_MS + 6, 6, 1)


def test_truncation_during_a_flush_does_not_move_the_recovery_point() -> None:
    one = kit()
    log = one.open()
    fill(log, 12)

    class TruncatingOffload:
        async def run(self, function, *args):  # type: ignore[no-untyped-def]
            function(*args)
            log.truncate_to(3)
            fill(log, 6)

        def close(self) -> None: ...

    object.__setattr__(one.runtime, "offload", TruncatingOffload())
    asyncio.run(log.flush())
    assert (log.next_offset, log.recovery_point) == (9, 0)


# Flushing.


def test_flushing_moves_the_recovery_point() -> None:
    one = kit()
    log = one.open()
    fill(log, 12)
    assert log.has_unsynced_segments
    asyncio.run(log.flush(upto=log.segments.active.base_offset))
    assert (log.recovery_point, log.has_unsynced_segments) == (10, False)
    asyncio.run(log.flush())
    assert log.recovery_point == 12


def test_flush_is_due_by_count_and_by_time() -> None:
    one = LogKit(flush_messages=3, flush_ms=500)
    log = one.open()
    one.clock.ms += 1000
    assert not log.flush_is_due
    fill(log, 1)
    assert log.flush_is_due
    asyncio.run(log.flush())
    fill(log, 2)
    assert not log.flush_is_due
    fill(log, 1)
    assert log.flush_is_due


def test_callers_share_one_sync() -> None:
    one = kit()
    log = one.open()
    calls = 0

    class SlowOffload:
        async def run(self, function, *args):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += 1
            await asyncio.sleep(0)
            function(*args)

        def close(self) -> None: ...

    object.__setattr__(one.runtime, "offload", SlowOffload())

    async def commit() -> None:
        fill(log, 1)
        end = log.next_offset
        await log.flush()
        assert log.recovery_point >= end

    async def many() -> None:
        await asyncio.gather(*(commit() for _ in range(4)))

    asyncio.run(many())
    # The first syncs its own record, the second all the others.
    assert calls <= 2


def test_a_full_segment_is_passed_only_with_its_indexes() -> None:
    """Otherwise recovery would trust index files that may never have reached the disk."""
    one = LogKit()
    log = one.open()
    fill(log, 6)
    asyncio.run(log.flush())
    assert (log.recovery_point, log.checkpoint_offset) == (6, 5)
    log.roll()
    assert (log.recovery_point, log.has_unsynced_segments) == (5, True)
    asyncio.run(log.flush(upto=6))
    assert (log.recovery_point, log.checkpoint_offset, log.has_unsynced_segments) == (6, 6, False)


def test_a_segment_that_fills_up_during_a_flush_is_not_passed() -> None:
    one = LogKit()
    log = one.open()
    fill(log, 6)

    class RollingOffload:
        async def run(self, function, *args):  # type: ignore[no-untyped-def]
            function(*args)
            log.roll()
            fill(log, 1)

        def close(self) -> None: ...

    object.__setattr__(one.runtime, "offload", RollingOffload())
    asyncio.run(log.flush())
    assert log.recovery_point == 5


def test_a_log_cut_off_and_grown_to_its_old_length_is_synced_when_closed() -> None:
    disk = SimDisk(faults=[TailFault.LOST])
    one = LogKit(disk)
    log = one.open()
    fill(log, 10)
    log.close()
    log = one.open()
    log.truncate_to(4)
    fill(log, 6, size=50)
    log.close()
    content = one.content("00000000000000000000.log")
    disk.crash()
    assert one.content("00000000000000000000.log") == content
    assert read_all(one.open()) == [(i, i) for i in range(10)]
