from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_kit import NOW_MS, PARTITION, LogKit, batch, fill, offsets_in, read_all

from ottla.log.scrub import verify
from ottla.sim.disk import SimDisk
from ottla.sim.medium import TailFault

FIRST = "00000000000000000000.log"
SIZE = len(batch(bytes(100)))


def test_after_a_clean_close_nothing_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = LogKit(segment_bytes=2000, index_interval_bytes=500)
    log = kit.open()
    fill(log, 100)
    log.close()
    read = {"bytes": 0}
    from ottla.sim.disk import SimFile

    original = SimFile.read

    def counting(self: SimFile, position: int, length: int) -> bytes:
        data = original(self, position, length)
        read["bytes"] += len(data)
        return data

    monkeypatch.setattr(SimFile, "read", counting)
    reopened = kit.open()
    assert (reopened.next_offset, reopened.recovery_point) == (100, 100)
    assert read["bytes"] < log.size_bytes / 4
    read_all(reopened)


def test_closing_an_idle_log_touches_no_file() -> None:
    disk = SimDisk()
    kit = LogKit(disk)
    log = kit.open()
    fill(log, 3)
    log.close()
    reopened = kit.open()
    before = disk.operations
    reopened.close()
    assert disk.operations == before


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 20 * SIZE), recovery_batches=st.integers(0, 20))
def test_a_torn_tail_is_cut_at_the_last_whole_batch(cut: int, recovery_batches: int) -> None:
    kit = LogKit(index_interval_bytes=300)
    fill(kit.open(), 20)
    content = kit.content(FIRST)
    kit.overwrite(FIRST, content[:-cut])
    log = kit.open(clean=False, recovery_point=recovery_batches)
    whole = (len(content) - cut) // SIZE
    assert (log.next_offset, log.size_bytes) == (whole, whole * SIZE)
    assert log.recovery_point == min(recovery_batches, whole)
    assert kit.content(FIRST) == content[: whole * SIZE]
    fill(log, 5)
    assert read_all(log) == [(i, i) for i in range(whole + 5)]


@settings(max_examples=40, deadline=None)
@given(position=st.integers(0, 20 * SIZE - 1))
def test_a_flipped_bit_in_the_unsynced_tail_cuts_the_log_there(position: int) -> None:
    kit = LogKit()
    fill(kit.open(), 20)
    # The leader epoch is not covered by the CRC, nor are base offsets that stay in order.
    field = position % SIZE
    if field < 8 or 12 <= field < 16:
        return
    kit.flip(FIRST, position)
    log = kit.open(clean=False)
    assert log.next_offset == position // SIZE
    assert log.size_bytes == position // SIZE * SIZE


def test_whole_records_that_are_cut_off_are_an_error_that_says_how_many_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = LogKit()
    fill(kit.open(), 20)
    kit.flip(FIRST, 5 * SIZE + SIZE - 1)
    kit.open(clean=False)
    [told] = [record for record in caplog.records if "cut off at offset 5" in record.message]
    assert told.levelname == "ERROR"
    assert f"{14 * SIZE} bytes of records behind it, from offset 6 on, are dropped" in told.message
    caplog.clear()
    kit.overwrite(FIRST, kit.content(FIRST)[:-1])
    kit.open(clean=False)
    [told] = [record for record in caplog.records if "cut off at offset 4" in record.message]
    assert told.levelname == "WARNING"


