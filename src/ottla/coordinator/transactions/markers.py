"""Tells partitions how a transaction ended, as often as it takes.

The first attempt at those that this broker leads is made at once, so that as a rule a producer finds its
transaction complete when it begins the next. For the others the brokers that lead them are asked, one request
to each per round. Nothing may be told twice with a new transaction between: that would end the wrong one. So
one task at most tells of a decision, and none goes on after another coordinator has taken over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from ottla.client.errors import error_for
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.host.committed import FlushedAndCommitted, wait_committed
from ottla.coordinator.transactions.commands import Decided
from ottla.coordinator.transactions.remote_markers import RemoteMarkers, Told
from ottla.log.types import TopicPartition
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.records.markers import Marker
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import ErrorCode, KafkaError, NotLeaderOrFollower

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
_NOBODY = -1


class Leadership(Protocol):
    """What the writer asks of the coordinator."""

    def leader_epoch(self, partition: int) -> int | None:
        """Of the coordinator's own topic, None where this broker does not lead."""
        ...

    def leader_of(self, tp: TopicPartition) -> int | None:
        """The broker that leads it, -1 while nobody does; None: the cluster has no such partition."""
        ...

    def told(self, partition: int, decided: Decided) -> None:
        """Every partition knows."""
        ...


class _Appended(NamedTuple):
    """A marker that is in a log of this broker and not yet as safe there as it has to be."""

    partition: Partition
    pending: Awaitable[None]


class MarkerWriter:
    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        remote: RemoteMarkers,
        leadership: Leadership,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._groups = groups
        self._remote = remote
        self._leadership = leadership
        self._tasks = tasks
        self._says_retries = Seldom(clock)
        self._under_way: set[tuple[str, int]] = set()
        """Transactional ids with the coordinator's epoch."""

    def write(self, partition: int, decided: Decided) -> None:
        """`partition` is the coordinator's own, of the transaction topic."""
        epoch = self._leadership.leader_epoch(partition)
        if epoch is None or (decided.transactional_id, epoch) in self._under_way:
            return
        left: list[TopicPartition] = []
        appended: list[_Appended] = []
        for tp in decided.partitions:
            if tp.topic == OFFSETS_TOPIC or self._leadership.leader_of(tp) != self._node_id:
                left.append(tp)
                continue
            try:
                found = self._append(tp, decided, epoch)
                pending = wait_committed(found)
            except Exception as error:
                if not self._is_over(tp, error):
                    left.append(tp)
            else:
                if pending is not None:
                    appended.append(_Appended(found, pending))
        if not left and not appended:
            self._leadership.told(partition, decided)
            return
        self._under_way.add((decided.transactional_id, epoch))
        self._tasks.spawn(
            self._write_rest(partition, epoch, decided, left, appended),
            f"markers-{decided.transactional_id}",
        )

    async def _write_rest(
        self,
        partition: int,
        epoch: int,
        decided: Decided,
        left: list[TopicPartition],
        appended: list[_Appended],
    ) -> None:
        try:
            left, uncommitted = await asyncio.gather(
                self._tell_all(left, decided, epoch), self._uncommitted(appended)
            )
            left += uncommitted
            while left:
                await asyncio.sleep(_RETRY_SECONDS)
                if self._leadership.leader_epoch(partition) != epoch:
                    return
                left = await self._tell_all(left, decided, epoch)
        finally:
            self._under_way.discard((decided.transactional_id, epoch))
        self._leadership.told(partition, decided)

    async def _tell_all(
        self, partitions: list[TopicPartition], decided: Decided, epoch: int
    ) -> list[TopicPartition]:
        """One round; those that have to be told again."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self._leadership.leader_of(tp)
            if leader is not None:
                by_leader.setdefault(leader, []).append(tp)
        left = by_leader.pop(_NOBODY, [])
        own = by_leader.pop(self._node_id, [])
        answers = await asyncio.gather(
            *(self._tell(tp, decided, epoch) for tp in own),
            *(self._tell_broker(broker_id, led, decided, epoch) for broker_id, led in by_leader.items()),
        )
        return sorted(left + [tp for answer in answers for tp in answer])

    async def _uncommitted(self, appended: list[_Appended]) -> list[TopicPartition]:
        return [each.partition.topic_partition for each in appended if not await self._is_committed(*each)]

    async def _tell_broker(
        self, broker_id: int, partitions: Sequence[TopicPartition], decided: Decided, epoch: int
    ) -> list[TopicPartition]:
        marker = Marker(decided.producer_id, decided.epoch, epoch, decided.committed)
        told = Told(marker, decided.client_version, sorted(partitions))
        try:
            codes = await self._remote.write(broker_id, told)
        except Exception as error:
            return [tp for tp in partitions if not self._is_over(tp, error)]
        refused = [(tp, code) for tp, code in codes.items() if code is not ErrorCode.none]
        return [
            tp for tp, code in refused if not self._is_over(tp, error_for(code, None, f"broker {broker_id}"))
        ]

    async def _tell(self, tp: TopicPartition, decided: Decided, epoch: int) -> list[TopicPartition]:
        """Here."""
        return [] if await self._is_told(tp, decided, epoch) else [tp]

    async def _is_told(self, tp: TopicPartition, decided: Decided, epoch: int) -> bool:
        try:
            if tp.topic == OFFSETS_TOPIC:
                await self._groups.complete_transaction(
                    tp.partition,
                    decided.producer_id,
                    decided.epoch,
                    epoch,
                    decided.committed,
                    decided.client_version,
                )
                return True
            found = self._append(tp, decided, epoch)
            pending = wait_committed(found)
        except Exception as error:
            return self._is_over(tp, error)
        return pending is None or await self._is_committed(found, pending)

    async def _is_committed(self, found: Partition, pending: Awaitable[None]) -> bool:
        """A marker once written is not written again while this broker leads: only its flush is tried until
        it succeeds. Whoever leads next may lack it, and is told anew."""
        tp = found.topic_partition
        while True:
            try:
                await pending
            except NotLeaderOrFollower:
                return self._leadership.leader_of(tp) is None
            except (KafkaError, OSError) as error:
                if self._leadership.leader_of(tp) is None:
                    return True
                self._say(tp, error)
                await asyncio.sleep(_RETRY_SECONDS)
                pending = FlushedAndCommitted(found)
            else:
                return True

    def _append(self, tp: TopicPartition, decided: Decided, epoch: int) -> Partition:
        found = self._replicas.partition(*tp)
        found.append_marker(
            decided.producer_id, decided.epoch, epoch, decided.committed, decided.client_version
        )
        return found

    def _is_over(self, tp: TopicPartition, error: Exception) -> bool:
        """Whether there is no use in trying again."""
        if self._leadership.leader_of(tp) is None:
            return True
        if isinstance(error, KafkaError) and error.code is ErrorCode.invalid_producer_epoch:
            # Its producer has moved on there, which it can only after this transaction has ended.
            log.warning("%s needs no marker any more: %s", tp, error)
            return True
        self._say(tp, error)
        return False

    def _say(self, tp: TopicPartition, error: Exception) -> None:
        if self._says_retries.is_due():
            log.warning(
                "%s cannot be told how a transaction ended: %s; trying again until it can, as with others "
                "that this may have happened to",
                tp,
                error if isinstance(error, KafkaError | OSError) else repr(error),
            )
