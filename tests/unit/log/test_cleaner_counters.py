"""What the cleaner and the scrub count, for those who watch a broker."""

from __future__ import annotations

import asyncio

from log_kit import NOW_MS, LogKit, refused

from ottla.config import BrokerConfig
from ottla.log.cleaner import LogCleaner
from ottla.log.log import PartitionLog
from ottla.log.scrubber import Scrubber
from ottla.log.types import CorruptBatch, TopicPartition
from ottla.records.records import Record, encode_batch

BROKER = BrokerConfig.from_properties({"node.id": "1"})


async def nothing() -> None: ...


def table(kit: LogKit) -> PartitionLog:
    """Three keys over and over, in many segments."""
    kit.disk.make_dirs("/data")
    log = kit.open()
    for index in range(60):
        log.append(memoryview(encode_batch([Record(b"%d" % (index % 3), bytes(50), NOW_MS)])), 1)
    return log


def test_a_round_of_compaction_is_counted_with_its_bytes_and_time() -> None:
    kit = LogKit(cleanup_compact=True, cleanup_delete=False, segment_bytes=1000)
    log = table(kit)
    cleaner = LogCleaner(kit.runtime, lambda: BROKER, lambda: {"/data": [log]}, nothing, refused, refused)
    counters = cleaner.counters
    assert (counters.rounds, counters.looked_ms, counters.round_ended_ms) == (0, -1, -1)
    at_rest = log.size_bytes - log.segments.active.size
    assert asyncio.run(cleaner.clean_dirtiest(lambda _: log.next_offset))
    assert (counters.rounds, counters.failures, cleaner.rounds_under_way) == (1, 0, 0)
    assert counters.looked_ms == counters.round_ended_ms == NOW_MS
    assert counters.dirty_ratio_max == 1.0
    # Each byte is read to find the last of its key and to be written anew.
    assert counters.bytes_read >= at_rest
    assert counters.bytes_written == log.size_bytes - log.segments.active.size
    assert 0 < counters.bytes_written < at_rest / 4

    kit.clock.ms += 5000
    assert not asyncio.run(cleaner.clean_dirtiest(lambda _: log.next_offset))
    assert (counters.rounds, counters.dirty_ratio_max) == (1, 0.0)
    assert (counters.looked_ms, counters.round_ended_ms) == (NOW_MS + 5000, NOW_MS)


def test_damage_goes_with_its_topic() -> None:
    kit = LogKit()
    scrubber = Scrubber(kit.runtime, lambda: BROKER, lambda: {}, refused)
    for topic in ("orders", "others"):
        scrubber.found[f"/data/{topic}-3/0.log", 0] = CorruptBatch(topic, 3, 0, 0, "0.log", "rot")
    scrubber.forget(TopicPartition("orders", 3))
    assert [damaged.topic for damaged in scrubber.found.values()] == ["others"]