def test_rot_below_the_recovery_point_takes_nothing_else_with_it(caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit()
    fill(kit.open(), 20)
    kit.flip(FIRST, 7 * SIZE + 80)
    with caplog.at_level(logging.INFO):
        log = kit.open(clean=False, recovery_point=10)
    assert log.next_offset == 20
    assert "CRC of the batch at offset 7 is wrong" in caplog.text
    assert "20 records scanned, 1 damaged batches kept, 0 bytes truncated" in caplog.text


@pytest.mark.parametrize("field", [8, 80], ids=["header", "records"])
def test_rot_below_the_recovery_point_is_cut_off_where_another_broker_has_the_rest(field: int) -> None:
    kit = LogKit()
    fill(kit.open(), 20)
    kit.flip(FIRST, 7 * SIZE + field)
    log = kit.open(clean=False, recovery_point=10, keep_damage=False)
    assert (log.next_offset, log.recovery_point) == (7, 7)
    assert read_all(log) == [(i, i) for i in range(7)]


def test_segments_after_the_cut_are_removed_and_one_line_tells(caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit(segment_bytes=5 * SIZE)
    fill(kit.open(), 20)
    second = "00000000000000000005.log"
    kit.overwrite(second, kit.content(second)[: 2 * SIZE + 10])
    with caplog.at_level(logging.INFO):
        log = kit.open(clean=False)
    assert log.next_offset == 7
    assert [name for name in kit.files() if name.endswith(".log")] == [FIRST, second]
    lost = 10 + 10 * SIZE
    assert f"recovered {PARTITION}: 7 records scanned, 0 damaged batches kept, {lost} bytes" in caplog.text
    fill(log, 20)
    assert read_all(log) == [(i, i) for i in range(27)]


@pytest.mark.parametrize(
    ("recovery_point", "keep_damage", "end"),
    [(2, False, 3), (4, False, 20), (2, True, 20)],
    ids=["lost and led elsewhere", "compacted before", "nowhere else"],
)
def test_the_lost_end_of_a_compacted_segment_is_fetched_again_where_another_broker_has_it(
    recovery_point: int, keep_damage: bool, end: int
) -> None:
    kit = LogKit(segment_bytes=5 * SIZE, cleanup_compact=True)
    fill(kit.open(), 20)
    kit.overwrite(FIRST, kit.content(FIRST)[: 3 * SIZE])
    log = kit.open(clean=False, recovery_point=recovery_point, keep_damage=keep_damage)
    assert log.next_offset == end
    assert log.recovery_point == recovery_point


def test_trusted_segments_are_not_looked_at() -> None:
    kit = LogKit(segment_bytes=5 * SIZE)
    fill(kit.open(), 20)
    kit.flip(FIRST, 2 * SIZE + 90)
    log = kit.open(clean=False, recovery_point=12)
    assert log.next_offset == 20
    assert [found.offset for found in verify(log)] == [2]


def test_a_segment_that_does_not_join_on_is_dropped() -> None:
    """The end of a segment was lost at a batch boundary: what follows would leave a hole."""
    kit = LogKit(segment_bytes=5 * SIZE)
    fill(kit.open(), 20)
    second = "00000000000000000005.log"
    kit.overwrite(second, kit.content(second)[: 3 * SIZE])
    assert kit.open(clean=False).next_offset == 8


def test_indexes_are_rebuilt_as_they_were() -> None:
    kit = LogKit(segment_bytes=20 * SIZE, index_interval_bytes=300)
    log = kit.open()
    fill(log, 55)
    log.close()
    names = [name for name in kit.files() if name.endswith(("index",))]
    before = {name: kit.content(name) for name in names}
    assert all(len(before[name]) > 8 for name in names)
    for name in names:
        kit.overwrite(name, b"\0" * 24)
    log = kit.open(clean=False)
    log.close()
    assert {name: kit.content(name) for name in names} == before


@pytest.mark.parametrize("damage", ["missing", "odd", "zeros", "beyond"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_bad_indexes_of_trusted_segments_are_made_again(damage: str, suffix: str) -> None:
    kit = LogKit(segment_bytes=20 * SIZE, index_interval_bytes=300)
    log = kit.open()
    fill(log, 55)
    log.close()
    name = f"00000000000000000020{suffix}"
    before = kit.content(name)
    match damage:
        case "missing":
            kit.disk.remove(f"{kit.directory}/{name}")
        case "odd":
            kit.overwrite(name, before[:-3])
        case "zeros":
            kit.overwrite(name, before + bytes(120))
        case "beyond":
            kit.overwrite(name, before if suffix == ".timeindex" else before[:-4] + b"\x7f\0\0\0")
    log = kit.open(clean=True)
    assert kit.content(name) == before
    for offset in range(55):
        assert offsets_in(log.read(offset, 1, upto=55)) == [(offset, offset)]


def test_leader_epochs_are_found_again_by_scanning() -> None:
    kit = LogKit()
    log = kit.open()
    for epoch in (1, 1, 4, 4, 6):
        log.append(memoryview(batch(b"")), leader_epoch=epoch)
    assert "leader-epoch-checkpoint" not in kit.files()
    reopened = kit.open(clean=False)
    assert reopened.epochs.entries == [(1, 0), (4, 2), (6, 4)]


def test_epochs_beyond_the_end_are_forgotten() -> None:
    kit = LogKit()
    log = kit.open()
    for epoch in (1, 4, 6):
        log.append(memoryview(batch(bytes(100))), leader_epoch=epoch)
    log.close()
    kit.overwrite(FIRST, kit.content(FIRST)[: 2 * SIZE])
    assert kit.open(clean=False).epochs.entries == [(1, 0), (4, 1)]


def test_leftovers_and_orphans_are_removed_but_not_what_raft_keeps() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 3)
    log.close()
    kept = [
        "00000000000000000003-0000000001.checkpoint",
        "00000000000000000003-0000000001.checkpoint.deleted",
    ]
    gone = ["00000000000000000000.log.deleted", "x.tmp", "00000000000000000009.index"]
    for name in kept + gone:
        kit.overwrite(name, b"x")
    kit.open()
    assert set(kept) <= set(kit.files())
    assert not set(gone) & set(kit.files())


def test_the_start_offset_may_lie_behind_a_lost_end() -> None:
    kit = LogKit()
    fill(kit.open(), 20)
    kit.overwrite(FIRST, kit.content(FIRST)[: 5 * SIZE])
    log = kit.open(clean=False, start_offset=10)
    assert (log.start_offset, log.next_offset, log.size_bytes) == (10, 10, 0)
    fill(log, 2)
    assert read_all(log) == [(10, 10), (11, 11)]


def test_a_log_damaged_although_closed_is_recovered() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 20)
    log.close()
    kit.overwrite(FIRST, kit.content(FIRST)[:-10])
    reopened = kit.open(clean=True)
    assert reopened.next_offset == 19
    fill(reopened, 1)
    reopened.close()
    assert kit.open().next_offset == 20


def test_the_age_of_a_segment_survives_a_restart() -> None:
    kit = LogKit(segment_ms=1000)
    log = kit.open()
    log.append(memoryview(batch(b"", timestamp_ms=NOW_MS)), leader_epoch=0)
    log.close()
    log = kit.open()
    log.append(memoryview(batch(b"", timestamp_ms=NOW_MS + 1001)), leader_epoch=0)
    assert len(log.segments) == 2


# Scrubbing.


def test_verify_finds_every_damaged_batch_and_goes_on() -> None:
    kit = LogKit(segment_bytes=50 * SIZE, index_interval_bytes=300)
    log = kit.open()
    fill(log, 120)
    log.close()
    assert list(verify(kit.open())) == []
    kit.flip(FIRST, 3 * SIZE + 70)
    kit.flip(FIRST, 20 * SIZE + 9)  # a length: only the index knows where to go on
    kit.flip("00000000000000000050.log", 49 * SIZE + 120)
    kit.flip("00000000000000000100.log", 5)  # a base offset
    found = list(verify(kit.open()))
    path = f"{kit.directory}/{FIRST}"
    assert [(bad.topic, bad.partition, bad.offset) for bad in found[:2]] == [
        ("orders", 3, 3),
        ("orders", 3, 20),
    ]
    assert (found[0].position, found[0].path) == (3 * SIZE, path)
    assert found[2].offset == 99
    assert len(found) >= 4
    assert all(bad.offset < 25 or bad.offset in (99, 100) or bad.offset > 100 for bad in found)


# Checkpoint files of a partition.


def test_leader_epoch_checkpoint_format() -> None:
    kit = LogKit()
    log = kit.open()
    log.append(memoryview(batch(b"")), leader_epoch=2)
    log.append(memoryview(batch(b"")), leader_epoch=5)
    log.close()
    assert kit.content("leader-epoch-checkpoint") == b"0\n2\n2 0\n5 1\n"
    assert kit.open().epochs.entries == [(2, 0), (5, 1)]


@pytest.mark.parametrize("content", [b"", b"9\n", b"0\n3\n1 0\n", b"0\n1\nx y\n", b"\xff\xfe"])
def test_a_damaged_epoch_checkpoint_does_not_stop_the_log(content: bytes) -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 2)
    log.close()
    kit.overwrite("leader-epoch-checkpoint", content)
    assert kit.open().next_offset == 2


@pytest.mark.parametrize("seed", range(8))
def test_names_that_a_process_left_unsynced_are_synced_by_the_next_one(seed: int) -> None:
    """Killed before its first flush; then the power is cut, after records were flushed by its successor."""
    disk = SimDisk(seed, faults=[TailFault.LOST])
    disk.make_dirs("/data")
    disk.sync_dir("/")
    kit = LogKit(disk, directory="/data/t-0")
    fill(kit.open(), 3)
    disk.kill()
    log = kit.open(clean=False)
    fill(log, 2)
    asyncio.run(log.flush())
    disk.crash()
    assert kit.open(clean=False).next_offset == 5


@pytest.mark.parametrize("cleanup", [{}, {"cleanup_compact": True}])
def test_an_offset_that_no_index_reaches_cuts_the_log_there(cleanup: dict[str, bool]) -> None:
    kit = LogKit(**cleanup)
    fill(kit.open(), 5)
    kit.flip(FIRST, 4 * SIZE + 1)
    log = kit.open(clean=False, recovery_point=5)
    assert log.next_offset == 4
    fill(log, 1)
    assert len(read_all(log)) == 5


def test_a_log_that_was_closed_does_not_end_where_no_index_reaches() -> None:
    kit = LogKit()
    log = kit.open()
    fill(log, 5)
    log.close()
    kit.flip(FIRST, 4 * SIZE + 1)
    assert kit.open(recovery_point=5).next_offset == 4
