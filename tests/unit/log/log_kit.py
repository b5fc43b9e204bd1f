"""A log on a disk in memory, with a clock that is set by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ottla.config import LogConfig
from ottla.log.log import PartitionLog
from ottla.log.recovery import open_log
from ottla.log.types import TopicPartition
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Disk, Runtime
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.net import AsyncioNetwork
from ottla.sim.disk import SimDisk

P = ParamSpec("P")
T = TypeVar("T")

NOW_MS = 1_750_000_000_000
PARTITION = TopicPartition("orders", 3)
DIR = "/data/orders-3"


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


class LogKit:
    """Opens, reopens and inspects one log."""

    def __init__(self, disk: Disk | None = None, directory: str = DIR, **config: object) -> None:
        self.clock = ManualClock()
        self.disk = disk or SimDisk()
        self.directory = directory
        self.runtime = Runtime(self.clock, self.disk, AsyncioNetwork(), random.Random(7), InlineOffload())
        self.config = LogConfig(**config)  # type: ignore[arg-type]

    def open(
        self,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        start_offset: int = 0,
        keep_damage: bool = True,
    ) -> PartitionLog:
        return open_log(
            self.runtime,
            self.directory,
            PARTITION,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            keep_damage=keep_damage,
        )

    def files(self) -> list[str]:
        return self.disk.list_dir(self.directory)

    def content(self, name: str) -> bytes:
        return self.disk.read_file(f"{self.directory}/{name}")

    def overwrite(self, name: str, data: bytes) -> None:
        self.disk.replace_file(f"{self.directory}/{name}", data)

    def flip(self, name: str, position: int) -> None:
        data = bytearray(self.content(name))
        data[position] ^= 0x40
        self.overwrite(name, bytes(data))


def refused(path: str, *what: object) -> None:
    """For whoever wants to know what a disk refuses, where none does."""
    raise AssertionError(f"{path}: {what}")


def batch(*values: bytes, timestamp_ms: int = NOW_MS, **options: object) -> bytes:
    """Records with ascending timestamps, one millisecond apart."""
    records = [Record(b"k", value, timestamp_ms + index) for index, value in enumerate(values)]
    return encode_batch(records, **options)  # type: ignore[arg-type]


def fill(log: PartitionLog, batches: int, *, size: int = 100, records: int = 1, step_ms: int = 1) -> None:
    for _ in range(batches):
        data = batch(*[bytes(size)] * records, timestamp_ms=NOW_MS + log.next_offset * step_ms)
        log.append(memoryview(data), leader_epoch=1)


def offsets_in(data: ReadableBuffer) -> list[tuple[int, int]]:
    """(base, last) offset of each batch; fails when the data does not end with a whole batch."""
    found = []
    end = 0
    for at, header in iter_headers(data):
        found.append((header.base_offset, header.last_offset))
        end = at + header.size
    assert end == len(data), "a batch is cut off"
    return found


def values_in(data: ReadableBuffer) -> list[bytes | None]:
    view = memoryview(data)
    return [
        record.value
        for at, header in iter_headers(view)
        for record in iter_records(view[at : at + header.size])
    ]


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    offset, found = log.start_offset, []
    while offset < log.next_offset:
        part = offsets_in(log.read(offset, max_bytes, upto=log.next_offset))
        assert part, f"nothing at {offset} of {log.next_offset}"
        found += part
        offset = part[-1][1] + 1
    return found
