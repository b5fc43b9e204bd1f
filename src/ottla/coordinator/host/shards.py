"""All shards of one kind on this broker, one for each partition of their topic that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Generic

from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.shard_kind import Command, S, ShardKind
from ottla.coordinator.host.shard_log import partition_for
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.runtime.clock import Clock
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import CoordinatorNotAvailable, NotCoordinator

# In all, for the shards of one coordinator.
LOAD_WAIT_SECONDS = 1.0


class Shards(Generic[S]):
    def __init__(self, kind: ShardKind[S], node_id: int, clock: Clock, tasks: TaskScope) -> None:
        self._topic = kind.topic
        self._kind = kind
        self._node_id = node_id
        self._clock = clock
        self._tasks = tasks
        self._partitions: tuple[PartitionImage, ...] = ()
        self._hosted: dict[int, tuple[int, HostedShard[S]]] = {}
        """By partition, with the leader epoch it was loaded in."""

    def follow(self, image: MetadataImage) -> None:
        """Load what this broker leads from now on, drop what it no longer does."""
        topic = image.topics.get(self._topic)
        partitions = topic.partitions if topic is not None else ()
        if partitions is self._partitions:
            return
        self._partitions = partitions
        led = {
            index: partition.leader_epoch
            for index, partition in enumerate(partitions)
            if partition.leader == self._node_id
        }
        for index, (epoch, hosted) in list(self._hosted.items()):
            if led.get(index) != epoch:
                hosted.close()
                del self._hosted[index]
        for index, epoch in led.items():
            if index not in self._hosted:
                hosted = HostedShard(index, self._kind, self._clock, self._tasks)
                self._hosted[index] = (epoch, hosted)
                hosted.start()

    def close(self) -> None:
        for _, hosted in self._hosted.values():
            hosted.close(CoordinatorNotAvailable("this broker is stopping; find the coordinator again"))
        self._hosted.clear()

    def partition_for(self, key: str, partitions_to_be: int = 0) -> int:
        """Raises CoordinatorNotAvailable until the topic exists, unless told how large it will be."""
        count = len(self._partitions) or partitions_to_be
        if not count:
            raise CoordinatorNotAvailable(f"{self._topic} does not exist yet; find the coordinator again")
        return partition_for(key, count)

    def hosting(self, key: str) -> HostedShard[S]:
        """Raises NotCoordinator for what another broker coordinates."""
        found = self._hosted.get(self.partition_for(key))
        if found is None:
            raise NotCoordinator(f"{key} is coordinated elsewhere; find its coordinator")
        return found[1]

    def submit(self, key: str, command: Command[S]) -> asyncio.Future[Any]:
        return self.hosting(key).submit(command)

    def of_partition(self, partition: int) -> HostedShard[S]:
        found = self._hosted.get(partition)
        if found is None:
            raise NotCoordinator(f"this broker does not lead {self._topic}-{partition}; refresh metadata")
        return found[1]

    def leader_epoch(self, partition: int) -> int | None:
        """None where this broker does not lead."""
        found = self._hosted.get(partition)
        return None if found is None else found[0]

    def loaded(self) -> list[int]:
        """Partitions whose shards take commands."""
        return [index for index, (_, hosted) in self._hosted.items() if hosted.shard is not None]

    async def wait_loaded(self) -> None:
        """All of them, or a while: whoever made the topic is about to ask."""
        for hosted in self:
            await hosted.wait_loaded(LOAD_WAIT_SECONDS)

    def __iter__(self) -> Iterator[HostedShard[S]]:
        """By partition."""
        return iter([hosted for _, (_, hosted) in sorted(self._hosted.items())])
