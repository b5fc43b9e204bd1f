"""InitProducerId (versions 0–5): an id and epoch for an idempotent producer.

Each call gives a fresh id with epoch 0, as Kafka does for producers without a transactional id. Version 3
lets a producer name its current id and epoch to have the epoch bumped after an error; a fresh id serves the
same purpose, since its sequences start anew. Producers with a transactional id are refused.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.wire.api import ApiKey


@handles(ApiKey.INIT_PRODUCER_ID)
async def init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return InitProducerIdResponse(
            throttle_time=NOT_THROTTLED,
            error_code=ErrorCode.transactional_id_authorization_failed,
            producer_id=ProducerId(-1),
            producer_epoch=i16(-1),
        )
    return InitProducerIdResponse(
        throttle_time=NOT_THROTTLED,
        error_code=ErrorCode.none,
        producer_id=ProducerId(await broker.producer_ids.next_id()),
        producer_epoch=i16(0),
    )
