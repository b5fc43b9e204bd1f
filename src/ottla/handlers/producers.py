"""DescribeProducers, version 0: which idempotent and transactional producers a partition knows (KIP-664).

A tool finds hanging transactions with it: `current_txn_start_offset` is where the one still open began, -1
where none is.
"""

from __future__ import annotations

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from kio.schema.describe_producers.v0.response import ProducerState as ActiveProducer
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from ottla.controller.topic_names import check_name
from ottla.handlers.authorized import require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.registry import handles
from ottla.log.producers import ProducerState
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import KafkaError


@handles(ApiKey.DESCRIBE_PRODUCERS)
async def describe_producers(
    broker: Broker, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    topics = []
    async for topic in in_turns(request.topics):
        partitions = [
            _partition(broker, context, topic.name, i) async for i in in_turns(topic.partition_indexes)
        ]
        topics.append(TopicResponse(name=topic.name, partitions=tuple(partitions)))
    return DescribeProducersResponse(throttle_time=context.session.throttle_time, topics=tuple(topics))


def _partition(broker: Broker, context: RequestContext, topic: str, index: i32) -> PartitionResponse:
    error: KafkaError | None = None
    producers: list[ProducerState] = []
    try:
        require(context, Operation.READ, AclResource.TOPIC, topic)
        check_name(topic)
        active = broker.replicas.leading(topic, index).log.producers.active
        producers = sorted(active.values(), key=lambda producer: producer.producer_id)
    except KafkaError as raised:
        error = raised
    return PartitionResponse(
        partition_index=index,
        error_code=error_code(error),
        error_message=error_message(error),
        active_producers=tuple(
            ActiveProducer(
                producer_id=ProducerId(producer.producer_id),
                producer_epoch=i32(producer.epoch),
                last_sequence=i32(producer.last_sequence),
                last_timestamp=i64(producer.last_timestamp),
                coordinator_epoch=i32(producer.coordinator_epoch),
                current_txn_start_offset=i64(producer.transaction_first_offset),
            )
            for producer in producers
        ),
    )
