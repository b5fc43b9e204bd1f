"""When a log is due to be compacted, and how far: the rules of Apache Kafka's LogCleanerManager."""

from __future__ import annotations

import pytest
from log_kit import NOW_MS, LogKit

from ottla.log.dirt import Dirt, dirt_of
from ottla.log.log import PartitionLog
from ottla.records.records import Record, encode_batch

HOUR_MS = 3_600_000
EVERYTHING = 10**9


def log_of(*ages_ms: int, **config: object) -> PartitionLog:
    """Segments of the same size, one for each age, and an active one that is empty."""
    log = LogKit(cleanup_compact=True, cleanup_delete=False, **config).open()
    for age_ms in ages_ms:
        log.append(memoryview(encode_batch([Record(b"k", bytes(100), NOW_MS - age_ms)])), 1)
        log.roll()
    return log


def dirt(log: PartitionLog, cleaned: int = 0, readable: int = EVERYTHING) -> Dirt:
    return dirt_of(log, cleaned, readable, NOW_MS)


@pytest.mark.parametrize(("ratio", "due"), [(0.49, True), (0.5, False), (0.51, False)])
def test_more_than_the_ratio_must_be_dirty(ratio: float, due: bool) -> None:
    found = dirt(log_of(0, 0, 0, 0, min_cleanable_dirty_ratio=ratio), cleaned=2)
    assert found.ratio == 0.5
    assert found.is_due == due


def test_with_nothing_dirty_no_ratio_makes_it_due() -> None:
    assert not dirt(log_of(0, 0, min_cleanable_dirty_ratio=0.0), cleaned=2).is_due
    assert dirt(log_of(0, 0, min_cleanable_dirty_ratio=0.0), cleaned=1).is_due


def test_a_segment_compacted_in_part_counts_as_both() -> None:
    log = LogKit(cleanup_compact=True).open()
    for _ in range(2):
        log.append(memoryview(encode_batch([Record(b"k", bytes(100), NOW_MS)] * 2)), 1)
        log.roll()
    found = dirt(log, cleaned=1)
    assert found.clean_bytes * 2 == found.dirty_bytes == log.size_bytes


def test_what_is_not_committed_or_active_stays() -> None:
    log = log_of(0, 0, 0)
    assert dirt(log).end_offset == 3
    assert dirt(log, readable=2).end_offset == 2
    assert dirt(log, readable=0).dirty_bytes == 0


@pytest.mark.parametrize(("cleaned", "first"), [(-5, 0), (2, 2), (3, 3), (4, 0)])
def test_a_checkpoint_outside_of_the_log_is_not_believed(cleaned: int, first: int) -> None:
    assert dirt(log_of(0, 0, 0), cleaned=cleaned).first_offset == first


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 4), (1, 2), (HOUR_MS, 1), (2 * HOUR_MS, 0)])
def test_young_segments_stay_and_all_behind_them(lag_ms: int, end: int) -> None:
    log = log_of(HOUR_MS + 1, 1, -HOUR_MS, 10 * HOUR_MS, min_compaction_lag_ms=lag_ms)
    # One millisecond is not yet too young; without a lag not even a time to come is.
    assert dirt(log).end_offset == end


@pytest.mark.parametrize(("lag_ms", "overdue"), [(HOUR_MS - 1, True), (HOUR_MS, False)])
def test_the_oldest_first_record_of_any_dirty_segment_counts(lag_ms: int, overdue: bool) -> None:
    log = log_of(5 * HOUR_MS, 0, HOUR_MS, 0, max_compaction_lag_ms=lag_ms, min_cleanable_dirty_ratio=1.0)
    found = dirt(log, cleaned=1, readable=2)
    assert found.overdue == overdue, "also of one that may not be compacted yet"
    assert found.is_due == overdue
    assert not dirt(log, cleaned=1, readable=1).is_due, "but something must be there to compact"
