"""TxnOffsetCommit: what is refused, who is asked, and what errors become for clients of each version."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ottla.config import BrokerConfig
from ottla.coordinator.groups.commands import CommitRequest
from ottla.handlers.context import RequestContext
from ottla.handlers.session import Session
from ottla.handlers.txn_offsets import txn_offset_commit
from ottla.log.types import TopicPartition
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.records.producer import ProducerIdentity
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorLoadInProgress, ErrorCode, KafkaError, NotCoordinator

OK = ErrorCode.none
UNKNOWN = ErrorCode.unknown_topic_or_partition
INDEX = 3


class FakeGroups:
    """Verifies what it is given, then answers as told."""

    def __init__(self) -> None:
        self.requests: list[CommitRequest] = []
        self.error: KafkaError | None = None
        self.is_own_epoch: bool | None = None

    async def commit_transactional(
        self, request: CommitRequest, producer: ProducerIdentity, verify: Any, *, is_own_epoch: bool
    ) -> list[list[ErrorCode]]:
        assert request.producer == producer
        self.is_own_epoch = is_own_epoch
        if self.error is not None:
            raise self.error
        code = await verify(INDEX)
        self.requests.append(request)
        return [[code] * len(topic.partitions) for topic in request.topics]


class FakeTransactions:
    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[tuple[Any, ...]] = []

    async def verify(
        self, name: str, producer_id: int, epoch: int, partitions: list[TopicPartition], add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((name, producer_id, epoch, tuple(partitions), add))
        return dict.fromkeys(partitions, self.codes.pop(0) if self.codes else OK)


def topic(name: str, *partitions: int) -> TxnOffsetCommitRequestTopic:
    return TxnOffsetCommitRequestTopic(
        name=name,  # type: ignore[arg-type]
        partitions=tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=index,  # type: ignore[arg-type]
                committed_offset=10 + index,  # type: ignore[arg-type]
                committed_metadata="note",
            )
            for index in partitions
        ),
    )


class Kit:
    def __init__(self, *codes: ErrorCode, **config: str) -> None:
        self.groups = FakeGroups()
        self.transactions = FakeTransactions(*codes)
        known = SimpleNamespace(id=uuid.UUID(int=1), partitions=(0, 1))
        properties = {key.replace("_", "."): value for key, value in config.items()}
        self.broker: Any = SimpleNamespace(
            groups=self.groups,
            transactions=self.transactions,
            config=BrokerConfig.from_properties({"node.id": "1", **properties}),
            metadata=SimpleNamespace(image=SimpleNamespace(topics={"orders": known})),
            runtime=SimpleNamespace(
                clock=SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
            ),
        )

    def commit(self, version: int, *topics: TxnOffsetCommitRequestTopic) -> dict[tuple[str, int], ErrorCode]:
        request = TxnOffsetCommitRequest(
            transactional_id="id",  # type: ignore[arg-type]
            group_id="g",  # type: ignore[arg-type]
            producer_id=7,  # type: ignore[arg-type]
            producer_epoch=2,  # type: ignore[arg-type]
            generation_id=4,  # type: ignore[arg-type]
            member_id="m",
            group_instance_id="i",
            topics=topics or (topic("orders", 0),),
        )
        context = RequestContext(
            Session("PLAINTEXT", "127.0.0.1", 40_000), version, 7, ApiKey.TXN_OFFSET_COMMIT
        )
        response = asyncio.run(txn_offset_commit(self.broker, context, request))
        return {
            (each.name, row.partition_index): row.error_code
            for each in response.topics
            for row in each.partitions
        }


def test_a_commit_reaches_the_group_as_it_was_sent() -> None:
    kit = Kit()
    assert kit.commit(5) == {("orders", 0): OK}
    (request,) = kit.groups.requests
    assert (request.group_id, request.member_id, request.generation, request.instance_id) == (
        "g",
        "m",
        4,
        "i",
    )
    assert request.version == 5
    assert request.producer == ProducerIdentity(7, 2)
    (commit,) = request.topics
    assert (commit.name, commit.topic_id) == ("orders", uuid.UUID(int=1))
    assert commit.partitions[0] == (0, 10, -1, "note")


def test_what_does_not_exist_is_refused_by_itself() -> None:
    kit = Kit()
    assert kit.commit(5, topic("orders", 1, 2, -1), topic("gone", 0)) == {
        ("orders", 1): OK,
        ("orders", 2): UNKNOWN,
        ("orders", -1): UNKNOWN,
        ("gone", 0): UNKNOWN,
    }
    assert [item.partition for item in kit.groups.requests[0].topics[0].partitions] == [1]
    nothing = Kit()
    assert nothing.commit(5, topic("gone", 0)) == {("gone", 0): UNKNOWN}
    assert not nothing.groups.requests


@pytest.mark.parametrize(("version", "adds"), [(0, False), (4, False), (5, True)])
def test_since_version_5_the_question_adds_the_partition(version: int, adds: bool) -> None:
    kit = Kit()
    kit.commit(version)
    assert kit.transactions.asked == [("id", 7, 2, (TopicPartition(OFFSETS_TOPIC, INDEX),), adds)]
    assert kit.groups.is_own_epoch == adds


@pytest.mark.parametrize(("version", "asked"), [(4, 0), (5, 1)])
def test_verification_can_be_switched_off_for_those_who_add_partitions_themselves(
    version: int, asked: int
) -> None:
    kit = Kit(transaction_partition_verification_enable="false")
    assert kit.commit(version) == {("orders", 0): OK}
    assert len(kit.transactions.asked) == asked


def test_a_transaction_that_is_just_being_ended_is_waited_for() -> None:
    ending = ErrorCode.concurrent_transactions
    kit = Kit(ending, ending)
    assert kit.commit(5) == {("orders", 0): OK}
    assert len(kit.transactions.asked) == 3
    impatient = Kit(*[ending] * 1000, add_partitions_to_txn_retry_backoff_max_ms="0")
    assert impatient.commit(5) == {("orders", 0): ending}
    old = Kit(ending)
    assert old.commit(4) == {("orders", 0): ending}


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.producer_fenced, 5, ErrorCode.invalid_producer_epoch),
        (ErrorCode.transaction_abortable, 3, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, 4, ErrorCode.transaction_abortable),
        (ErrorCode.network_exception, 5, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.network_exception, 1, ErrorCode.coordinator_not_available),
        (ErrorCode.invalid_producer_id_mapping, 0, ErrorCode.invalid_producer_id_mapping),
    ],
)
def test_errors_are_told_as_clients_know_them(code: ErrorCode, version: int, told: ErrorCode) -> None:
    assert Kit(code).commit(version) == {("orders", 0): told}


@pytest.mark.parametrize(
    ("error", "version", "told"),
    [
        (NotCoordinator("elsewhere"), 5, ErrorCode.not_coordinator),
        (CoordinatorLoadInProgress("soon"), 5, ErrorCode.coordinator_load_in_progress),
        (CoordinatorLoadInProgress("soon"), 1, ErrorCode.coordinator_not_available),
    ],
)
def test_an_error_of_the_group_is_one_of_every_partition(
    error: KafkaError, version: int, told: ErrorCode
) -> None:
    kit = Kit()
    kit.groups.error = error
    assert kit.commit(version, topic("orders", 0, 1, 5)) == {
        ("orders", 0): told,
        ("orders", 1): told,
        ("orders", 5): UNKNOWN,
    }
