"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions.

AddPartitionsToTxn (0 to 5): since 4 it is for brokers, many transactions at once, and questions that add
nothing · AddOffsetsToTxn (0 to 4) · EndTxn (0 to 5): 5 belongs to the new protocol (KIP-890), it bumps the
epoch and answers with what the producer goes on with. Before version 2 of these three, producers did not know
PRODUCER_FENCED and are told of their epoch instead.

DescribeTransactions (0) · ListTransactions (0 to 2): 1 filters by duration, 2 by a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.list_transactions.v2.response import TransactionState as ListedState
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from ottla.coordinator.transactions.transaction import BUMPS_EPOCH
from ottla.handlers.authorized import may, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.refusal import answer_with, fenced_before
from ottla.handlers.registry import handles
from ottla.log.types import TopicPartition
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.records.producer import NOBODY
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.times import moment

_told = fenced_before(2)
_FIRST_FROM_BROKERS = 4
_FIRST_BUMPING_EPOCH = 5


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    """Versions before 4 have the topics of the one transaction at the top."""

    results_by_transaction: tuple[AddPartitionsToTxnResult, ...]
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...]
    throttle_time: i32Timedelta
    error_code: ErrorCode = ErrorCode.none


@handles(ApiKey.ADD_PARTITIONS_TO_TXN)
async def add_partitions_to_txn(
    broker: Broker, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version >= _FIRST_FROM_BROKERS and not may(
        context, Operation.CLUSTER_ACTION, AclResource.CLUSTER
    ):
        return AddPartitionsToTxnResponse(
            (), (), context.session.throttle_time, ErrorCode.cluster_authorization_failed
        )
    results = tuple(
        [await _add(broker, context, transaction) async for transaction in in_turns(request.transactions)]
    )
    return AddPartitionsToTxnResponse(
        results,
        results[0].topic_results if context.version < _FIRST_FROM_BROKERS else (),
        context.session.throttle_time,
    )


async def _add(
    broker: Broker, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    partitions = [
        TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions
    ]
    refused = await _refused(broker, context, partitions)
    is_client = context.version < _FIRST_FROM_BROKERS
    if is_client and not may(
        context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, transaction.transactional_id
    ):
        codes = dict.fromkeys(partitions, ErrorCode.transactional_id_authorization_failed)
    elif refused:
        # All or nothing.
        codes = {tp: refused.get(tp, ErrorCode.operation_not_attempted) for tp in partitions}
    elif transaction.verify_only:
        codes = await broker.transactions.verify(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            add=False,
        )
    else:
        code = ErrorCode.none
        try:
            await broker.transactions.add_partitions(
                transaction.transactional_id,
                transaction.producer_id,
                transaction.producer_epoch,
                partitions,
                client_version=BUMPS_EPOCH if context.version >= _FIRST_FROM_BROKERS else 0,
            )
        except KafkaError as error:
            code = _told(error, context)
        codes = dict.fromkeys(partitions, code)
    topics = []
    async for topic in in_turns(transaction.topics):
        rows = [
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
            )
            async for index in in_turns(topic.partitions)
        ]
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(rows)))
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=tuple(topics)
    )


async def _refused(
    broker: Broker, context: RequestContext, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    refused = {}
    is_client = context.version < _FIRST_FROM_BROKERS
    async for tp in in_turns(partitions):
        if is_client and (
            tp.topic in INTERNAL_TOPICS or not may(context, Operation.WRITE, AclResource.TOPIC, tp.topic)
        ):
            refused[tp] = ErrorCode.topic_authorization_failed
        elif not broker.transactions.has_partition(tp):
            refused[tp] = ErrorCode.unknown_topic_or_partition
    return refused


@handles(ApiKey.ADD_OFFSETS_TO_TXN, answer_with(AddOffsetsToTxnResponse, told=_told))
async def add_offsets_to_txn(
    broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    require(context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
    require(context, Operation.READ, AclResource.GROUP, request.group_id)
    await broker.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    return AddOffsetsToTxnResponse(throttle_time=context.session.throttle_time, error_code=ErrorCode.none)


@handles(
    ApiKey.END_TXN,
    answer_with(
        EndTxnResponse,
        told=_told,
        producer_id=ProducerId(NOBODY.id),
        producer_epoch=i16(NOBODY.epoch),
    ),
)
async def end_txn(broker: Broker, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    require(context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
    identity = await broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        committed=request.committed,
        client_version=BUMPS_EPOCH if context.version >= _FIRST_BUMPING_EPOCH else 0,
    )
    return EndTxnResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        producer_id=ProducerId(identity.id),
        producer_epoch=i16(identity.epoch),
    )


@handles(ApiKey.DESCRIBE_TRANSACTIONS)
async def describe_transactions(
    broker: Broker, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time=context.session.throttle_time,
        transaction_states=tuple(
            [await _describe(broker, context, name) async for name in in_turns(request.transactional_ids)]
        ),
    )


async def _describe(
    broker: Broker, context: RequestContext, transactional_id: TransactionalId
) -> TransactionState:
    try:
        require(context, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id)
        found = await broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(
            error_code=error.code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=i32Timedelta.parse(timedelta(0)),
            transaction_start_time=moment(0),
            producer_id=ProducerId(0),
            producer_epoch=i16(0),
            topics=(),
        )
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=found.timeout_ms)),
        transaction_start_time=moment(found.started_ms),
        producer_id=ProducerId(found.producer_id),
        producer_epoch=i16(found.epoch),
        topics=tuple(
            topic
            for topic in _by_topic(found.partitions)
            if may(context, Operation.DESCRIBE, AclResource.TOPIC, topic.topic, quietly=True)
        ),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[TopicData]:
    for topic, group in groupby(sorted(partitions), key=lambda tp: tp.topic):
        yield TopicData(topic=TopicName(topic), partitions=tuple(i32(tp.partition) for tp in group))


@handles(
    ApiKey.LIST_TRANSACTIONS,
    answer_with(ListTransactionsResponse, unknown_state_filters=(), transaction_states=()),
)
async def list_transactions(
    broker: Broker, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    listed, unknown = await broker.transactions.list(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern,
    )
    return ListTransactionsResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        unknown_state_filters=tuple(unknown),
        transaction_states=tuple(
            ListedState(
                transactional_id=TransactionalId(entry.transactional_id),
                producer_id=ProducerId(entry.transaction.producer_id),
                transaction_state=entry.transaction.state.label,
            )
            for entry in listed
            if may(
                context,
                Operation.DESCRIBE,
                AclResource.TRANSACTIONAL_ID,
                entry.transactional_id,
                quietly=True,
            )
        ),
    )
