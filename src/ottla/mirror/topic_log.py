"""A mirror's own small topics: made where they are missing, read to their ends, written to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final

from ottla.client.admin.topics import NewTopic, Partition, create_topics
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.produce import produce_once
from ottla.mirror.batches import read_committed
from ottla.records.records import Record, encode_batch, iter_records

_COMPACTED: Final = {"cleanup.policy": "compact"}
_FACTOR_MAX: Final = 3
_WAIT_S: Final = 60.0
_BATCH_RECORDS_MAX: Final = 1000


async def replication_factor(cluster: ClusterClient, wanted: int | None, most: int = _FACTOR_MAX) -> int:
    """What was asked for, or else MirrorMaker's default as far as there are brokers for it."""
    return wanted or min(most, len((await cluster.cluster()).brokers))


async def ensure_topic(cluster: ClusterClient, name: str, factor: int | None, partitions: int = 1) -> None:
    """A compacted topic, if there is none of the name."""
    if name not in await cluster.topics([name]):
        copies = await replication_factor(cluster, factor)
        await create_topics(cluster, [NewTopic(name, partitions, copies, _COMPACTED)])


async def append(cluster: ClusterClient, topic: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """To the first partition. Whether an answer that was lost was a success is not known: what is written
    here may be written twice."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(key, value, now_ms) for key, value in pairs]
    for start in range(0, len(records), _BATCH_RECORDS_MAX):
        await produce_once(cluster, topic, 0, encode_batch(records[start : start + _BATCH_RECORDS_MAX]))


class TopicReader:
    """All committed records of a topic, once each; `read_to_end` calls `take` for those that are new, with
    key, value and time in ms."""

    def __init__(
        self, cluster: ClusterClient, topic: str, take: Callable[[bytes, bytes | None, int], None]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._take = take
        self._positions: dict[Partition, int] = {}
        self._lock = asyncio.Lock()

    async def read_to_end(self) -> None:
        """To where the topic ends now, also past transactions that are open now: their ends are waited for.

        Nothing is read of a topic that does not exist.
        """
        async with self._lock:
            topics = await self._cluster.topics([self._topic])
            if self._topic not in topics:
                return
            partitions = [Partition(self._topic, number) for number in topics[self._topic].partitions]
            ends = await self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
            starts = await self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
            async with asyncio.timeout(_WAIT_S):
                for partition in partitions:
                    await self._read(partition, starts[partition].offset, ends[partition].offset)

    async def _read(self, partition: Partition, start: int, end: int) -> None:
        position = self._positions.get(partition, start)
        if position > end:
            # The topic was made anew.
            position = start
        position = max(position, start)
        while position < end:
            fetched = await self._cluster.fetch(*partition, position, read_committed=True)
            read = read_committed(fetched.records, fetched.aborted, position)
            for batch in read.batches:
                for record in iter_records(batch.data):
                    if record.key is not None:
                        self._take(record.key, record.value, record.timestamp_ms)
            position = read.next_offset
        self._positions[partition] = position
