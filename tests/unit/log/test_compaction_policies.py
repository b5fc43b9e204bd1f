"""What is kept under each policy, recompression and scrubbing, with time that is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

import log_kit
import pytest
from crc32c import crc32c
from log_kit import NOW_MS, LogKit, batch, refused, values_in

from ottla.config import BrokerConfig, LogConfig
from ottla.log.cleaner import LogCleaner
from ottla.log.log import PartitionLog
from ottla.log.scrubber import Scrubber
from ottla.log.segment import Segment
from ottla.records.batch import read_header
from ottla.records.compression import CODEC_NAMES
from ottla.records.records import Record, encode_batch
from ottla.runtime.disk import PosixDisk
from ottla.sim.disk import SimDisk
from ottla.sim.world import SimWorld, simulate
from ottla.wire.errors import CorruptMessage, RecordTooLarge

DAY_MS = 24 * 3_600_000
MEGABYTE = 1024 * 1024
BROKER = BrokerConfig.from_properties({"node.id": "1"})


def write_for_days(kit: LogKit, log: PartitionLog, days: int, bytes_per_hour: int) -> None:
    for _ in range(days * 24):
        kit.clock.ms += DAY_MS // 24
        log.append(memoryview(batch(bytes(bytes_per_hour), timestamp_ms=kit.clock.ms)), 1)
        log.enforce_retention(kit.clock.ms, log.next_offset)


@pytest.mark.parametrize("limit", [500_000, pytest.param(500_000_000, marks=pytest.mark.slow)])
def test_infinite_time_bounded_by_500_mb(limit: int, tmp_path: Path) -> None:
    # A thousandth of it is quick, and what counts are whole segments; at full size the disk is a real one.
    kit = LogKit(
        SimDisk() if limit < MEGABYTE else PosixDisk(),
        str(tmp_path / "orders-3"),
        retention_ms=-1,
        retention_bytes=limit,
        segment_bytes=limit // 10,
        max_message_bytes=2 * MEGABYTE,
        file_delete_delay_ms=0,
    )
    log = kit.open()
    write_for_days(kit, log, 35, limit // 500)
    assert limit <= log.size_bytes < limit + 2 * limit // 10
    assert log.start_offset > 200
    log.update_config(replace(log.config, retention_bytes=limit // 2))
    log.enforce_retention(kit.clock.ms, log.next_offset)
    assert limit // 2 <= log.size_bytes < limit // 2 + 2 * limit // 10
    log.release()


def test_one_week() -> None:
    kit = LogKit(retention_ms=7 * DAY_MS, segment_ms=DAY_MS)
    log = kit.open()
    write_for_days(kit, log, 30, 100)
    oldest = asyncio.run(log.offset_for_timestamp(0, log.next_offset))
    assert oldest is not None
    assert 7 * DAY_MS <= kit.clock.ms - oldest.timestamp_ms + DAY_MS // 24 <= 8 * DAY_MS + DAY_MS // 12
    kit.clock.ms += 30 * DAY_MS
    log.enforce_retention(kit.clock.ms, log.next_offset)
    assert log.start_offset == log.next_offset


def test_compact_and_delete() -> None:
    kit = LogKit(
        cleanup_compact=True,
        cleanup_delete=True,
        retention_ms=7 * DAY_MS,
        segment_ms=DAY_MS,
        min_cleanable_dirty_ratio=0.0,
    )
    kit.disk.make_dirs("/data")
    log = kit.open()
    cleaner = LogCleaner(kit.runtime, lambda: BROKER, lambda: {"/data": [log]}, _nothing, refused, refused)
    for day in range(30):
        for hour in range(24):
            kit.clock.ms += DAY_MS // 24
            record = Record(b"hour-%d" % hour, b"%d" % day, kit.clock.ms)
            log.append(memoryview(encode_batch([record])), 1)
        if day == 0:
            log.append(memoryview(encode_batch([Record(b"once", b"0", kit.clock.ms)])), 1)
        asyncio.run(cleaner.clean_dirtiest(lambda _: log.next_offset))
        log.enforce_retention(kit.clock.ms, log.next_offset)
        values = _values(log)
        assert len(values) <= 3 * 24 + 1, "compaction leaves the last of each key, and the active segment"
        # The segment that holds it may still have younger records.
        assert b"0" in values or day >= 7
    assert b"0" not in _values(log), "retention takes what nobody wrote again"


def test_records_below_the_low_watermark_go_although_the_topic_is_only_compacted() -> None:
    kit = LogKit(cleanup_compact=True, cleanup_delete=False, segment_bytes=200)
    kit.disk.make_dirs("/data")
    log = kit.open()
    for index in range(20):
        log.append(memoryview(encode_batch([Record(b"%d" % index, bytes(50), NOW_MS)])), 1)
    log.delete_records_before(10)
    log.enforce_retention(NOW_MS, log.next_offset)
    assert log.start_offset == 10
    assert log.segments[0].base_offset > 0
    cleaner = LogCleaner(kit.runtime, lambda: BROKER, lambda: {"/data": [log]}, _nothing, refused, refused)
    assert asyncio.run(cleaner.clean_dirtiest(lambda _: log.next_offset))
    assert len(values_in(log.read(10, MEGABYTE, upto=20))) > 0
    assert log.start_offset == 10


async def _nothing() -> None: ...


def _values(log: PartitionLog) -> list[bytes | None]:
    return [
        value
        for segment in log.segments
        for value in values_in(segment.file.read(0, segment.size))
        if segment.size
    ]


# Recompression.


@pytest.mark.parametrize("sent", range(5))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_codec_of_the_topic(sent: int, wanted: str) -> None:
    log = LogKit(compression_type=wanted).open()
    data = batch(b"one" * 100, b"two", codec=sent) + batch(b"three", codec=(sent + 1) % 5)
    log.append(memoryview(data), 1)
    stored = log.read(0, MEGABYTE, upto=3)
    codec = 0 if wanted == "uncompressed" else CODEC_NAMES.index(wanted)
    assert read_header(stored).codec == codec
    assert values_in(stored) == [b"one" * 100, b"two", b"three"]
    log.update_config(LogConfig(compression_type="producer"))
    log.append(memoryview(batch(b"four", codec=sent)), 1)
    assert read_header(log.read(3, MEGABYTE, upto=4)).codec == sent


def test_a_batch_in_the_right_codec_is_not_touched() -> None:
    log = LogKit(compression_type="zstd").open()
    data = batch(b"one" * 100, codec=4)
    log.append(memoryview(data), 1)
    assert bytes(log.read(0, MEGABYTE, upto=1))[61:] == data[61:]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_levels_have_an_effect(codec: str) -> None:
    text = (Path(__file__).read_bytes() + Path(log_kit.__file__).read_bytes()) * 4
    sizes = {}
    for level in (1, 8):
        kit = LogKit(compression_type=codec, **{f"compression_{codec}_level": level})
        log = kit.open()
        log.append(log.recompressed(batch(text)), 1, prepared=True)
        assert values_in(log.read(0, MEGABYTE, upto=1)) == [text]
        sizes[level] = log.size_bytes
    assert sizes[8] < sizes[1]


def test_what_grows_beyond_the_limit_is_refused() -> None:
    log = LogKit(compression_type="uncompressed", max_message_bytes=1000).open()
    with pytest.raises(RecordTooLarge):
        log.append(memoryview(batch(bytes(5000), codec=4)), 1)
    assert log.next_offset == 0


def test_a_body_that_does_not_decompress_is_refused() -> None:
    log = LogKit(compression_type="gzip").open()
    with pytest.raises(CorruptMessage):
        log.append(memoryview(_claiming_zstd(batch(b"x" * 50))), 1)
    assert log.next_offset == 0


def _claiming_zstd(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[22] |= 4
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


# Scrubbing.


def rotting(kit: LogKit) -> PartitionLog:
    kit.disk.make_dirs("/data")
    log = kit.open()
    for _ in range(12):
        log.append(memoryview(batch(bytes(100))), 1)
    return log


def damage(kit: LogKit, segment: Segment) -> None:
    segment.release()
    kit.flip(segment.path.rpartition("/")[2], 100)


def test_rot_at_rest_is_found_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    kit = LogKit(SimDisk(), segment_bytes=250)
    log = rotting(kit)
    scrubber = Scrubber(kit.runtime, lambda: BROKER, lambda: {"/data": [log]}, refused)
    asyncio.run(scrubber.scrub("/data"))
    assert not scrubber.found
    damaged = log.segments[1]
    damage(kit, damaged)
    for _ in range(2):
        asyncio.run(scrubber.scrub("/data"))
    (found,) = scrubber.found.values()
    assert (found.topic, found.partition, found.offset) == ("orders", 3, damaged.base_offset)
    assert len([record for record in caplog.records if "is damaged" in record.message]) == 1
    assert damaged.path in caplog.text
    counters = scrubber.counters
    assert (counters.passes, counters.damaged_batches) == (3, 1)
    assert counters.segments == 3 * (len(log.segments) - 1)
    assert counters.bytes == 3 * sum(segment.size for segment in list(log.segments)[:-1])


def scrub_for(kit: LogKit, log: PartitionLog, seconds: float, **settings: str) -> Scrubber:
    """Let a scrubber run from a start of the broker on, in simulated time."""
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.from_properties({"node.id": "1", **names})

    def boot(world: SimWorld) -> Coroutine[object, object, Scrubber]:
        async def run() -> Scrubber:
            loop = asyncio.get_running_loop()
            start_ms = kit.clock.ms
            clock = LoopClock(loop, start_ms)
            runtime = replace(kit.runtime, clock=clock)
            scrubber = Scrubber(runtime, lambda: config, lambda: {"/data": [log]}, refused)
            task = loop.create_task(scrubber.run())
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            kit.clock.ms = clock.now_ms()
            return scrubber

        return run()

    return simulate(boot)


class LoopClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int) -> None:
        self._loop, self._start_ms = loop, start_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


def test_the_first_walk_begins_with_the_broker_and_the_next_after_the_interval() -> None:
    kit = LogKit(SimDisk(), segment_bytes=250)
    log = rotting(kit)
    assert scrub_for(kit, log, 60).counters.passes == 1
    assert scrub_for(kit, log, 3600).counters.passes == 0, "a restart begins no other"
    assert scrub_for(kit, log, 8 * 24 * 3600).counters.passes == 1
    assert scrub_for(kit, log, 3600, ottla_scrub_bytes_per_second="0").counters.segments == 0
    assert scrub_for(kit, log, 3600, ottla_scrub_interval_ms="60000").counters.passes >= 50


def test_a_walk_goes_on_after_a_restart() -> None:
    kit = LogKit(SimDisk(), segment_bytes=250)
    log = rotting(kit)
    at_rest = len(log.segments) - 1
    counts = []
    while sum(counts) < at_rest:
        # A segment of two hundred bytes every twenty seconds.
        scrubber = scrub_for(kit, log, 75, ottla_scrub_bytes_per_second="10")
        counts.append(scrubber.counters.segments)
        assert len(counts) < 20
    assert len(counts) > 2
    assert sum(counts) <= at_rest + len(counts), "hardly any is checked twice"
    assert scrub_for(kit, log, 3600).counters.passes <= 1


def test_progress_that_cannot_be_read_is_begun_anew() -> None:
    kit = LogKit(SimDisk(), segment_bytes=250)
    log = rotting(kit)
    for content in (b"", b"[]", b'{"begun_ms": 1, "unknown": 2}', b"\xff"):
        kit.disk.replace_file("/data/ottla-scrub-progress", content)
        assert scrub_for(kit, log, 60).counters.passes == 1


def test_segment_jitter_spreads_rolls() -> None:
    ages = set()
    kit = LogKit(segment_ms=10 * DAY_MS, segment_jitter_ms=5 * DAY_MS)
    for number in range(5):
        kit.directory = f"/data/orders-{number}"
        log = kit.open()
        log.append(memoryview(batch(b"x")), 1)
        ages.add(log.segments.active.roll_timestamp - NOW_MS)
    assert len(ages) == 5
    assert all(5 * DAY_MS <= age <= 10 * DAY_MS for age in ages)
