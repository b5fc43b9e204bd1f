"""Looks into the nodes of a simulated cluster: who leads when, what is committed, and which paths were taken.

It stands between the product's methods and their callers for as long as a run lasts, and changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ottla.controller.controller import LocalController
from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.hosted import log as coordinator_log
from ottla.log.manager import LogManager
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage
from ottla.raft.driver import Leadership, RaftDriver
from ottla.replication.in_sync import InSync
from ottla.replication.leadership import IsrState
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition
from ottla.server.connection import log as connection_log
from ottla.sim.chaos.session import NAMES
from ottla.sim.checkers import InvariantViolation
from ottla.sim.cluster.forbidden import HighWatermarkGoingBack, TwoLeadersInAnEpoch
from ottla.sim.loop import PROCESS

CALLS: tuple[tuple[type, str, str], ...] = (
    (LogManager, "truncate", "path: log of a follower cut"),
    (LogManager, "truncate_fully_and_start_at", "path: log of a follower begun anew"),
    (RaftDriver, "_truncate", "path: metadata log cut"),
    (RaftDriver, "_install", "path: metadata snapshot fetched"),
    (HostedShard, "_load", "path: coordinator loaded"),
    (Partition, "append_marker", "path: transaction marker written"),
)


def host_here() -> str:
    """Whose code runs now."""
    process = PROCESS.get()
    return "" if process is None else process.name


class Witness:
    def __init__(
        self,
        counts: Counter[str],
        failed: Callable[[InvariantViolation], None],
        is_harmed: Callable[[str], bool],
    ) -> None:
        self.leaders = TwoLeadersInAnEpoch()
        self.high_watermarks = HighWatermarkGoingBack()
        self._counts = counts
        self._failed = failed
        self._is_harmed = is_harmed
        self._seen_offset = -1
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Witness:
        for owner, name, label in CALLS:
            self._before(owner, name, lambda *_, label=label, **__: self._counts.update([label]))
        self._after(Partition, "_advance", self._advanced)
        self._before(Partition, "lead", self._leads)
        self._before(Partition, "truncated", self._truncated)
        self._before(LocalController, "on_leadership", self._controls)
        self._before(ReplicaManager, "apply", self._applied)
        for log in (connection_log, coordinator_log):
            self._hear(log, "exception", self._went_wrong)
            self._hear(log, "error", self._may_have_gone_wrong)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _before(self, owner: type, name: str, look: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            look(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        self._put(owner, name, original, watched)

    def _after(self, owner: type, name: str, look: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            look(self)
            return result

        self._put(owner, name, original, watched)

    def _hear(self, log: logging.Logger, name: str, look: Callable[..., None]) -> None:
        original = getattr(log, name)

        def heard(*args: Any, **kwargs: Any) -> None:
            look(*args, **kwargs)
            original(*args, **kwargs)

        self._put(log, name, original, heard)

    def _put(self, owner: object, name: str, original: Any, watched: Any) -> None:
        setattr(owner, name, watched)
        self._stack.callback(setattr, owner, name, original)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Not where it happens: there somebody would take it for an error of the node."""
        try:
            yield
        except InvariantViolation as violation:
            self._failed(violation)

    # What is seen.

    def _may_have_gone_wrong(self, text: str, *details: object, exc_info: object = None) -> None:
        # What `exception` says comes by here again, with another.
        if isinstance(exc_info, BaseException):
            self._went_wrong(text, *details, error=exc_info)

    def _went_wrong(self, text: str, *details: object, error: BaseException | None = None) -> None:
        """An error that nobody expected ended a request, or a command, and not the node."""
        error = error or sys.exc_info()[1]
        violation = InvariantViolation("NodeThatFails", f"{host_here()}: {text % details}: {error!r}")
        violation.__cause__ = error
        self._failed(violation)

    def _advanced(self, partition: Partition) -> None:
        replica = (partition.topic_id, partition.topic_partition.partition)
        self.high_watermarks.committed(replica, partition.leader_epoch, partition.high_watermark)

    def _leads(
        self, partition: Partition, in_sync: InSync, state: IsrState, replicas: tuple[int, ...]
    ) -> None:
        host = host_here()
        replica = (partition.topic_id, partition.topic_partition.partition)
        with self._told():
            self.leaders.leads(replica, state.leader_epoch, host)
            is_new = partition.leadership is None or state.leader_epoch > partition.leadership.leader_epoch
            if is_new:
                self.high_watermarks.leads(replica, state.leader_epoch, host, partition.log.next_offset)

    def _truncated(self, partition: Partition) -> None:
        host = host_here()
        # Where records are deleted, a log may begin anew within a batch.
        if not self._is_harmed(host) and partition.topic_partition.topic not in NAMES:
            replica = (partition.topic_id, partition.topic_partition.partition)
            with self._told():
                self.high_watermarks.truncated(
                    replica, host, partition.high_watermark, partition.log.next_offset
                )

    def _controls(self, controller: LocalController, leadership: Leadership) -> None:
        host = host_here()
        if leadership.leader_id is not None and host == f"n{leadership.leader_id}":
            self._counts["path: controller elected"] += 1
            with self._told():
                self.leaders.leads("the metadata quorum", leadership.epoch, host)

    def _applied(self, _: ReplicaManager, change: MetadataChange) -> None:
        """By whoever is the first to know of it."""
        if change.after.offset > self._seen_offset:
            self._seen_offset = change.after.offset
            self._count_partitions(change)
            self._count_brokers(change.before, change.after)

    def _count_partitions(self, change: MetadataChange) -> None:
        for topic in change.topics:
            if topic.before is None or topic.after is None or topic.before.id != topic.after.id:
                continue
            for before, after in zip(topic.before.partitions, topic.after.partitions, strict=False):
                if after.leader != before.leader:
                    self._counts["path: leader elected" if after.leader >= 0 else "path: no leader left"] += 1
                if {*after.isr} - {*before.isr}:
                    self._counts["path: ISR expanded"] += 1
                if {*before.isr} - {*after.isr}:
                    self._counts["path: ISR shrunk"] += 1
                if {*after.eligible_leader_replicas} - {*before.eligible_leader_replicas}:
                    self._counts["path: replica eligible out of the ISR"] += 1
                if after.leader_recovery_state > before.leader_recovery_state:
                    self._counts["path: last known leader elected"] += 1
                if after.is_reassigned and not before.is_reassigned:
                    self._counts["path: reassignment begun"] += 1
                if before.is_reassigned and not after.is_reassigned:
                    self._counts["path: reassignment over"] += 1

    def _count_brokers(self, before: MetadataImage, after: MetadataImage) -> None:
        for broker_id, broker in after.brokers.items():
            known = before.brokers.get(broker_id)
            if known is None or known is broker:
                continue
            if broker.fenced and not known.fenced:
                self._counts["path: broker fenced"] += 1
            if known.fenced and not broker.fenced:
                self._counts["path: broker unfenced"] += 1
            if broker.in_controlled_shutdown and not known.in_controlled_shutdown:
                self._counts["path: controlled shutdown"] += 1
