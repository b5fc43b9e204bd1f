"""FindCoordinator (versions 0 to 6): which broker keeps a group, by the partition its id hashes to.

The first question creates `__consumer_offsets`. Version 4 asks for many keys at once (KIP-699), older ones
for one, and are answered with its fields at the top. Transactions and share groups have no coordinator here
yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ottla.controller.topics import NewTopic
from ottla.coordinator.offsets_topic import TOPIC
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import nodes_on
from ottla.handlers.outcome import error_message
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.metadata.image import TopicImage
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
GROUP = 0


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
    throttle_time: timedelta = NOT_THROTTLED


@handles(ApiKey.FIND_COORDINATOR)
async def find_coordinator(
    broker: Broker, context: RequestContext, request: Any
) -> Coordinator | Coordinators:
    if context.version < FIRST_WITH_MANY_KEYS:
        return await _find(broker, context, getattr(request, "key_type", GROUP), request.key)
    return Coordinators(
        tuple([await _find(broker, context, request.key_type, key) for key in request.coordinator_keys])
    )


async def _find(broker: Broker, context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        if key_type != GROUP:
            raise InvalidRequest(
                "this broker coordinates consumer groups only, no transactions or share groups"
            )
        if not key:
            raise InvalidGroupId("group.id must not be empty")
        topic = await _offsets_topic(broker)
        leader = topic.partitions[broker.groups.partition_for(key)].leader
        node = nodes_on(broker.controller.image, context.listener).get(leader)
        if node is None or node.fenced:
            raise CoordinatorNotAvailable(f"the broker that coordinates {key} is not available; retry")
    except KafkaError as error:
        return Coordinator(key, -1, "", -1, error.code, error_message(error))
    return Coordinator(key, node.id, node.host, node.port, ErrorCode.none, None)


async def _offsets_topic(broker: Broker) -> TopicImage:
    topic = broker.controller.image.topics.get(TOPIC)
    if topic is None:
        config = broker.config
        alive = sum(not node.fenced for node in broker.controller.image.brokers.values())
        (outcome,) = await broker.controller.create_topics(
            [
                NewTopic(
                    TOPIC,
                    config.integer("offsets.topic.num.partitions"),
                    min(config.integer("offsets.topic.replication.factor"), max(alive, 1)),
                    configs=(
                        ("cleanup.policy", "compact"),
                        ("compression.type", "producer"),
                        ("segment.bytes", str(config.integer("offsets.topic.segment.bytes"))),
                    ),
                )
            ]
        )
        if outcome.error is not None and not isinstance(outcome.error, TopicAlreadyExists):
            raise CoordinatorNotAvailable(f"{TOPIC} cannot be created: {outcome.error}")
        topic = broker.controller.image.topics.get(TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable(f"{TOPIC} is being created; retry")
    return topic
