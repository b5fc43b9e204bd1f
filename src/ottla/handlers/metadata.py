"""Metadata, versions 0 to 13: the brokers, and topics with the leader and replicas of each partition.

Topics are asked for by name, by id, or all of them. Names that do not exist are created on the way if
auto.create.topics.enable and the request allow it; unlike Apache Kafka, which answers before the topic exists
and lets the client ask again, the answer waits for the topic and has it. Internal topics are never created
like this. The controller named is always the broker that answers: every broker takes controller requests.

v1 null for all topics (v0: empty list), racks, controller id, internal flag · v2 cluster id
v3 throttle time · v4 the client may forbid creation · v5 offline replicas · v6 LISTENER_NOT_FOUND where it
was LEADER_NOT_AVAILABLE · v7 leader epochs · v8 authorized operations (KIP-430) · v9 flexible · v10 topic ids
v11 no more cluster operations · v12 topics by id (v10 and v11 refuse them) · v13 top-level error code
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from ottla.controller.topic_names import check_name
from ottla.controller.topics import NewTopic
from ottla.handlers.authorized import NOT_ASKED, may, operations_on
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.mutations import Charge
from ottla.handlers.nodes import nodes_on, whom_to_ask
from ottla.handlers.registry import NEVER, handles
from ottla.log.types import METADATA_PARTITION
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    ErrorCode,
    InvalidTopic,
    KafkaError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
)
from ottla.wire.upgrades.metadata import ClusterOperationsMetadataRequest

FIRST_WITH_LISTENER_NOT_FOUND = 6
FIRST_WITH_TOPICS_BY_ID = 12
NO_LEADER = -1

# Domain values are plain ints: wrapping each in kio's checked types would double the cost of a large answer.
_partition_response = cast("Callable[..., MetadataResponsePartition]", MetadataResponsePartition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOperationsMetadataResponse(MetadataResponse):
    """With the field that only versions 8 to 10 have, and whose writers look for."""

    cluster_authorized_operations: i32 = field(metadata={"kafka_type": "int32"}, default=NOT_ASKED)


@handles(ApiKey.METADATA)
async def metadata(broker: Broker, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    wanted = request.topics
    if wanted is None:
        view = _View(broker, context, request)
        return view.response(
            [
                view.topic(topic)
                async for name, topic in in_turns(sorted(view.image.topics.items()))
                if view.shows(name, quietly=True)
            ]
        )
    if context.version < FIRST_WITH_TOPICS_BY_ID and any(t.name is None or t.topic_id for t in wanted):
        refused = [_failed_topic(ErrorCode.invalid_request, t.name or "", t.topic_id) for t in wanted]
        return _View(broker, context, request).response(refused)
    errors = await _create_missing(broker, context, request)
    view = _View(broker, context, request)
    # As Apache Kafka does, answer once for a topic that is named twice.
    return view.response([view.answer(asked, errors) async for asked in in_turns(dict.fromkeys(wanted))])


async def _create_missing(
    broker: Broker, context: RequestContext, request: MetadataRequest
) -> dict[str, KafkaError]:
    """Create what may be created; the reasons, where there are any, why other names stay missing."""
    existing = broker.metadata.image.topics
    may_create = request.allow_auto_topic_creation and broker.config.boolean("auto.create.topics.enable")
    errors: dict[str, KafkaError] = {}
    creatable: dict[str, NewTopic] = {}
    async for asked in in_turns(request.topics or ()):
        name = asked.name
        if asked.topic_id is not None or name is None or name in existing:
            continue
        if not may(context, Operation.DESCRIBE, AclResource.TOPIC, name, quietly=True):
            continue
        try:
            check_name(name)
        except InvalidTopic as error:
            errors[name] = error
            continue
        if not may_create:
            continue
        if not _may_create(context, name):
            errors[name] = TopicAuthorizationFailed()
        elif name not in INTERNAL_TOPICS and name != METADATA_PARTITION.topic:
            creatable[name] = NewTopic(name)
    if creatable:
        charge = Charge(context, strict_since=NEVER)
        charge.take(len(creatable) * broker.config.integer("num.partitions"))
        charge.settle()
        try:
            outcomes = await broker.controller.create_topics(list(creatable.values()), validate_only=False)
        except KafkaError as error:
            return errors | dict.fromkeys(creatable, error)
        await broker.replicas.wait_made(creatable)
        # Another request may have been faster; then the topic is there, which is all that was wanted.
        errors |= {
            outcome.name: outcome.error
            for outcome in outcomes
            if outcome.name is not None
            and outcome.error is not None
            and not isinstance(outcome.error, TopicAlreadyExists)
        }
    return errors


def _may_create(context: RequestContext, name: str) -> bool:
    return may(context, Operation.CREATE, AclResource.CLUSTER, quietly=True) or may(
        context, Operation.CREATE, AclResource.TOPIC, name
    )


class _View:
    """The cluster at one moment, as one request gets to see it."""

    def __init__(self, broker: Broker, context: RequestContext, request: MetadataRequest) -> None:
        self.image: MetadataImage = broker.metadata.image
        self._broker = broker
        self._request = request
        self._context = context
        self._session = context.session
        self._nodes = nodes_on(self.image, context.session.listener)
        self._alive = {node.id: node for node in self._nodes.values() if not node.fenced}
        self._only_alive_replicas = context.version == 0
        self._listener_error = (
            ErrorCode.listener_not_found
            if context.version >= FIRST_WITH_LISTENER_NOT_FOUND
            else ErrorCode.leader_not_available
        )

    def shows(self, name: str, *, quietly: bool = False) -> bool:
        """Whether the client may know of this topic."""
        context = self._context
        return may(context, Operation.DESCRIBE, AclResource.TOPIC, name, quietly=quietly)

    def _operations(self, name: str) -> i32:
        if not self._request.include_topic_authorized_operations:
            return NOT_ASKED
        return operations_on(self._context, AclResource.TOPIC, name)

    def _cluster_operations(self) -> i32:
        request = self._request
        if not (
            isinstance(request, ClusterOperationsMetadataRequest)
            and request.include_cluster_authorized_operations
        ):
            return NOT_ASKED
        if not may(self._context, Operation.DESCRIBE, AclResource.CLUSTER):
            return i32(0)
        return operations_on(self._context, AclResource.CLUSTER)

    def response(self, topics: Sequence[MetadataResponseTopic]) -> ClusterOperationsMetadataResponse:
        return ClusterOperationsMetadataResponse(
            throttle_time=self._session.throttle_time,
            brokers=tuple(
                MetadataResponseBroker(
                    node_id=BrokerId(node.id), host=node.host, port=i32(node.port), rack=node.rack
                )
                for node in self._alive.values()
            ),
            cluster_id=self._broker.cluster_id,
            controller_id=BrokerId(whom_to_ask(self._broker.node_id, self._alive)),
            topics=tuple(topics),
            error_code=ErrorCode.none,
            cluster_authorized_operations=self._cluster_operations(),
        )

    def answer(self, asked: MetadataRequestTopic, errors: Mapping[str, KafkaError]) -> MetadataResponseTopic:
        if asked.topic_id is not None:
            topic = self.image.topic_by_id(asked.topic_id)
            if topic is None:
                return _failed_topic(ErrorCode.unknown_topic_id, None, asked.topic_id)
            if not self.shows(topic.name):
                return _failed_topic(ErrorCode.topic_authorization_failed, None, asked.topic_id)
            return self.topic(topic)
        if asked.name is None:
            return _failed_topic(ErrorCode.invalid_request, None, None)
        if not self.shows(asked.name):
            return _failed_topic(ErrorCode.topic_authorization_failed, asked.name, None, is_hidden=True)
        topic = self.image.topics.get(asked.name)
        if topic is not None:
            return self.topic(topic)
        error = errors.get(asked.name)
        code = ErrorCode.unknown_topic_or_partition if error is None else error.code
        return _failed_topic(code, asked.name, None, self._operations(asked.name))

    def topic(self, topic: TopicImage) -> MetadataResponseTopic:
        partition = self._partition
        hosted = self._broker.replicas.by_id.get(topic.id.bytes)
        offline = () if hosted is None else hosted.offline
        return MetadataResponseTopic(
            error_code=ErrorCode.none,
            name=TopicName(topic.name),
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=tuple(
                [partition(index, state, offline) for index, state in enumerate(topic.partitions)]
            ),
            topic_authorized_operations=self._operations(topic.name),
        )

    def _partition(
        self, index: int, state: PartitionImage, offline_here: Container[int]
    ) -> MetadataResponsePartition:
        alive = self._alive
        leader, replicas, isr = state.leader, state.replicas, state.isr
        error = ErrorCode.none
        if leader not in self._nodes:
            known = leader in self.image.brokers
            error = self._listener_error if known else ErrorCode.leader_not_available
            leader = NO_LEADER
        if self._only_alive_replicas:
            replicas = tuple(replica for replica in replicas if replica in alive)
            isr = tuple(replica for replica in isr if replica in alive)
            if error is ErrorCode.none and (replicas != state.replicas or isr != state.isr):
                error = ErrorCode.replica_not_available
        return _partition_response(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=tuple(
                [
                    replica
                    for replica in state.replicas
                    if replica not in alive
                    or (replica == self._broker.node_id and index in offline_here)
                    or (replica not in state.isr and self._is_lost(replica, state))
                ]
            ),
        )

    def _is_lost(self, replica: int, state: PartitionImage) -> bool:
        """It is in a directory that has failed."""
        return not self.image.brokers[replica].has_online(state.directory(replica))


def _failed_topic(
    error: ErrorCode,
    name: str | None,
    topic_id: UUID | None,
    operations: i32 = NOT_ASKED,
    *,
    is_hidden: bool = False,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=None if name is None else TopicName(name),
        topic_id=topic_id,
        is_internal=not is_hidden and name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=operations,
    )
