"""Compaction as consumers see it."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace

import pytest
from log_kit import NOW_MS, LogKit, refused

from ottla.config import BrokerConfig, LogConfig
from ottla.log.cleaner import LogCleaner
from ottla.log.log import PartitionLog
from ottla.records.batch import DELETE_HORIZON, BatchHeader, iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.records.stamp import stamp_max_timestamp
from ottla.sim.disk import SimDisk

DAY_MS = 24 * 3_600_000
TEXTBOOK_OFFSETS = (13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28)
TEXTBOOK_KEYS = b"K1 K5 K2 K7 K8 K4 K1 K1 K1 K9 K8 K2".split()
TEXTBOOK_VALUES = b"V5 V2 V7 V1 V4 V6 V1 V2 V9 V6 V22 V25".split()


class Compacted:
    """A compacted log with its cleaner."""

    def __init__(self, properties: dict[str, str] | None = None, **config: object) -> None:
        self.kit = LogKit(
            SimDisk(),
            **{"cleanup_compact": True, "cleanup_delete": False, "segment_bytes": 1 << 20, **config},
        )
        self.kit.disk.make_dirs("/data")
        self.broker = BrokerConfig.from_properties({"node.id": "1", **(properties or {})})
        self.log = self.kit.open()
        self.cleaner = self._new_cleaner()

    def _new_cleaner(self) -> LogCleaner:
        async def nothing() -> None: ...

        return LogCleaner(
            self.kit.runtime, lambda: self.broker, lambda: {"/data": [self.log]}, nothing, refused, refused
        )

    def configure(self, **changes: object) -> None:
        self.log.update_config(replace(self.log.config, **changes))  # type: ignore[arg-type]

    def put(self, *records: tuple[bytes, bytes | None], **options: object) -> int:
        data = encode_batch(
            [Record(key, value, self.kit.clock.ms) for key, value in records],
            **options,  # type: ignore[arg-type]
        )
        return self.log.append(memoryview(data), 1, trusted=True).base_offset

    def clean(self, upto: int | None = None) -> bool:
        return asyncio.run(
            self.cleaner.clean_dirtiest(lambda _: self.log.next_offset if upto is None else upto)
        )

    def roll_and_clean(self) -> bool:
        self.log.roll()
        return self.clean()

    def reopen(self) -> None:
        self.log.close()
        self.log = self.kit.open()
        self.cleaner = self._new_cleaner()
        self.cleaner.load("/data")


def batches(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    found = []
    for segment in log.segments:
        data = memoryview(segment.file.read(0, segment.size))
        for at, header in iter_headers(data):
            found.append((header, list(iter_records(data[at : at + header.size]))))
    return found


def records(log: PartitionLog, offset: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a consumer sees from an offset on."""
    offset = log.start_offset if offset is None else offset
    found = []
    while offset < log.next_offset:
        data = memoryview(log.read(offset, 1000, upto=log.next_offset))
        if not data:
            break
        for at, header in iter_headers(data):
            for record in iter_records(data[at : at + header.size]):
                if record.offset >= offset:
                    found.append((record.offset, record.key, record.value))
            offset = header.last_offset + 1
    return found


def values(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in records(log)}


def marker(kind: int) -> tuple[bytes, bytes]:
    return struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)


@pytest.mark.parametrize("segment_bytes", [100, 1 << 20])
def test_the_textbook_case(segment_bytes: int) -> None:
    compacted = Compacted(segment_bytes=segment_bytes)
    log = compacted.log
    for offset, key, value in zip(TEXTBOOK_OFFSETS, TEXTBOOK_KEYS, TEXTBOOK_VALUES, strict=True):
        log.append_as_follower(encode_batch([Record(key, value, NOW_MS)], base_offset=offset, leader_epoch=1))
    assert compacted.roll_and_clean()
    expected = [
        (17, b"K5", b"V2"),
        (20, b"K7", b"V1"),
        (22, b"K4", b"V6"),
        (25, b"K1", b"V9"),
        (26, b"K9", b"V6"),
        (27, b"K8", b"V22"),
        (28, b"K2", b"V25"),
    ]
    assert records(log) == expected
    for offset in range(30):
        assert records(log, offset) == [record for record in expected if record[0] >= offset]
    assert log.next_offset == 29
    compacted.reopen()
    assert records(compacted.log) == expected
    assert not compacted.clean()


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_codec_and_offsets(codec: int) -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"), (b"b", b"1" * 50), (b"c", b"1"), codec=codec)
    compacted.put((b"a", b"2"), (b"c", b"2"), codec=codec)
    assert compacted.roll_and_clean()
    (first, [kept]), (second, rest) = batches(compacted.log)
    assert (first.base_offset, first.last_offset, first.codec) == (0, 2, codec)
    assert (kept.offset, kept.key, kept.value) == (1, b"b", b"1" * 50)
    assert kept.timestamp_ms == NOW_MS == first.max_timestamp
    assert (second.base_offset, second.last_offset, second.codec) == (3, 4, codec)
    assert [record.offset for record in rest] == [3, 4]


