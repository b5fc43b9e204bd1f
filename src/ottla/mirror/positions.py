"""How far the source is mirrored: the offset topic of MirrorMaker's workers, in the target.

Positions are written in the transaction of the records they speak of. Whoever takes a partition over first
ends the transaction of the one before, then reads them: what it finds is all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.mirror.batches import Batch, Piece
from ottla.mirror.formats import (
    SourcePosition,
    position_key,
    position_value,
    read_position_key,
    read_position_value,
)
from ottla.mirror.topic_log import TopicReader, ensure_topic
from ottla.records.key_partition import key_partition
from ottla.records.records import Record, encode_batch

PARTITIONS: Final = 25


class Positions:
    def __init__(self, cluster: ClusterClient, topic: str, alias: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._alias = alias
        self._found: dict[Partition, SourcePosition] = {}
        self._partition_count = 0
        self._reader = TopicReader(cluster, topic, self._take)

    async def ensure(self, factor: int | None) -> None:
        await ensure_topic(self._cluster, self._topic, factor, PARTITIONS)

    async def read(self) -> Mapping[Partition, SourcePosition]:
        """Of all partitions of the source, as they are committed now."""
        await self._reader.read_to_end()
        return self._found

    async def batches(
        self, positions: Mapping[Partition, SourcePosition], now_ms: int
    ) -> dict[Partition, Batch]:
        """What is to be written of positions, by partitions of the topic."""
        if not self._partition_count:
            topics = await self._cluster.topics([self._topic])
            self._partition_count = len(topics[self._topic].partitions) if topics else PARTITIONS
        count = self._partition_count
        records: dict[Partition, list[Record]] = {}
        for partition, position in positions.items():
            key = position_key(self._alias, partition)
            place = Partition(self._topic, key_partition(key, count))
            records.setdefault(place, []).append(Record(key, position_value(position), now_ms))
        return {
            place: Batch(memoryview(encode_batch(rows)), len(rows), (Piece(0, 0, len(rows)),))
            for place, rows in records.items()
        }

    def _take(self, key: bytes, value: bytes | None, _: int) -> None:
        found = read_position_key(key)
        if found is None or found[0] != self._alias:
            return
        position = read_position_value(value)
        if position is None:
            self._found.pop(found[1], None)
        else:
            self._found[found[1]] = position
