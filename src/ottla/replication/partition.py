"""One partition on this broker: its log, its leadership, and how far readers may see."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from ottla.log.log import PartitionLog
from ottla.log.types import AppendResult, TopicPartition
from ottla.log.verification import Verification
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.records.markers import Marker, encode_marker
from ottla.wire.errors import FencedLeaderEpoch, NotEnoughReplicas, UnknownLeaderEpoch

ACKS_ALL = -1


class Watcher(Protocol):
    """Somebody who wants to know, once, that a partition has more to read, or is gone.

    Once, because whoever knows and has not looked yet need not be told again: a consumer that died costs the
    next append a call, and all later ones nothing.
    """

    def partition_changed(self) -> None: ...


class Partition:
    __slots__ = (
        "high_watermark",
        "is_internal",
        "isr",
        "leader_epoch",
        "log",
        "removed",
        "replicas",
        "topic_id",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self, log: PartitionLog, topic_id: UUID, leader_epoch: int, replicas: tuple[int, ...]
    ) -> None:
        self.topic_partition: TopicPartition = log.topic_partition
        self.is_internal = log.topic_partition.topic in INTERNAL_TOPICS
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = replicas
        self.removed = False
        # The only replica there is has everything that is committed.
        self.high_watermark = log.next_offset
        # A dict for its order: readers are woken in the order they came, the same in every run.
        self.watchers: dict[Watcher, None] = {}

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed transactions stop: before the first that is still open."""
        unstable = self.log.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        # Its first records may have been deleted.
        return max(unstable, self.log.start_offset)

    @property
    def log_start_offset(self) -> int:
        return self.log.start_offset

    def check_leader_epoch(self, epoch: int) -> None:
        """Refuse a client whose metadata is older or newer than ours; -1 means it does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        topic, partition = self.topic_partition
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{topic}-{partition}: leader epoch {epoch} is older than the current {self.leader_epoch}; "
                "refresh metadata"
            )
        raise UnknownLeaderEpoch(
            f"{topic}-{partition}: leader epoch {epoch} is newer than the current {self.leader_epoch}; retry"
        )

    def append(
        self,
        records: memoryview,
        acks: int,
        transaction: Verification | None = None,
        *,
        trusted: bool = False,
        walk: bool = False,
        prepared: bool = False,
    ) -> AppendResult:
        """`trusted` records are the broker's own; `transaction` is for those of a transactional producer.

        For `walk` and `prepared` see `PartitionLog.append`.
        """
        if acks == ACKS_ALL and len(self.isr) < self.log.config.min_insync_replicas:
            raise self._too_few_in_sync()
        result = self.log.append(records, self.leader_epoch, trusted, transaction, 0, walk, prepared)
        self.high_watermark = self.log.next_offset
        if self.watchers:
            self.notify()
        return result

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int = 0,
    ) -> AppendResult:
        """End a producer's transaction here. A zombie, as producer or as coordinator, gets a KafkaError."""
        if len(self.isr) < self.log.config.min_insync_replicas:
            raise self._too_few_in_sync()
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, committed)
        records = memoryview(encode_marker(marker, self.log.now_ms()))
        result = self.log.append(
            records, self.leader_epoch, trusted=True, transaction_version=transaction_version
        )
        self.high_watermark = self.log.next_offset
        self.notify()
        return result

    def _too_few_in_sync(self) -> NotEnoughReplicas:
        topic, partition = self.topic_partition
        return NotEnoughReplicas(
            f"{topic}-{partition} has {len(self.isr)} in-sync replicas, fewer than "
            f"min.insync.replicas={self.log.config.min_insync_replicas}"
        )

    def notify(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.partition_changed()

    def remove(self) -> None:
        """Readers that wait here learn it at once instead of at their time-out."""
        self.removed = True
        self.notify()
