"""ElectLeaders, versions 0 to 2: the preferred replica leads again, or anybody does where nobody did.

v1 unclean elections (KIP-460), which need no leave of the topic's settings: who asks knows what may be lost ·
v2 flexible. Without partitions all are meant; those that need no election are not in the answer then.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.controller.elections import ElectionOutcome, TopicPartitions
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.deadline import within
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.registry import handles
from ottla.wire.api import ApiKey
from ottla.wire.errors import KafkaError


def _refused(
    context: RequestContext, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    outcomes = [
        ElectionOutcome(topic.topic, index, error)
        for topic in request.topic_partitions or ()
        for index in topic.partitions
    ]
    return _response(context, outcomes, error)


@handles(ApiKey.ELECT_LEADERS, _refused)
async def elect_leaders(
    broker: Broker, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    asked = None
    if request.topic_partitions is not None:
        asked = [TopicPartitions(topic.topic, topic.partitions) for topic in request.topic_partitions]
    outcomes = await within(request.timeout, broker.controller.elect_leaders(request.election_type, asked))
    return _response(context, outcomes)


def _response(
    context: RequestContext, outcomes: Sequence[ElectionOutcome], error: KafkaError | None = None
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time=context.session.throttle_time,
        error_code=error_code(error),
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=TopicName(topic),
                partition_result=tuple(
                    PartitionResult(
                        partition_id=i32(outcome.partition),
                        error_code=error_code(outcome.error),
                        error_message=error_message(outcome.error),
                    )
                    for outcome in group
                ),
            )
            for topic, group in groupby(outcomes, key=lambda outcome: outcome.topic)
        ),
    )
