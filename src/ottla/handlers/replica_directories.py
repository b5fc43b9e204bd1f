"""AssignReplicasToDirs, version 0: a broker tells the controller in which directories its replicas are."""

from __future__ import annotations

from itertools import groupby
from uuid import UUID

from kio.schema.assign_replicas_to_dirs.v0.request import AssignReplicasToDirsRequest
from kio.schema.assign_replicas_to_dirs.v0.response import (
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from kio.static.primitive import i32

from ottla.controller.directories import DirectoryAssignment
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.runtime.turns import in_turns
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

_NO_ID = UUID(int=0)


@handles(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    answer_with(AssignReplicasToDirsResponse, directories=()),
    of_controller=True,
)
async def assign_replicas_to_dirs(
    broker: Broker, context: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    assignments = [
        DirectoryAssignment(directory.id_ or _NO_ID, topic.topic_id or _NO_ID, partition.partition_index)
        for directory in request.directories
        async for topic in in_turns(directory.topics)
        for partition in topic.partitions
    ]
    outcomes = await broker.controller.assign_directories(
        request.broker_id, request.broker_epoch, assignments
    )
    return AssignReplicasToDirsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        directories=tuple(
            DirectoryData(
                id_=directory,
                topics=tuple(
                    TopicData(
                        topic_id=topic_id,
                        partitions=tuple(
                            PartitionData(
                                partition_index=i32(outcome.assignment.partition),
                                error_code=error_code(outcome.error),
                            )
                            for outcome in of_topic
                        ),
                    )
                    for topic_id, of_topic in groupby(
                        of_directory, key=lambda outcome: outcome.assignment.topic_id
                    )
                ),
            )
            for directory, of_directory in groupby(outcomes, key=lambda outcome: outcome.assignment.directory)
        ),
    )
