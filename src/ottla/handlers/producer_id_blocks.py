"""AllocateProducerIds, version 0: a broker asks the controller for ids to give to producers."""

from __future__ import annotations

from kio.schema.allocate_producer_ids.v0.request import AllocateProducerIdsRequest
from kio.schema.allocate_producer_ids.v0.response import AllocateProducerIdsResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i32

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.records.batch import NO_PRODUCER_ID
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode


@handles(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    answer_with(
        AllocateProducerIdsResponse, producer_id_start=ProducerId(NO_PRODUCER_ID), producer_id_len=i32(0)
    ),
    of_controller=True,
)
async def allocate_producer_ids(
    broker: Broker, context: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    block = await broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        producer_id_start=ProducerId(block.first_id),
        producer_id_len=i32(block.size),
    )
