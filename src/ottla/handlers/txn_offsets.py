"""TxnOffsetCommit (versions 0 to 5): offsets that count once a producer's transaction is committed.

v3 names the member, so that a zombie consumer is fenced as well as a zombie producer · v4 producers know
TRANSACTION_ABORTABLE · v5 the group's partition joins the transaction here, without AddOffsetsToTxn before
(KIP-890).
"""

from __future__ import annotations

import asyncio

from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla.coordinator.groups.commands import CommitRequest, PartitionCommit, TopicCommit
from ottla.handlers.authorized import may, require
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.registry import handles
from ottla.log.types import TopicPartition
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.records.producer import ProducerIdentity
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

_FIRST_KNOWING_LOADING = 2
_FIRST_KNOWING_ABORTABLE = 4
_FIRST_ADDING_PARTITION = 5
_VERIFICATION_KEY = "transaction.partition.verification.enable"

Codes = dict[tuple[str, int], ErrorCode]


@handles(ApiKey.TXN_OFFSET_COMMIT)
async def txn_offset_commit(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    codes: Codes = {}
    try:
        require(context, Operation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id)
        require(context, Operation.READ, AclResource.GROUP, request.group_id)
    except KafkaError as error:
        codes = {
            (topic.name, item.partition_index): error.code
            for topic in request.topics
            for item in topic.partitions
        }
        commits = []
    else:
        commits = await _commits(broker, context, request, codes)
    if commits:
        try:
            results = await _commit(broker, context.version, request, commits)
        except KafkaError as error:
            results = [[error.code] * len(topic.partitions) for topic in commits]
        for topic, row in zip(commits, results, strict=True):
            for item, code in zip(topic.partitions, row, strict=True):
                codes[topic.name, item.partition] = _told(code, context.version)
    topics = [await _answer(topic, codes) async for topic in in_turns(request.topics)]
    return TxnOffsetCommitResponse(throttle_time=context.session.throttle_time, topics=tuple(topics))


async def _commits(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest, codes: Codes
) -> list[TopicCommit]:
    """What there is to commit to; codes for the rest."""
    commits = []
    image = broker.metadata.image
    async for topic in in_turns(request.topics):
        if not may(context, Operation.READ, AclResource.TOPIC, topic.name):
            codes.update(
                ((topic.name, item.partition_index), ErrorCode.topic_authorization_failed)
                for item in topic.partitions
            )
            continue
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        partitions = []
        async for item in in_turns(topic.partitions):
            if 0 <= item.partition_index < count:
                partitions.append(
                    PartitionCommit(
                        item.partition_index,
                        item.committed_offset,
                        item.committed_leader_epoch,
                        item.committed_metadata,
                    )
                )
            else:
                codes[topic.name, item.partition_index] = ErrorCode.unknown_topic_or_partition
        if partitions and known is not None:
            commits.append(TopicCommit(topic.name, known.id, partitions))
    return commits


async def _commit(
    broker: Broker, version: int, request: TxnOffsetCommitRequest, commits: list[TopicCommit]
) -> list[list[ErrorCode]]:
    adds = version >= _FIRST_ADDING_PARTITION
    is_verified = adds or broker.config.boolean(_VERIFICATION_KEY)

    async def verify(index: int) -> ErrorCode:
        return await _verify(broker, request, TopicPartition(OFFSETS_TOPIC, index), adds)

    async def trust(index: int) -> ErrorCode:
        return ErrorCode.none

    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    return await broker.groups.commit_transactional(
        CommitRequest(
            request.group_id,
            commits,
            request.member_id,
            request.generation_id,
            request.group_instance_id,
            version=version,
            producer=producer,
        ),
        producer,
        verify if is_verified else trust,
        is_own_epoch=adds,
    )


async def _verify(
    broker: Broker, request: TxnOffsetCommitRequest, partition: TopicPartition, adds: bool
) -> ErrorCode:
    """Asks again while the transaction before is being ended, which is over before a client would be back."""
    clock, config = broker.runtime.clock, broker.config
    deadline = clock.monotonic() + config.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
    while True:
        codes = await broker.transactions.verify(
            request.transactional_id, request.producer_id, request.producer_epoch, [partition], add=adds
        )
        code = codes.get(partition, ErrorCode.none)
        is_ending = adds and code is ErrorCode.concurrent_transactions
        if not is_ending or clock.monotonic() >= deadline:
            return code
        await asyncio.sleep(config.integer("add.partitions.to.txn.retry.backoff.ms") / 1000)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What clients of that version understand."""
    match code:
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        case ErrorCode.transaction_abortable if version < _FIRST_KNOWING_ABORTABLE:
            return ErrorCode.invalid_txn_state
        case ErrorCode.network_exception | ErrorCode.coordinator_load_in_progress:
            is_known = version >= _FIRST_KNOWING_LOADING
            return ErrorCode.coordinator_load_in_progress if is_known else ErrorCode.coordinator_not_available
        case _:
            return code


async def _answer(topic: TxnOffsetCommitRequestTopic, codes: Codes) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(
            partition_index=item.partition_index, error_code=codes[topic.name, item.partition_index]
        )
        async for item in in_turns(topic.partitions)
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(partitions))