def test_an_untouched_batch_is_copied_byte_for_byte() -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"), (b"b", b"1"), codec=4)
    before = compacted.log.segments[0].file.read(0, 1000)
    assert compacted.roll_and_clean()
    assert compacted.log.segments[0].file.read(0, 1000) == before


def test_tombstones_stay_for_delete_retention_ms() -> None:
    compacted = Compacted(delete_retention_ms=DAY_MS, min_cleanable_dirty_ratio=0.0)
    compacted.put((b"a", b"1"), (b"b", b"1"))
    compacted.put((b"a", None))
    assert compacted.roll_and_clean()
    assert records(compacted.log) == [(1, b"b", b"1"), (2, b"a", None)]
    tombstone = batches(compacted.log)[1]
    assert tombstone[0].attributes & DELETE_HORIZON
    assert tombstone[0].base_timestamp == NOW_MS + DAY_MS
    assert tombstone[1][0].timestamp_ms == NOW_MS == tombstone[0].max_timestamp
    compacted.kit.clock.ms += DAY_MS - 1
    compacted.put((b"c", b"1"))
    assert compacted.roll_and_clean()
    assert (2, b"a", None) in records(compacted.log)
    compacted.kit.clock.ms += 1
    compacted.put((b"d", b"1"))
    assert compacted.roll_and_clean()
    assert values(compacted.log) == {b"b": b"1", b"c": b"1", b"d": b"1"}


def test_the_active_segment_and_what_is_not_readable_yet_stay() -> None:
    compacted = Compacted()
    for value in (b"1", b"2"):
        compacted.put((b"a", value))
    assert not compacted.clean()
    compacted.log.roll()
    assert not compacted.clean(upto=1)
    assert compacted.clean(upto=2)
    assert records(compacted.log) == [(1, b"a", b"2")]


def test_min_compaction_lag_keeps_young_segments() -> None:
    compacted = Compacted(min_compaction_lag_ms=DAY_MS)
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    assert not compacted.roll_and_clean()
    compacted.kit.clock.ms += DAY_MS
    assert compacted.clean()
    assert records(compacted.log) == [(1, b"a", b"2")]


def test_max_compaction_lag_rolls_and_compacts_whatever_the_ratio() -> None:
    compacted = Compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=DAY_MS)
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.kit.clock.ms += DAY_MS + 1
    assert not compacted.clean()
    compacted.put((b"b", b"1"))
    assert len(compacted.log.segments) == 2
    assert compacted.clean()
    assert records(compacted.log) == [(1, b"a", b"2"), (2, b"b", b"1")]


def test_the_dirty_ratio_decides() -> None:
    compacted = Compacted(min_cleanable_dirty_ratio=0.5)
    for index in range(10):
        compacted.put((b"%d" % index, bytes(100)))
    assert compacted.roll_and_clean()
    compacted.put((b"0", bytes(100)))
    assert not compacted.roll_and_clean()
    compacted.configure(min_cleanable_dirty_ratio=0.01)
    assert compacted.clean()
    assert len(records(compacted.log)) == 10


def test_small_segments_become_one() -> None:
    compacted = Compacted(segment_bytes=300)
    for index in range(40):
        compacted.put((b"%d" % (index % 4), bytes(50)))
    compacted.log.roll()
    count = len(compacted.log.segments)
    compacted.configure(segment_bytes=1 << 20)
    assert compacted.clean()
    assert count > 10
    assert len(compacted.log.segments) == 2
    assert [offset for offset, _, _ in records(compacted.log)] == [36, 37, 38, 39]


def test_what_fits_into_the_map_is_compacted_and_the_rest_in_later_rounds() -> None:
    compacted = Compacted(
        {"log.cleaner.dedupe.buffer.size": str(24 * 12), "log.cleaner.threads": "0"},
        segment_bytes=400,
        min_cleanable_dirty_ratio=0.0,
    )
    for index in range(100):
        compacted.put((b"%d" % (index % 30), b"%d" % index))
    compacted.log.roll()
    rounds = 0
    while compacted.clean():
        rounds += 1
    assert rounds > 5
    assert values(compacted.log) == {b"%d" % (index % 30): b"%d" % index for index in range(70, 100)}


