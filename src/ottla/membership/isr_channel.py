"""How leaders of partitions tell the controller who is in sync with them."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.alter_partition import InSync, IsrChange
from ottla.controller.interface import Controller
from ottla.replication.in_sync import IsrAnswer
from ottla.replication.leadership import IsrProposal, IsrState
from ottla.wire.errors import KafkaError


class ControllerIsrChannel:
    """An `IsrChannel`."""

    def __init__(self, controller: Controller, broker_id: int) -> None:
        self._controller = controller
        self._broker_id = broker_id

    async def alter_isrs(self, broker_epoch: int, proposals: Sequence[IsrProposal]) -> list[IsrAnswer]:
        changes = [
            IsrChange(
                proposal.topic_id,
                proposal.partition,
                proposal.leader_epoch,
                proposal.partition_epoch,
                tuple(InSync(broker, epoch) for broker, epoch in proposal.isr),
            )
            for proposal in proposals
        ]
        answers: dict[tuple[object, int], IsrAnswer] = {}
        for outcome in await self._controller.alter_partitions(self._broker_id, broker_epoch, changes):
            key = (outcome.topic_id, outcome.partition)
            if outcome.error is not None:
                answers[key] = outcome.error
            elif outcome.state is not None:
                state = outcome.state
                answers[key] = IsrState(state.leader_epoch, state.partition_epoch, state.isr)
        return [
            answers.get((proposal.topic_id, proposal.partition), _unanswered(proposal))
            for proposal in proposals
        ]


def _unanswered(proposal: IsrProposal) -> KafkaError:
    return KafkaError(f"the controller has not answered for partition {proposal.partition}")
