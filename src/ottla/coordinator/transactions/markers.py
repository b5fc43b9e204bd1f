"""Tells partitions how a transaction ended, as often as it takes.

The first attempt is made at once, so that as a rule a producer finds its transaction complete when it begins
the next. Nothing may be told twice with a new transaction between: that would end the wrong one. So one task
at most tells of a decision, and none goes on after another coordinator has taken over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from ottla.coordinator.runtime import GroupCoordinator
from ottla.coordinator.transactions.commands import Decided
from ottla.log.log import PartitionLog
from ottla.log.types import TopicPartition
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.replication.manager import ReplicaManager
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1


class Leadership(Protocol):
    """What the writer asks of the coordinator."""

    def leader_epoch(self, partition: int) -> int | None: ...

    def has_partition(self, tp: TopicPartition) -> bool:
        """Whether it exists in the cluster."""
        ...

    def told(self, partition: int, decided: Decided) -> None:
        """Every partition knows."""
        ...


class MarkerWriter:
    def __init__(
        self,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        leadership: Leadership,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
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
        unflushed: list[PartitionLog] = []
        for tp in decided.partitions:
            if tp.topic == OFFSETS_TOPIC:
                left.append(tp)
                continue
            try:
                appended = self._append(tp, decided, epoch)
            except Exception as error:
                if not self._is_settled(tp, error):
                    left.append(tp)
            else:
                if appended.reached_flush_messages:
                    unflushed.append(appended)
        if not left and not unflushed:
            self._leadership.told(partition, decided)
            return
        self._under_way.add((decided.transactional_id, epoch))
        self._tasks.spawn(
            self._write_rest(partition, epoch, decided, left, unflushed),
            f"markers-{decided.transactional_id}",
        )

    async def _write_rest(
        self,
        partition: int,
        epoch: int,
        decided: Decided,
        left: list[TopicPartition],
        unflushed: list[PartitionLog],
    ) -> None:
        try:
            for appended in unflushed:
                await self._flush(appended)
            while left := [tp for tp in left if not await self._tell(tp, decided, epoch)]:
                await asyncio.sleep(_RETRY_SECONDS)
                if self._leadership.leader_epoch(partition) != epoch:
                    return
        finally:
            self._under_way.discard((decided.transactional_id, epoch))
        self._leadership.told(partition, decided)

    async def _tell(self, tp: TopicPartition, decided: Decided, epoch: int) -> bool:
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
            elif (appended := self._append(tp, decided, epoch)).reached_flush_messages:
                await self._flush(appended)
        except Exception as error:
            return self._is_settled(tp, error)
        return True

    async def _flush(self, appended: PartitionLog) -> None:
        """A marker once written must not be written again: only its flush is tried until it succeeds."""
        while True:
            try:
                await appended.flush()
            except (KafkaError, OSError) as error:
                tp = appended.topic_partition
                if not self._leadership.has_partition(tp):
                    return
                self._say(tp, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _append(self, tp: TopicPartition, decided: Decided, epoch: int) -> PartitionLog:
        """Where the log is flushed with every message, the marker counts once that is done."""
        found = self._replicas.partition(*tp)
        found.append_marker(
            decided.producer_id, decided.epoch, epoch, decided.committed, decided.client_version
        )
        return found.log

    def _is_settled(self, tp: TopicPartition, error: Exception) -> bool:
        """Whether there is no use in trying again."""
        if not self._leadership.has_partition(tp):
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