def test_the_last_batch_of_an_active_producer_stays_as_a_header() -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=0)
    compacted.put((b"a", b"2"), producer_id=7, producer_epoch=2, base_sequence=1)
    compacted.put((b"a", b"3"))
    assert compacted.roll_and_clean()
    assert [(header.base_offset, header.record_count) for header, _ in batches(compacted.log)] == [
        (1, 0),
        (2, 1),
    ]
    for name in compacted.kit.files():
        if name.endswith(".snapshot"):
            compacted.kit.disk.remove(f"{compacted.kit.directory}/{name}")
    compacted.log = compacted.kit.open(clean=False, recovery_point=3)
    assert compacted.log.producers.active[7].next_sequence == 2
    assert records(compacted.log) == [(2, b"a", b"3")]


def transaction(compacted: Compacted, producer: int, key: bytes, value: bytes, *, commit: bool) -> None:
    compacted.put((key, value), producer_id=producer, producer_epoch=0, base_sequence=-1, transactional=True)
    end(compacted, producer, commit=commit)


def end(compacted: Compacted, producer: int, *, commit: bool) -> None:
    compacted.put(
        marker(int(commit)), producer_id=producer, producer_epoch=0, transactional=True, control=True
    )


def test_aborted_records_go_and_markers_follow_when_their_time_has_come() -> None:
    compacted = Compacted(delete_retention_ms=DAY_MS, min_cleanable_dirty_ratio=0.0)
    compacted.put((b"a", b"good"))
    transaction(compacted, 7, b"a", b"aborted", commit=False)
    transaction(compacted, 8, b"b", b"committed", commit=True)
    compacted.log.producers.active.clear()
    assert compacted.roll_and_clean()
    data = [(header.base_offset, header.is_control) for header, _ in batches(compacted.log)]
    assert data == [(0, False), (2, True), (3, False), (4, True)]
    for round_number in range(2):
        compacted.put((b"b", b"%d" % round_number))
        assert compacted.roll_and_clean()
    horizons = [
        header.attributes & DELETE_HORIZON for header, _ in batches(compacted.log) if header.is_control
    ]
    assert horizons == [DELETE_HORIZON, DELETE_HORIZON]
    compacted.kit.clock.ms += DAY_MS
    compacted.put((b"c", b"1"))
    assert compacted.roll_and_clean()
    assert not any(header.is_control for header, _ in batches(compacted.log))
    assert values(compacted.log) == {b"a": b"good", b"b": b"1", b"c": b"1"}


def test_the_index_of_aborted_transactions_follows_the_markers() -> None:
    compacted = Compacted(delete_retention_ms=DAY_MS, min_cleanable_dirty_ratio=0.0)
    for producer in (7, 8):
        transaction(compacted, producer, b"a", b"aborted", commit=False)
        compacted.log.roll()
    compacted.log.producers.active.clear()
    indexed = [entry for segment in compacted.log.segments for entry in segment.transactions.entries]
    assert [(entry.producer_id, entry.last_offset) for entry in indexed] == [(7, 1), (8, 3)]
    assert compacted.clean()
    first = compacted.log.segments[0]
    assert list(first.transactions.entries) == indexed, "the markers of both are in one segment now"
    compacted.reopen()
    assert list(compacted.log.segments[0].transactions.entries) == indexed
    for _ in range(2):
        compacted.kit.clock.ms += DAY_MS
        compacted.put((b"a", b"1"))
        assert compacted.roll_and_clean()
    assert not any(header.is_control for header, _ in batches(compacted.log))
    assert not compacted.log.segments[0].transactions.entries
    compacted.reopen()
    assert not compacted.log.segments[0].transactions.entries


def test_what_a_producer_commits_after_an_aborted_transaction_counts() -> None:
    compacted = Compacted(delete_retention_ms=0, min_cleanable_dirty_ratio=0.0)
    compacted.put((b"a", b"old"))
    transaction(compacted, 7, b"b", b"aborted", commit=False)
    transaction(compacted, 7, b"a", b"new", commit=True)
    assert compacted.roll_and_clean()
    assert [value for _, key, value in records(compacted.log) if key == b"a"] == [b"new"]


