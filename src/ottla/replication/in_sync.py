"""Who may be in sync with the leaders on this broker, and how the controller is told who is.

A partition has one proposal under way at most; those of all partitions go out together, and one request at a
time. Where it is not known whether the controller has done what was asked, the metadata will tell.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ottla.metadata.image import MetadataImage
from ottla.replication.leadership import NO_BROKER_EPOCH, IsrProposal, IsrState, Leadership
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.1

IsrAnswer: TypeAlias = IsrState | KafkaError

# The controller says that nothing was done, and that the state the leader knows is the newest.
_NOT_DONE = {ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica}
# What the leader knows is outdated, or it leads no more.
_OUTDATED = {
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.invalid_update_version,
    ErrorCode.invalid_request,
    ErrorCode.new_leader_elected,
}


class IsrChannel(Protocol):
    """The way to the controller, wherever that is."""

    async def alter_isrs(self, broker_epoch: int, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        """An answer to each, in order. Raises a KafkaError where none could be had."""
        ...


class InSync:
    def __init__(self, node_id: int, clock: Clock, lag_seconds_max: float) -> None:
        self.node_id = node_id
        self.clock = clock
        self.lag_seconds_max = lag_seconds_max
        self.image = MetadataImage()
        self._proposals: dict[IsrProposal, Partition] = {}
        self._noted = asyncio.Event()
        self._says = Seldom(clock)
        self.shrinks = self.expansions = 0
        """Of in-sync replicas, as the controller has agreed to them."""

    @property
    def broker_epoch(self) -> int:
        """In which this broker is registered, as far as it knows."""
        broker = self.image.brokers.get(self.node_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """One that was restarted since it was heard of may have lost records."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (NO_BROKER_EPOCH, broker.epoch)

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and NO_BROKER_EPOCH < broker_epoch < broker.epoch

    def eligible(self, leading: Leadership) -> Iterable[int]:
        """The followers that are not in sync, have been heard of and may be."""
        if len(leading.isr) > len(leading.followers):
            return ()
        return [
            broker_id
            for broker_id, follower in leading.followers.items()
            if broker_id not in leading.isr
            and follower.end_offset >= 0
            and self.may_join(broker_id, follower.broker_epoch)
        ]

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self._proposals[proposal] = partition
        self._noted.set()

    async def run(self, channel: IsrChannel) -> None:
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._proposals:
                await self._send(channel)

    async def _send(self, channel: IsrChannel) -> None:
        proposals, self._proposals = self._proposals, {}
        asked = {
            proposal: partition
            for proposal, partition in proposals.items()
            if partition.leadership is not None and partition.leadership.is_current(proposal)
        }
        if not asked:
            return
        try:
            answers = await channel.alter_isrs(self.broker_epoch, list(asked))
        except KafkaError as error:
            if self._says.is_due():
                log.warning("the controller could not be told who is in sync: %s; trying again", error)
            self._proposals = asked | self._proposals
            await asyncio.sleep(RETRY_SECONDS)
            return
        again = {}
        for (proposal, partition), answer in zip(asked.items(), answers, strict=True):
            if not self._settle(partition, proposal, answer):
                again[proposal] = partition
        if again:
            self._proposals = again | self._proposals
            await asyncio.sleep(RETRY_SECONDS)

    def _settle(self, partition: Partition, proposal: IsrProposal, answer: IsrAnswer) -> bool:
        """Whether there is no use in asking again."""
        leading = partition.leadership
        if leading is None or not leading.is_current(proposal):
            return True
        if isinstance(answer, IsrState):
            before = len(leading.isr)
            if leading.agreed(proposal, answer):
                self.shrinks += len(answer.isr) < before
                self.expansions += len(answer.isr) > before
                log.info("%s: brokers %s are in sync now", partition.topic_partition, list(answer.isr))
                partition.isr_agreed()
            return True
        if answer.code in _NOT_DONE:
            leading.refused(proposal)
            return True
        if answer.code in _OUTDATED:
            return True
        if self._says.is_due():
            log.warning(
                "%s: the controller does not take that %s are in sync: %s; trying again",
                partition.topic_partition,
                [broker for broker, _ in proposal.isr],
                answer,
            )
        return False
