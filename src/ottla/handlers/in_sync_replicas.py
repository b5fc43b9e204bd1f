"""AlterPartition (versions 2 and 3): the leader of a partition tells the controller who is in sync with it.

v3 the epochs in which the leader heard of the replicas, so that one which was restarted since does not count
"""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.alter_partition.v3.response import AlterPartitionResponse, PartitionData, TopicData
from kio.schema.types import BrokerId
from kio.static.primitive import i8, i32

from ottla.controller.alter_partition import InSync, IsrChange, IsrOutcome
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.records import NO_LEADER
from ottla.runtime.turns import in_turns
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

_NO_ID = UUID(int=0)


@handles(ApiKey.ALTER_PARTITION, answer_with(AlterPartitionResponse, topics=()), of_controller=True)
async def alter_partition(
    broker: Broker, context: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    changes = [
        IsrChange(
            topic.topic_id or _NO_ID,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(InSync(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs),
            partition.leader_recovery_state,
        )
        async for topic in in_turns(request.topics)
        for partition in topic.partitions
    ]
    outcomes = await broker.controller.alter_partitions(request.broker_id, request.broker_epoch, changes)
    return AlterPartitionResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        topics=tuple(
            TopicData(topic_id=topic_id, partitions=tuple(_partition(outcome) for outcome in group))
            for topic_id, group in groupby(outcomes, key=lambda outcome: outcome.topic_id)
        ),
    )


def _partition(outcome: IsrOutcome) -> PartitionData:
    state = outcome.state
    if state is None:
        return PartitionData(
            partition_index=i32(outcome.partition),
            error_code=error_code(outcome.error),
            leader_id=BrokerId(NO_LEADER),
            leader_epoch=i32(0),
            partition_epoch=i32(0),
        )
    return PartitionData(
        partition_index=i32(outcome.partition),
        error_code=ErrorCode.none,
        leader_id=BrokerId(state.leader),
        leader_epoch=i32(state.leader_epoch),
        isr=tuple(BrokerId(member) for member in state.isr),
        leader_recovery_state=i8(state.leader_recovery_state),
        partition_epoch=i32(state.partition_epoch),
    )
