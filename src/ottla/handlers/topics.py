"""CreateTopics (versions 2 to 7), DeleteTopics (1 to 6), CreatePartitions (0 to 3): topics come, grow and go.

The controller decides and answers item by item; a topic named twice in one request is refused both times.
Answers wait until the change is committed and the partitions are there, at most for the request's time-out.

CreateTopics: v4 -1 for the broker's default number of partitions and replicas · v5 flexible, the answer has
the topic's numbers and effective configuration (KIP-525) · v6 quota error code · v7 topic id
DeleteTopics: v3 TOPIC_DELETION_DISABLED (before: INVALID_REQUEST) where delete.topic.enable is false
v4 flexible · v5 error messages · v6 topics by id (KIP-516)
CreatePartitions: v2 flexible · v3 quota error code
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from ottla.config import describe_topic
from ottla.controller.topics import NewPartitions, NewTopic, TopicOutcome, TopicRef
from ottla.handlers.authorized import may
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.deadline import within
from ottla.handlers.mutations import Charge
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.registry import handles
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TopicDeletionDisabled,
)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)

log = logging.getLogger(__name__)

FIRST_WITH_DELETION_DISABLED = 3
FIRST_CREATION_WITH_QUOTA = 6
FIRST_DELETION_WITH_QUOTA = 5
FIRST_GROWTH_WITH_QUOTA = 3


@handles(ApiKey.CREATE_TOPICS)
async def create_topics(
    broker: Broker, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    wanted, refused = await _permitted(context, Operation.CREATE, request.topics)
    charge = Charge(context, FIRST_CREATION_WITH_QUOTA)
    if not request.validate_only:
        default = broker.config.integer("num.partitions")
        wanted, unpaid = await _affordable(
            charge, wanted, lambda topic: len(topic.assignments) or max(topic.num_partitions, 0) or default
        )
        refused += unpaid
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            tuple((assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments),
            tuple((config.name, config.value) for config in topic.configs),
        )
        async for topic in in_turns(wanted)
    ]
    try:
        outcomes = await within(
            request.timeout, broker.controller.create_topics(topics, validate_only=request.validate_only)
        )
        await _wait_made(broker, request.timeout, outcomes)
    except KafkaError as error:
        outcomes = [TopicOutcome(topic.name, error=error) for topic in topics]
    outcomes += refused
    created = [_created(broker, context, outcome) async for outcome in in_turns(outcomes)]
    return CreateTopicsResponse(throttle_time=charge.settle(), topics=tuple(created))


async def _permitted(
    context: RequestContext, operation: Operation, topics: Sequence[T]
) -> tuple[Sequence[T], list[TopicOutcome]]:
    """Those that may be created, or altered, and refusals of the others. Who may create in the cluster may
    create any."""
    if context.session.authorizer is None or (
        operation is Operation.CREATE and may(context, operation, AclResource.CLUSTER, quietly=True)
    ):
        return topics, []
    permitted, refused = [], {}
    times_named = Counter(topic.name for topic in topics)
    async for topic in in_turns(topics):
        # What is named twice is refused for that.
        if times_named[topic.name] > 1 or may(context, operation, AclResource.TOPIC, topic.name):
            permitted.append(topic)
        else:
            error = TopicAuthorizationFailed("Authorization failed.")
            refused[topic.name] = TopicOutcome(topic.name, error=error)
    return permitted, list(refused.values())


async def _affordable(
    charge: Charge, topics: Sequence[T], partitions: Callable[[T], int]
) -> tuple[list[T], list[TopicOutcome]]:
    """Those that the client's quota allows now, and refusals of the others."""
    affordable, refused = [], []
    async for topic in in_turns(topics):
        error = charge.take(partitions(topic))
        if error is None:
            affordable.append(topic)
        else:
            refused.append(TopicOutcome(topic.name, error=error))
    return affordable, refused


async def _wait_made(broker: Broker, limit: datetime.timedelta, outcomes: Sequence[TopicOutcome]) -> None:
    """So that a client that goes on at once finds its partitions. What was committed is a success even if
    their logs take longer, or cannot be made for now."""
    names = [outcome.name for outcome in outcomes if outcome.error is None and outcome.name is not None]
    with contextlib.suppress(RequestTimedOut):
        await within(limit, broker.replicas.wait_made(names))


def _created(broker: Broker, context: RequestContext, outcome: TopicOutcome) -> CreatableTopicResult:
    error = outcome.error
    if error is not None:
        return CreatableTopicResult(
            name=TopicName(outcome.name),
            topic_id=None,
            error_code=error.code,
            error_message=error_message(error),
            configs=(),
        )
    if not may(context, Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, outcome.name or "", quietly=True):
        return CreatableTopicResult(
            name=TopicName(outcome.name),
            topic_id=outcome.topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=i16(ErrorCode.topic_authorization_failed.value),
            configs=None,
        )
    return CreatableTopicResult(
        name=TopicName(outcome.name),
        topic_id=outcome.topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(outcome.partition_count),
        replication_factor=i16(outcome.replication_factor),
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=i8(entry.source),
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(broker.config, outcome.configs)
        ),
    )


