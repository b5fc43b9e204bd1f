"""AlterPartitionReassignments (versions 0 and 1), ListPartitionReassignments (0): replicas move (KIP-455).

AlterPartitionReassignments: v1 the number of replicas may be held fast (KIP-860). A partition without
replicas goes back to those it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla.controller.elections import TopicPartitions
from ottla.controller.reassignment import Reassignment, ReassignmentOutcome
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.deadline import within
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.runtime.turns import in_turns
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError


def _refused(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    outcomes = [
        ReassignmentOutcome(topic.name, partition.partition_index, error)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return _response(context, request, outcomes, error)


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, _refused)
async def alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    reassignments = [
        Reassignment(topic.name, partition.partition_index, partition.replicas)
        async for topic in in_turns(request.topics)
        for partition in topic.partitions
    ]
    outcomes = await within(
        request.timeout,
        broker.controller.alter_reassignments(
            reassignments, may_change_factor=request.allow_replication_factor_change
        ),
    )
    return _response(context, request, outcomes)


def _response(
    context: RequestContext,
    request: AlterPartitionReassignmentsRequest,
    outcomes: Sequence[ReassignmentOutcome],
    error: KafkaError | None = None,
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time=context.session.throttle_time,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error_code(error),
        error_message=error_message(error),
        responses=tuple(
            ReassignableTopicResponse(
                name=TopicName(topic),
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=i32(outcome.partition),
                        error_code=error_code(outcome.error),
                        error_message=error_message(outcome.error),
                    )
                    for outcome in group
                ),
            )
            for topic, group in groupby(outcomes, key=lambda outcome: outcome.topic)
        ),
    )


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, answer_with(ListPartitionReassignmentsResponse, topics=()))
async def list_partition_reassignments(
    broker: Broker, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = [TopicPartitions(topic.name, topic.partition_indexes) for topic in request.topics]
    found = await within(request.timeout, broker.controller.list_reassignments(asked))
    return ListPartitionReassignmentsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            OngoingTopicReassignment(
                name=TopicName(topic),
                partitions=tuple(
                    OngoingPartitionReassignment(
                        partition_index=i32(ongoing.partition),
                        replicas=_ids(ongoing.state.replicas),
                        adding_replicas=_ids(ongoing.state.adding_replicas),
                        removing_replicas=_ids(ongoing.state.removing_replicas),
                    )
                    for ongoing in group
                ),
            )
            for topic, group in groupby(found, key=lambda ongoing: ongoing.topic)
        ),
    )


def _ids(brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(broker) for broker in brokers)
