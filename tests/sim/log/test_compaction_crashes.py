"""Power cuts and deaths at any step of compaction: no key loses its latest value, none comes back."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from uuid import UUID

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.config import BrokerConfig, LogConfig
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.scrub import verify
from ottla.log.types import TopicPartition
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Runtime
from ottla.runtime.net import AsyncioNetwork
from ottla.sim.disk import SimDisk
from ottla.sim.loop import ProcessDied

P = ParamSpec("P")
T = TypeVar("T")

NOW_MS = 1_750_000_000_000
DELETE_RETENTION_MS = 1000
ORDERS = TopicPartition("orders", 0)


class ManualClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


class Raw:
    """The log as it was written, never compacted: (key, value) by offset, aborted ones left out."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()

    def latest(self, from_offset: int) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(self.records.items()):
            found[key] = (offset, value)
        return {key: entry for key, entry in found.items() if entry[0] >= from_offset}

    def check(self, log: PartitionLog, from_offset: int) -> None:
        """Reading from an offset gives the latest value of each key whose latest is there."""
        seen: dict[bytes, tuple[int, bytes | None]] = {}
        last = -1
        for record, committed in consume(log, from_offset):
            assert record.offset > last, "offsets ascend"
            last = record.offset
            if not committed:
                continue
            assert record.key is not None
            assert self.records[record.offset] == (record.key, record.value), "offsets are unchanged"
            seen[record.key] = (record.offset, record.value)
        wanted = self.latest(from_offset)
        for key, entry in wanted.items():
            # A tombstone may be gone when its time has come, but then all that it deleted is, too.
            assert seen.get(key) == entry or (entry[1] is None and key not in seen), (
                key,
                entry,
                seen.get(key),
            )
        assert seen.keys() <= wanted.keys()


def consume(log: PartitionLog, offset: int) -> list[tuple[Record, bool]]:
    """Records with whether their transaction was committed, as a read_committed consumer finds out."""
    found: list[tuple[Record, int]] = []
    aborted: set[tuple[int, int]] = set()
    turns: dict[int, int] = {}
    keys: list[tuple[int, int]] = []
    while offset < log.next_offset:
        data = memoryview(log.read(offset, 400, upto=log.next_offset))
        if not data:
            break
        for at, header in iter_headers(data):
            records = list(iter_records(data[at : at + header.size]))
            producer, turn = header.producer_id, turns.get(header.producer_id, 0)
            if header.is_control:
                for record in records:
                    assert record.key is not None
                    if struct.unpack_from(">hh", record.key)[1] == 0:
                        aborted.add((producer, turn))
                turns[producer] = turn + 1
            else:
                for record in records:
                    if record.offset >= offset:
                        found.append((record, len(keys)))
                        keys.append((producer, turn) if header.is_transactional else (-1, 0))
            offset = header.last_offset + 1
    return [(record, keys[index] not in aborted) for record, index in found]


class Life:
    """A broker's logs on a disk that outlives it."""

    def __init__(self, disk: SimDisk, clock: ManualClock, config: LogConfig) -> None:
        self.runtime = Runtime(clock, disk, AsyncioNetwork(), random.Random(1), InlineOffload())
        self.manager = LogManager(
            self.runtime,
            BrokerConfig.from_properties(
                {
                    "node.id": "1",
                    "log.cleaner.dedupe.buffer.size": "400",
                    "log.cleaner.threads": "0",
                    "log.cleaner.io.buffer.size": "300",
                }
            ),
            ["/data"],
        )
        self.manager.lock()
        self.manager.open(lambda _: config)
        self.log = self.manager.get(ORDERS) or self.manager.create("orders", 0, UUID(int=5), config)

    def clean(self) -> None:
        async def rounds() -> None:
            while await self.manager.cleaner.clean_dirtiest(lambda _: self.log.next_offset):
                pass

        asyncio.run(rounds())

    def write(self, chance: random.Random, raw: Raw, count: int) -> None:
        for _ in range(count):
            records = [
                Record(
                    b"%d" % chance.randrange(12),
                    None if chance.random() < 0.25 else b"%d" % chance.randrange(10**6),
                    self.runtime.clock.now_ms(),
                )
                for _ in range(chance.randint(1, 4))
            ]
            transactional = chance.random() < 0.3
            producer = chance.randrange(3) if transactional else -1
            base = self.append(
                records, producer, codec=chance.choice([0, 0, 3, 4]), transactional=transactional
            )
            aborted = transactional and chance.random() < 0.5
            if transactional:
                kind = 0 if aborted else 1
                marker = Record(
                    struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), self.runtime.clock.now_ms()
                )
                self.append([marker], producer, transactional=True, control=True)
            if not aborted:
                for index, record in enumerate(records):
                    assert record.key is not None
                    raw.records[base + index] = (record.key, record.value)
            if chance.random() < 0.2:
                self.log.roll()

    def append(self, records: list[Record], producer: int, **options: object) -> int:
        data = encode_batch(
            records,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            **options,  # type: ignore[arg-type]
        )
        return self.log.append(memoryview(data), 1, trusted=True).base_offset


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=450812, crashes=[(96, False), (0, False)], segment_bytes=1500)
@given(
    seed=st.integers(0, 2**32),
    crashes=st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=6),
    segment_bytes=st.sampled_from([250, 600, 1500, 1 << 20]),
)
def test_compacted_logs_tell_the_same_as_raw_ones(
    seed: int, crashes: list[tuple[int, bool]], segment_bytes: int
) -> None:
    chance = random.Random(seed)
    disk, clock, raw = SimDisk(seed), ManualClock(), Raw()
    config = LogConfig(
        cleanup_compact=True,
        cleanup_delete=False,
        segment_bytes=segment_bytes,
        index_interval_bytes=100,
        min_cleanable_dirty_ratio=0.0,
        delete_retention_ms=DELETE_RETENTION_MS,
        file_delete_delay_ms=0,
    )
    for operations, power in [*crashes, (10**9, True)]:
        life = Life(disk, clock, config)
        life.write(chance, raw, chance.randint(1, 25))
        life.log.roll()
        asyncio.run(life.log.flush())
        clock.ms += chance.choice([1, DELETE_RETENTION_MS // 2, DELETE_RETENTION_MS * 2])
        disk.crash_after(operations, None if power else disk.kill)
        try:
            life.clean()
            disk.crash()
        except ProcessDied:
            pass
        disk.restart()
        disk.crash_after(None)
        end = life.log.next_offset
        life = Life(disk, clock, config)
        assert life.log.next_offset == end
        assert list(verify(life.log)) == []
        for offset in range(life.log.start_offset, end + 1, chance.randint(1, 7)):
            raw.check(life.log, offset)
        assert not [name for name in disk.list_dir("/data/orders-0") if name.endswith((".swap", ".cleaned"))]
        life.manager.unlock()