@handles(ApiKey.DELETE_TOPICS)
async def delete_topics(
    broker: Broker, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    asked = [TopicRef(topic.name, topic.topic_id) async for topic in in_turns(request.topics)]
    topics, refused = await _deletable(broker, context, asked)
    charge = Charge(context, FIRST_DELETION_WITH_QUOTA)
    affordable = []
    async for topic in in_turns(topics):
        error = charge.take(_partition_count(broker, topic))
        if error is None:
            affordable.append(topic)
        else:
            refused.append(TopicOutcome(topic.name, topic.topic_id, error))
    topics = affordable
    try:
        _check_deletion_enabled(broker, context.version)
        outcomes = await within(request.timeout, broker.controller.delete_topics(topics))
    except KafkaError as error:
        outcomes = [TopicOutcome(topic.name, topic.topic_id, error) for topic in topics]
    outcomes += refused
    _tell_of_internal_topics(context, outcomes)
    responses = [
        DeletableTopicResult(
            name=None if outcome.name is None else TopicName(outcome.name),
            topic_id=outcome.topic_id,
            error_code=error_code(outcome.error),
            error_message=error_message(outcome.error),
        )
        async for outcome in in_turns(outcomes)
    ]
    return DeleteTopicsResponse(throttle_time=charge.settle(), responses=tuple(responses))


def _partition_count(broker: Broker, topic: TopicRef) -> int:
    image = broker.metadata.image
    known = image.topics.get(topic.name) if topic.name is not None else None
    if known is None and topic.topic_id is not None:
        known = image.topic_by_id(topic.topic_id)
    return 0 if known is None else len(known.partitions)


async def _deletable(
    broker: Broker, context: RequestContext, topics: list[TopicRef]
) -> tuple[list[TopicRef], list[TopicOutcome]]:
    """Those that may be deleted, and refusals of the others: an id does not give away a name."""
    if may(context, Operation.DELETE, AclResource.CLUSTER, quietly=True):
        return topics, []
    deletable, refused = [], []
    image = broker.metadata.image
    times_named = Counter(topics)
    async for topic in in_turns(topics):
        name = topic.name
        if name is None and topic.topic_id is not None:
            name = image.topic_names.get(topic.topic_id)
        if (
            name is None
            or (topic.name is not None and topic.topic_id is not None)
            or times_named[topic] > 1
            or may(context, Operation.DELETE, AclResource.TOPIC, name)
        ):
            deletable.append(topic)
            continue
        # Who may see a topic may know that it is not there, or what it is called.
        is_seen = may(context, Operation.DESCRIBE, AclResource.TOPIC, name, quietly=True)
        if is_seen and name not in image.topics:
            deletable.append(topic)
            continue
        shown = name if is_seen else topic.name
        refused.append(TopicOutcome(shown, topic.topic_id, TopicAuthorizationFailed()))
    return deletable, refused


def _tell_of_internal_topics(context: RequestContext, outcomes: list[TopicOutcome]) -> None:
    """Committed offsets or the state of transactions go with them: whoever misses those looks here."""
    for outcome in outcomes:
        if outcome.error is None and outcome.name in INTERNAL_TOPICS:
            log.warning(
                "internal topic %s was deleted by client %s at %s",
                outcome.name,
                context.session.client_id or "(without an id)",
                context.session.address,
            )


def _check_deletion_enabled(broker: Broker, version: int) -> None:
    if broker.config.boolean("delete.topic.enable"):
        return
    reason = "Topics cannot be deleted because delete.topic.enable is false."
    if version < FIRST_WITH_DELETION_DISABLED:
        raise InvalidRequest(reason)
    raise TopicDeletionDisabled(reason)


@handles(ApiKey.CREATE_PARTITIONS)
async def create_partitions(
    broker: Broker, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    wanted, refused = await _permitted(context, Operation.ALTER, request.topics)
    charge = Charge(context, FIRST_GROWTH_WITH_QUOTA)
    if not request.validate_only:
        wanted, unpaid = await _affordable(
            charge,
            wanted,
            lambda topic: max(topic.count - _partition_count(broker, TopicRef(topic.name, None)), 0),
        )
        refused += unpaid
    topics = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else tuple(a.broker_ids for a in topic.assignments),
        )
        async for topic in in_turns(wanted)
    ]
    try:
        outcomes = await within(
            request.timeout, broker.controller.create_partitions(topics, validate_only=request.validate_only)
        )
        await _wait_made(broker, request.timeout, outcomes)
    except KafkaError as error:
        outcomes = [TopicOutcome(topic.topic, error=error) for topic in topics]
    outcomes += refused
    results = [
        CreatePartitionsTopicResult(
            name=TopicName(outcome.name),
            error_code=error_code(outcome.error),
            error_message=error_message(outcome.error),
        )
        async for outcome in in_turns(outcomes)
    ]
    return CreatePartitionsResponse(throttle_time=charge.settle(), results=tuple(results))
