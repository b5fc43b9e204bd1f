"""One partition on this broker: its log, its role, and how far readers may see.

Consumers see what lies below the high watermark: what no leader to come can lack. Followers, and coordinators
that load what they wrote, read to the end of the log.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol
from uuid import UUID

from ottla.log.log import PartitionLog
from ottla.log.pending_verification import Verification
from ottla.log.types import AppendResult, TopicPartition
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.records.markers import Marker, encode_marker
from ottla.replication.in_sync import InSync
from ottla.replication.leadership import IsrState, Leadership
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)

ACKS_ALL = -1


class Role(Enum):
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"
    """Its log is deleted, or its disk lost. Whoever still holds the partition has to look for it anew."""


_LEADER = Role.LEADER


class Watcher(Protocol):
    """Somebody who wants to know, once, that a partition has more to read, or is gone.

    Once, because whoever knows and has not looked yet need not be told again: a consumer that died costs the
    next append a call, and all later ones nothing.
    """

    def partition_changed(self) -> None: ...


class Partition:
    __slots__ = (
        "_in_sync",
        "appends",
        "end_watchers",
        "high_watermark",
        "is_internal",
        "isr",
        "leader_epoch",
        "leadership",
        "log",
        "replicas",
        "role",
        "sent_bytes",
        "sent_to_followers",
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
        self.role = Role.LEADER
        self.leadership: Leadership | None = None
        """While it leads, and has followers."""
        self._in_sync: InSync | None = None
        # The only replica there is has everything that is committed.
        self.high_watermark = log.next_offset
        # A dict for its order: readers are woken in the order they came, the same in every run.
        self.watchers: dict[Watcher, None] = {}
        self.end_watchers: dict[Watcher, None] = {}
        """Followers, who read beyond the high watermark."""
        # To be told of, while this object is there.
        self.appends = 0
        self.sent_bytes = 0
        """To whoever fetched."""
        self.sent_to_followers = 0
        """Of these."""

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

    @property
    def may_be_behind(self) -> bool:
        """Just elected, it does not know yet of everything that its predecessor committed."""
        leading = self.leadership
        return leading is not None and self.high_watermark < leading.epoch_start_offset

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

    def check_leads(self) -> None:
        if self.role is not _LEADER:
            raise NotLeaderOrFollower(
                f"this broker does not lead {self.topic_partition}; refresh metadata to find who does"
            )

    def append(
        self,
        records: memoryview,
        acks: int,
        transaction: Verification | None = None,
        trusted: bool = False,
        walk: bool = False,
        prepared: bool = False,
    ) -> AppendResult:
        """As the leader.

        `trusted` records are the broker's own; `transaction` is for those of a transactional producer.
        For `walk` and `prepared` see `PartitionLog.append`.
        """
        if self.role is not _LEADER:
            self.check_leads()
        log = self.log
        if acks == ACKS_ALL and len(self.isr) < log.config.min_insync_replicas:
            self._check_in_sync()
        self.appends += 1
        if self.leadership is not None:
            end_before = log.next_offset
            result = log.append(records, self.leader_epoch, trusted, transaction, 0, walk, prepared)
            self._appended(self.leadership, end_before)
            return result
        result = log.append(records, self.leader_epoch, trusted, transaction, 0, walk, prepared)
        self.high_watermark = log.next_offset
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
        self.check_leads()
        self._check_in_sync()
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, committed)
        records = memoryview(encode_marker(marker, self.log.now_ms()))
        end_before = self.log.next_offset
        result = self.log.append(
            records, self.leader_epoch, trusted=True, transaction_version=transaction_version
        )
        if self.leadership is not None:
            self._appended(self.leadership, end_before)
        else:
            self.high_watermark = self.log.next_offset
            self.notify()
        return result

    # Leading others.

    def lead(self, in_sync: InSync, state: IsrState, replicas: tuple[int, ...]) -> None:
        """As the metadata says, or goes on saying."""
        self._become(Role.LEADER, state.leader_epoch, replicas)
        if len(replicas) == 1:
            # Whoever waited for others that are gone by now need wait no more.
            alone, self.leadership = self.leadership, None
            self.isr = state.isr
            if self.high_watermark != self.log.next_offset:
                self.high_watermark = self.log.next_offset
                self.notify()
            if alone is not None:
                alone.commits.advance(self.high_watermark)
            return
        self._in_sync = in_sync
        if self.leadership is None:
            self.leadership = Leadership(in_sync.node_id)
        leading = self.leadership
        if state.leader_epoch > leading.leader_epoch:
            self.log.begin_leader_epoch(state.leader_epoch)
        leading.assign(state, replicas, self.log.next_offset, in_sync.clock.monotonic())
        self.isr = leading.isr
        self._advance(leading, in_sync)

    def _appended(self, leading: Leadership, end_before: int) -> None:
        in_sync = self._in_sync
        assert in_sync is not None
        leading.appended(end_before, in_sync.clock.monotonic())
        self._advance(leading, in_sync)
        if self.end_watchers:
            self._notify_end()

    def _advance(self, leading: Leadership, in_sync: InSync) -> None:
        """The high watermark, as far as it may."""
        if len(leading.isr) < self._in_sync_min:
            # Or too few would have what consumers have seen.
            return
        upto = leading.committed_upto(
            self.log.next_offset,
            in_sync.eligible(leading),
            in_sync.clock.monotonic(),
            in_sync.lag_seconds_max,
        )
        if upto > self.high_watermark:
            self.high_watermark = upto
            too_few = len(leading.isr) < self._in_sync_min
            leading.commits.advance(upto, self._too_few_after_append() if too_few else None)
            self.notify()
            if self.end_watchers:
                # Followers have to know it, too.
                self._notify_end()

    def followed(self, replica: int, offset: int, start_offset: int, broker_epoch: int) -> None:
        """A follower has asked for what comes at an offset: it has everything below."""
        leading, in_sync = self.leadership, self._in_sync
        follower = None if leading is None else leading.followers.get(replica)
        if leading is None or in_sync is None or follower is None:
            raise UnknownLeaderEpoch(
                f"broker {replica} has no replica of {self.topic_partition} in leader epoch "
                f"{self.leader_epoch}, as far as this broker knows; retry"
            )
        if in_sync.is_outdated(replica, broker_epoch):
            raise NotLeaderOrFollower(
                f"{self.topic_partition}: broker {replica} has registered anew since epoch {broker_epoch}"
            )
        was_at = follower.end_offset
        follower.fetched(offset, start_offset, broker_epoch, self.log.next_offset, in_sync.clock.monotonic())
        if replica not in leading.isr:
            self._expand_isr(leading, in_sync, replica)
        if offset != was_at:
            self._advance(leading, in_sync)

    def expand_isr(self) -> None:
        """Somebody who caught up long ago, and has nothing to ask for, may be allowed to join by now."""
        leading, in_sync = self.leadership, self._in_sync
        if leading is not None and in_sync is not None:
            for replica in in_sync.eligible(leading):
                self._expand_isr(leading, in_sync, replica)

    def _expand_isr(self, leading: Leadership, in_sync: InSync, replica: int) -> None:
        if in_sync.may_join(replica, leading.followers[replica].broker_epoch):
            proposal = leading.expansion(
                self.topic_id,
                self.topic_partition.partition,
                replica,
                self.high_watermark,
                in_sync.broker_epoch,
            )
            if proposal is not None:
                in_sync.propose(self, proposal)

    def shrink_isr(self) -> None:
        """Leave out who has been behind for too long."""
        leading, in_sync = self.leadership, self._in_sync
        if leading is None or in_sync is None:
            return
        proposal = leading.shrinking(
            self.topic_id,
            self.topic_partition.partition,
            self.log.next_offset,
            in_sync.clock.monotonic(),
            in_sync.lag_seconds_max,
            in_sync.broker_epoch,
        )
        if proposal is not None:
            in_sync.propose(self, proposal)

    def isr_agreed(self) -> None:
        """Upon the controller's answer, before the metadata says it, too."""
        if self.leadership is not None and self._in_sync is not None:
            self.isr = self.leadership.isr
            self._advance(self.leadership, self._in_sync)
            self.expand_isr()

    # Following.

    @property
    def is_follower(self) -> bool:
        return self.role is Role.FOLLOWER

    def follow(self, state: IsrState, replicas: tuple[int, ...]) -> None:
        self._become(Role.FOLLOWER, state.leader_epoch, replicas)
        self.isr = state.isr
        self._resign()

    def append_as_follower(self, records: ReadableBuffer, high_watermark: int, start_offset: int) -> None:
        """What the leader has sent, how far that is committed, and where its log begins."""
        log = self.log
        if records:
            log.append_as_follower(records)
        # Committed is only what is here as well.
        if (upto := min(high_watermark, log.next_offset)) > self.high_watermark:
            self.high_watermark = upto
            self.notify()
        if start_offset > log.start_offset:
            log.delete_records_before(min(start_offset, log.next_offset))

    def truncated(self) -> None:
        """What a former leader had written alone is gone."""
        self.high_watermark = max(min(self.high_watermark, self.log.next_offset), self.log.start_offset)

    def _become(self, role: Role, leader_epoch: int, replicas: tuple[int, ...]) -> None:
        was = self.role, self.leader_epoch
        self.role, self.leader_epoch = role, leader_epoch
        self.replicas = replicas
        if was != (role, leader_epoch):
            # Readers that wait here are to find out.
            self._notify_all()

    def _resign(self) -> None:
        leading, self.leadership = self.leadership, None
        if leading is not None:
            leading.commits.fail(
                NotLeaderOrFollower(
                    f"this broker leads {self.topic_partition} no more: what it wrote last may be lost; retry"
                )
            )

    @property
    def _in_sync_min(self) -> int:
        """Never more than there are, as in Apache Kafka: nobody could write to a topic with fewer."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def _check_in_sync(self) -> None:
        if len(self.isr) < self._in_sync_min:
            topic, partition = self.topic_partition
            raise NotEnoughReplicas(
                f"{topic}-{partition} has {len(self.isr)} in-sync replicas, fewer than "
                f"min.insync.replicas={self.log.config.min_insync_replicas}"
            )

    def _too_few_after_append(self) -> NotEnoughReplicasAfterAppend:
        return NotEnoughReplicasAfterAppend(
            f"{self.topic_partition}: the records are written, but to fewer replicas than "
            f"min.insync.replicas={self.log.config.min_insync_replicas}"
        )

    def notify(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.partition_changed()

    def _notify_end(self) -> None:
        watchers, self.end_watchers = self.end_watchers, {}
        for watcher in watchers:
            watcher.partition_changed()

    def _notify_all(self) -> None:
        self.notify()
        self._notify_end()

    def go_offline(self) -> None:
        """Readers that wait here learn it at once instead of at their time-out."""
        self.role = Role.OFFLINE
        self._notify_all()
        self._resign()
