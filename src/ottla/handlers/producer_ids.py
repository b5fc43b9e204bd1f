"""InitProducerId (versions 0 to 6): an id and epoch for a producer.

Without a transactional id, each call gives a fresh id with epoch 0. With one, the id stays and its epoch is
bumped: whoever had the epoch before is fenced, and a transaction it left open is aborted.

v3 a producer names its id and epoch to go on after an error (KIP-360); without a transactional id a fresh one
serves the same purpose · v4 knows PRODUCER_FENCED, earlier ones are told of their epoch · v6 transactions
that are decided elsewhere (KIP-939)
"""

from __future__ import annotations

from datetime import timedelta

from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from ottla.handlers.authorized import may, may_any, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with, fenced_before
from ottla.handlers.registry import handles
from ottla.records.batch import NO_PRODUCER_ID
from ottla.records.producer import NO_EPOCH, NOBODY, ProducerIdentity
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest


@handles(
    ApiKey.INIT_PRODUCER_ID,
    answer_with(
        InitProducerIdResponse,
        told=fenced_before(4),
        producer_id=ProducerId(NOBODY.id),
        producer_epoch=i16(NOBODY.epoch),
    ),
)
async def init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    _check_permission(context, request)
    identity = await _identity(broker, request)
    return InitProducerIdResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        producer_id=ProducerId(identity.id),
        producer_epoch=i16(identity.epoch),
    )


def _check_permission(context: RequestContext, request: InitProducerIdRequest) -> None:
    name = request.transactional_id
    if name is not None:
        require(context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, name)
        if request.enable2_pc:
            require(context, Operation.TWO_PHASE_COMMIT, AclResource.TRANSACTIONAL_ID, name)
    elif not may(context, Operation.IDEMPOTENT_WRITE, AclResource.CLUSTER, quietly=True) and not may_any(
        context, Operation.WRITE, AclResource.TOPIC
    ):
        require(context, Operation.IDEMPOTENT_WRITE, AclResource.CLUSTER)


async def _identity(broker: Broker, request: InitProducerIdRequest) -> ProducerIdentity:
    known = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (known.id == NO_PRODUCER_ID) != (known.epoch == NO_EPOCH):
        raise InvalidRequest("a producer id and its epoch come together or not at all")
    if request.transactional_id is None:
        return ProducerIdentity(await broker.producer_ids.next_id(), 0)
    return await broker.transactions.init_producer_id(
        request.transactional_id,
        request.transaction_timeout // timedelta(milliseconds=1),
        None if known == NOBODY else known,
        two_phase_commit=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
    )
