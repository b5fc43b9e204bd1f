"""FindCoordinator (versions 0 to 6): which broker keeps a group, a transactional id or the
state of a share group in a partition.

It is the one that leads the partition of an internal topic to which the id hashes; the first question creates
that topic. Version 4 asks for many keys at once (KIP-699), older ones for one, and are answered with its
fields at the top, version 6 for partitions as share groups read them (KIP-932).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import IntEnum
from typing import Any

from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.coordinator.share.commands import SharePartition
from ottla.handlers.authorized import require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import nodes_on
from ottla.handlers.outcome import error_message
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.metadata.image import TopicImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidGroupId,
    InvalidRequest,
    KafkaError,
    TopicAlreadyExists,
)

FIRST_WITH_MANY_KEYS = 4
FIRST_WITH_SHARE_PARTITIONS = 6


class _KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE_PARTITION = 2


@dataclass(frozen=True, slots=True)
class Coordinator:
    key: str
    node_id: int
    host: str
    port: int
    error_code: ErrorCode
    error_message: str | None
    throttle_time: timedelta = NOT_THROTTLED
    """Versions before 4 have this one coordinator as the whole response."""


@dataclass(frozen=True, slots=True)
class Coordinators:
    coordinators: tuple[Coordinator, ...]
    throttle_time: timedelta


@handles(ApiKey.FIND_COORDINATOR)
async def find_coordinator(
    broker: Broker, context: RequestContext, request: Any
) -> Coordinator | Coordinators:
    if context.version < FIRST_WITH_MANY_KEYS:
        found = await _find(broker, context, getattr(request, "key_type", _KeyType.GROUP), request.key)
        return replace(found, throttle_time=context.session.throttle_time)
    keys = in_turns(request.coordinator_keys)
    return Coordinators(
        tuple([await _find(broker, context, request.key_type, key) async for key in keys]),
        context.session.throttle_time,
    )


async def _find(broker: Broker, context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        match key_type:
            case _KeyType.GROUP:
                require(context, Operation.DESCRIBE, AclResource.GROUP, key)
                if not key:
                    raise InvalidGroupId("group.id must not be empty")
                topic = await _topic(broker, _offsets_topic(broker.config))
                index = broker.groups.partition_for(key)
            case _KeyType.TRANSACTION:
                require(context, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key)
                if not key:
                    raise InvalidRequest("transactional.id must not be empty")
                topic = await _topic(broker, _transaction_topic(broker.config))
                index = broker.transactions.partition_for(key)
            case _KeyType.SHARE_PARTITION if context.version >= FIRST_WITH_SHARE_PARTITIONS:
                require(context, Operation.CLUSTER_ACTION, AclResource.CLUSTER)
                name = SharePartition.parse(key)
                topic = await _topic(broker, _share_state_topic(broker.config))
                index = broker.share_states.partition_for(name)
            case _:
                raise InvalidRequest(f"key type {key_type} is unknown in version {context.version}")
        node = nodes_on(broker.metadata.image, context.session.listener).get(topic.partitions[index].leader)
        if node is None or node.fenced:
            raise CoordinatorNotAvailable(f"the broker that coordinates {key} is not available; retry")
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error_message(error))
    return Coordinator(key, node.id, node.host, node.port, ErrorCode.none, None)


def _offsets_topic(config: BrokerConfig) -> NewTopic:
    return NewTopic(
        OFFSETS_TOPIC,
        config.integer("offsets.topic.num.partitions"),
        config.integer("offsets.topic.replication.factor"),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
        ),
    )


def _transaction_topic(config: BrokerConfig) -> NewTopic:
    return NewTopic(
        TRANSACTION_TOPIC,
        config.integer("transaction.state.log.num.partitions"),
        config.integer("transaction.state.log.replication.factor"),
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("min.insync.replicas", str(config.integer("transaction.state.log.min.isr"))),
            ("segment.bytes", str(config.integer("transaction.state.log.segment.bytes"))),
        ),
    )


def _share_state_topic(config: BrokerConfig) -> NewTopic:
    # Not compacted: a change of a state is no more the whole of it than the change before.
    return NewTopic(
        SHARE_STATE_TOPIC,
        config.integer("share.coordinator.state.topic.num.partitions"),
        config.integer("share.coordinator.state.topic.replication.factor"),
        configs=(
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            ("min.insync.replicas", str(config.integer("share.coordinator.state.topic.min.isr"))),
            ("retention.ms", "-1"),
            ("segment.bytes", str(config.integer("share.coordinator.state.topic.segment.bytes"))),
        ),
    )


async def make_share_state_topic(broker: Broker) -> None:
    """Unless it is there."""
    await _topic(broker, _share_state_topic(broker.config))


async def _topic(broker: Broker, wanted: NewTopic) -> TopicImage:
    topic = broker.metadata.image.topics.get(wanted.name)
    if topic is None:
        await _create(broker, _for_one(wanted) if _is_alone(broker) else wanted)
        await broker.replicas.wait_made([wanted.name])
        # Who finds its coordinator asks it at once, and some clients do not ask twice.
        await _wait_loaded(broker, wanted.name)
        topic = broker.metadata.image.topics.get(wanted.name)
        if topic is None:
            raise CoordinatorNotAvailable(f"{wanted.name} is being created; retry")
    return topic


async def _wait_loaded(broker: Broker, topic: str) -> None:
    if topic == OFFSETS_TOPIC:
        await broker.groups.wait_loaded()
    elif topic == TRANSACTION_TOPIC:
        await broker.transactions.wait_loaded()
    else:
        await broker.share_states.wait_loaded()


async def _create(broker: Broker, wanted: NewTopic) -> None:
    """In a cluster with as many replicas as are set, or not at all until there are brokers for them: what has
    too few would keep them, and be lost with one broker."""
    try:
        (outcome,) = await broker.controller.create_topics([wanted])
    except KafkaError as error:
        raise CoordinatorNotAvailable(f"{wanted.name} cannot be created now: {error}; retry") from error
    if outcome.error is not None and not isinstance(outcome.error, TopicAlreadyExists):
        raise CoordinatorNotAvailable(f"{wanted.name} cannot be created: {outcome.error}")


def _is_alone(broker: Broker) -> bool:
    """Nobody else votes, and no other broker has ever come."""
    voters = broker.quorum.voter_set.ids
    return set(voters) <= {broker.node_id} and not broker.metadata.image.brokers.keys() - {broker.node_id}


def _for_one(wanted: NewTopic) -> NewTopic:
    """A node that is a whole cluster works with defaults that are meant for three."""
    configs = tuple((name, "1" if name == "min.insync.replicas" else value) for name, value in wanted.configs)
    return wanted._replace(replication_factor=1, configs=configs)
