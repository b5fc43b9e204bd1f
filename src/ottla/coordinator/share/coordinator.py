"""The share coordinator of one broker: finds the shard of a share-partition, and keeps its log short."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable
from typing import Any, Protocol

from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.shard_kind import Command, ShardKind
from ottla.coordinator.host.shard_log import ShardLog
from ottla.coordinator.host.shards import Shards
from ottla.coordinator.share.commands import SharePartition, Summary, WriteRequest
from ottla.coordinator.share.records import decode, encode
from ottla.coordinator.share.settings import ShareSettings
from ottla.coordinator.share.shard import ShareShard, ShareState
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla.runtime.clock import Clock
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import InvalidGroupId, InvalidRequest, KafkaError, NotCoordinator

log = logging.getLogger(__name__)

_ID_LENGTH_MAX = 8_000
"""Characters; in UTF-8 they fit into the 32 kB that strings of the stored records may have."""


class PrunedLog(ShardLog, Protocol):
    def delete_before(self, partition: int, offset: int) -> None:
        """Forget all records before an offset that is committed."""
        ...


class ShareCoordinator:
    def __init__(
        self, node_id: int, settings: ShareSettings, state_log: PrunedLog, clock: Clock, tasks: TaskScope
    ) -> None:
        self._settings = settings
        self._log = state_log
        self._image = MetadataImage()
        kind = ShardKind(
            topic=SHARE_STATE_TOPIC,
            noun="states of share groups",
            remedy="look at the groups with ottla share-groups --describe, and set offsets that went back "
            "with --reset-offsets",
            log=state_log,
            new=lambda: ShareShard(settings, self._partition_count, self._record_bytes_max),
            loaded=lambda shard, now: shard.tick(now),
            encode=encode,
            decode=decode,
            codec=settings.codec,
        )
        self._shards = Shards(kind, node_id, clock, tasks)

    # --- life

    def begin(self, image: MetadataImage) -> None:
        """Before the first change is applied."""
        self._image = image
        self._shards.follow(image)

    def apply(self, change: MetadataChange) -> None:
        """Leadership and topics as of now; the partitions themselves are there already."""
        self._image = change.after
        if not change.topics:
            return
        self._shards.follow(change.after)
        deleted = {topic.removed.id for topic in change.topics if topic.removed is not None}
        if deleted:
            for hosted in self._shards:
                hosted.notify(lambda shard, now: shard.topics_deleted(deleted, now))

    def close(self) -> None:
        self._shards.close()

    async def wait_loaded(self) -> None:
        await self._shards.wait_loaded()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.prune_interval_ms / 1000)
            await self.prune()

    async def prune(self) -> None:
        """Nothing is compacted in this topic, because what an update says is not all there is to know."""
        for partition in self._shards.loaded():
            try:
                await self._prune(self._shards.of_partition(partition))
            except (KafkaError, OSError) as error:
                log.warning("%s-%d is not made shorter now: %s", SHARE_STATE_TOPIC, partition, error)

    async def _prune(self, hosted: HostedShard[ShareShard]) -> None:
        # Whatever has been decided and is not in the log yet comes behind this, and so do the snapshots.
        end_offset = self._log.end_offset(hosted.partition)
        if await hosted.submit(lambda shard, ticket, now: shard.snapshot_all(ticket, now)):
            self._log.delete_before(hosted.partition, end_offset)

    def partition_for(self, name: SharePartition) -> int:
        """Raises CoordinatorNotAvailable until the topic exists."""
        return self._shards.partition_for(str(name))

    def _partition_count(self, topic_id: uuid.UUID) -> int:
        topic = self._image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def _record_bytes_max(self) -> int:
        return min(map(self._log.batch_bytes_max, self._shards.loaded()), default=0)

    def _submit(self, name: SharePartition, command: Command[ShareShard]) -> asyncio.Future[Any]:
        if not name.group_id:
            raise InvalidGroupId("group.id must not be empty")
        if len(name.group_id) > _ID_LENGTH_MAX:
            raise InvalidRequest(
                f"a group id of {len(name.group_id)} characters cannot be stored; at most "
                f"{_ID_LENGTH_MAX} can"
            )
        if SHARE_STATE_TOPIC not in self._image.topics:
            raise NotCoordinator(f"{SHARE_STATE_TOPIC} does not exist; find the coordinator, which makes it")
        return self._shards.submit(str(name), command)

    # --- commands; all raise KafkaError, when called or when awaited

    def initialize(self, name: SharePartition, state_epoch: int, start_offset: int) -> Awaitable[None]:
        return self._submit(
            name, lambda shard, ticket, now: shard.initialize(name, state_epoch, start_offset, ticket, now)
        )

    def read(self, name: SharePartition, leader_epoch: int) -> Awaitable[ShareState]:
        return self._submit(name, lambda shard, ticket, now: shard.read(name, leader_epoch, ticket, now))

    def write(self, name: SharePartition, request: WriteRequest) -> Awaitable[None]:
        return self._submit(name, lambda shard, ticket, now: shard.write(name, request, ticket, now))

    def delete(self, name: SharePartition) -> Awaitable[None]:
        return self._submit(name, lambda shard, ticket, now: shard.delete(name, ticket, now))

    def summarize(self, name: SharePartition) -> Awaitable[Summary]:
        return self._submit(name, lambda shard, ticket, now: shard.summarize(name, ticket, now))