def test_an_open_transaction_stops_compaction() -> None:
    compacted = Compacted(segment_bytes=100)
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.put((b"a", b"3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    compacted.put((b"b", b"1"))
    compacted.log.roll()
    assert compacted.clean()
    assert [offset for offset, _, _ in records(compacted.log)] == [1, 2, 3]
    end(compacted, 7, commit=False)
    compacted.log.roll()
    assert compacted.clean()
    assert values(compacted.log)[b"a"] == b"2"


@pytest.mark.parametrize(("position", "offset"), [(65, 0), (70, 1)], ids=["record", "base offset"])
def test_damage_is_not_copied_and_logged_once(
    position: int, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.log.roll()
    compacted.log.segments[0].release()
    compacted.kit.flip("00000000000000000000.log", position)
    assert compacted.clean()
    assert not compacted.clean()
    assert len([record for record in caplog.records if "is not compacted any more" in record.message]) == 1
    assert f"offset {offset}" in caplog.text
    assert "00000000000000000000.log" in caplog.text


def test_a_full_disk_leaves_the_log_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    compacted.log.roll()
    assert isinstance(compacted.kit.disk, SimDisk)
    asyncio.run(compacted.log.flush())
    compacted.kit.disk.fail("append", 28, times=2)
    assert not compacted.clean()
    assert not compacted.clean()
    assert len([record for record in caplog.records if "tried again" in record.message]) == 1
    assert len(records(compacted.log)) == 2
    assert not [name for name in compacted.kit.files() if name.endswith(".cleaned")]
    assert compacted.clean()
    assert len(records(compacted.log)) == 1


def test_readers_keep_what_they_hold_while_segments_are_swapped() -> None:
    compacted = Compacted()
    compacted.put((b"a", b"1"))
    compacted.put((b"a", b"2"))
    view = memoryview(compacted.log.read(0, 1000, upto=2))
    before = bytes(view)
    assert compacted.roll_and_clean()
    assert bytes(view) == before
    assert "00000000000000000000.log.deleted" in compacted.kit.files()


def test_the_checkpoint_has_the_format_and_survives() -> None:
    compacted = Compacted(min_cleanable_dirty_ratio=0.0)
    compacted.put((b"a", b"1"), (b"a", b"2"))
    assert compacted.roll_and_clean()
    assert compacted.kit.disk.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\norders 3 2\n"
    compacted.reopen()
    assert not compacted.clean()
    compacted.cleaner.truncated(compacted.log.topic_partition, 1)
    assert compacted.clean()


def test_the_log_begins_uncompacted_when_the_checkpoint_is_of_another() -> None:
    compacted = Compacted()
    compacted.kit.disk.replace_file("/data/cleaner-offset-checkpoint", b"0\n1\norders 3 99\n")
    compacted.cleaner.load("/data")
    compacted.put((b"a", b"1"), (b"a", b"2"))
    assert compacted.roll_and_clean()
    assert records(compacted.log) == [(1, b"a", b"2")]


def test_only_logs_that_are_to_be_compacted_are() -> None:
    compacted = Compacted(cleanup_compact=False, cleanup_delete=True)
    compacted.put((b"a", b"1"), (b"a", b"2"))
    assert not compacted.roll_and_clean()
    compacted.log.update_config(LogConfig(cleanup_compact=True, cleanup_delete=False))
    assert compacted.clean()


def test_records_without_a_key_from_before_the_policy_changed_go() -> None:
    compacted = Compacted()
    data = encode_batch([Record(None, b"x", NOW_MS), Record(b"a", b"1", NOW_MS)])
    compacted.log.append(memoryview(data), 1, trusted=True)
    assert compacted.roll_and_clean()
    assert records(compacted.log) == [(1, b"a", b"1")]


def test_a_poisoned_batch_is_named_with_a_remedy_that_works() -> None:
    compacted = Compacted(min_cleanable_dirty_ratio=0.0)
    compacted.put((b"a", b"1"))
    garbage = bytearray(encode_batch([Record(b"k", b"v" * 20, compacted.kit.clock.ms)]))
    garbage[61:] = b"\xff" * (len(garbage) - 61)
    stamp_max_timestamp(garbage, 0, compacted.kit.clock.ms)
    compacted.log.append(memoryview(garbage), 1, trusted=True)
    compacted.put((b"a", b"2"))
    compacted.put((b"a", b"3"))
    compacted.roll_and_clean()
    (reason,) = compacted.cleaner.uncleanable.values()
    assert "offsets 1 to 1" in reason
    assert "below offset 2 with kafka-delete-records" in reason
    # What the message says.
    compacted.log.delete_records_before(2)
    compacted.log.close()
    compacted.log = compacted.kit.open(start_offset=2)
    compacted.cleaner = compacted._new_cleaner()
    assert compacted.clean()
    assert not compacted.cleaner.uncleanable
    assert [record.value for record in iter_records(compacted.log.read(3, 1000, upto=4))] == [b"3"]
