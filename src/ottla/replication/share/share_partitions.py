"""The partitions that share groups read here: each from when it is first wanted until it is led elsewhere, or
nobody of the group is connected any more."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.metadata.change import MetadataChange
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.replication.share.persister import Persister, ShareKey
from ottla.replication.share.settings import SettingsOf
from ottla.replication.share.share_partition import SharePartition
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import SeldomEach
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import NotLeaderOrFollower, UnknownTopicId


class SharePartitions:
    def __init__(
        self,
        replicas: ReplicaManager,
        persister: Persister,
        settings_of: SettingsOf,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._replicas = replicas
        self._persister = persister
        self._settings_of = settings_of
        self._clock = clock
        self._tasks = tasks
        self._complaints = SeldomEach(clock)
        self._of_group: dict[str, dict[ShareKey, SharePartition]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of_group.values()))

    def __iter__(self) -> Iterator[SharePartition]:
        for partitions in self._of_group.values():
            yield from partitions.values()

    def of_group(self, group_id: str) -> list[SharePartition]:
        return list(self._of_group.get(group_id, {}).values())

    def led(self, key: ShareKey) -> Partition:
        """Raises what a member is told that asks the wrong broker."""
        hosted = self._replicas.by_id.get(key.topic_id.bytes)
        if hosted is None:
            raise UnknownTopicId(f"this broker knows no topic with id {key.topic_id}")
        partition = hosted.get(key.partition)
        if partition is None:
            raise hosted.why_missing(key.partition)
        partition.check_leads()
        return partition

    def find(self, key: ShareKey) -> SharePartition | None:
        """One that is in use."""
        found = self._of_group.get(key.group_id, {}).get(key)
        if found is not None and not found.is_current:
            self._fence(found)
            return None
        return found

    def open(self, key: ShareKey) -> SharePartition:
        """As `led`; its state may still have to be read."""
        partition = self.led(key)
        found = self.find(key)
        if found is not None and found.partition is partition:
            return found
        if found is not None:
            self._fence(found)
        opened = SharePartition(
            key,
            partition,
            self._persister,
            self._settings_of,
            self._clock,
            self._tasks,
            self._replicas.look_ups,
            self._fenced,
            self._complaints,
        )
        self._of_group.setdefault(key.group_id, {})[key] = opened
        return opened

    def forget(self, group_id: str) -> None:
        """Nobody of the group is here any more: what others may change meanwhile is read anew."""
        for partition in self.of_group(group_id):
            if partition.is_idle:
                self._fence(partition)

    def apply(self, change: MetadataChange) -> None:
        """Partitions have their new roles already."""
        if change.topics:
            for partition in list(self):
                if not partition.is_current:
                    self._fence(partition)

    def _fence(self, partition: SharePartition) -> None:
        tp = partition.partition.topic_partition
        partition.fence(
            NotLeaderOrFollower(f"this broker no longer gives records of {tp} to the group; retry")
        )

    def _fenced(self, partition: SharePartition) -> None:
        of_group = self._of_group.get(partition.key.group_id, {})
        if of_group.get(partition.key) is partition:
            del of_group[partition.key]
            if not of_group:
                del self._of_group[partition.key.group_id]
