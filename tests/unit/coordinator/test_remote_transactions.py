"""Transactions across brokers: markers to whoever leads a partition, questions to whoever coordinates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_hosted_groups import image, simulate
from test_transaction_coordinator import TOPICS, Service

from ottla.log.types import TopicPartition
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import CoordinatorLoadInProgress, ErrorCode, NetworkException

A, B, C = (TopicPartition("orders", index) for index in range(3))
OFFSETS = TopicPartition(OFFSETS_TOPIC, 3)
ALL_TOPICS = {**TOPICS, "orders": 3}
MARKERS = ApiKey.WRITE_TXN_MARKERS
ADDS = ApiKey.ADD_PARTITIONS_TO_TXN


def led_by(leaders: dict[TopicPartition, int], **topics: int) -> MetadataImage:
    """As `image`, but these partitions have other leaders, in the next epoch."""
    new = image(**(topics or ALL_TOPICS))
    changed = new.topics
    for (name, index), leader in leaders.items():
        topic = changed[name]
        partitions = list(topic.partitions)
        partitions[index] = replace(partitions[index], leader=leader, leader_epoch=1)
        changed = changed.set(name, replace(topic, partitions=tuple(partitions)))
    return replace(new, topics=changed)


def written(code_of: Callable[[int, TopicPartition], ErrorCode]) -> Callable[[int, Any], Any]:
    """An answer to WriteTxnMarkers, as Kafka gives it: by producer, in whatever order."""

    def answer(broker_id: int, values: Any) -> Any:
        return SimpleNamespace(
            markers=[
                SimpleNamespace(
                    producer_id=marker["producer_id"],
                    topics=[
                        SimpleNamespace(
                            name=topic["name"],
                            partitions=[
                                SimpleNamespace(
                                    partition_index=index,
                                    error_code=code_of(broker_id, TopicPartition(topic["name"], index)),
                                )
                                for index in topic["partition_indexes"]
                            ],
                        )
                        for topic in marker["topics"]
                    ],
                )
                for marker in reversed(values["markers"])
            ]
        )

    return answer


def accepted(broker_id: int, tp: TopicPartition) -> ErrorCode:
    return ErrorCode.none


def told(service: Service) -> list[tuple[int, tuple[str, ...]]]:
    """Whom the markers went to, request by request."""
    return [
        (
            broker_id,
            tuple(
                f"{topic['name']}-{index}"
                for marker in values["markers"]
                for topic in marker["topics"]
                for index in topic["partition_indexes"]
            ),
        )
        for broker_id, api_key, values in service.brokers.asked
        if api_key is MARKERS
    ]


async def ready(scope: TaskScope, leaders: dict[TopicPartition, int]) -> Service:
    service = Service(scope)
    service.brokers.answers[MARKERS] = written(accepted)
    service.apply(led_by(leaders))
    await asyncio.sleep(1)
    return service


def test_each_leader_gets_its_markers_in_one_request() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {B: 2, C: 2, OFFSETS: 3})
        identity = await service.begin(A, B, C, OFFSETS)
        await service.end(identity)
        await asyncio.sleep(0.05)
        assert sorted(told(service)) == [(2, ("orders-1", "orders-2")), (3, (f"{OFFSETS_TOPIC}-3",))]
        (_, _, values), *_ = service.brokers.asked
        (marker,) = values["markers"]
        assert {name: marker[name] for name in marker if name != "topics"} == {
            "producer_id": identity.id,
            "producer_epoch": identity.epoch + 1,
            "coordinator_epoch": 0,
            "transaction_result": True,
            "transaction_version": 2,
        }
        assert [row[0] for row in service.partitions.markers] == [A]
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_markers_of_many_transactions_share_the_request_behind_the_one_under_way() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {A: 2})
        service.brokers.delay_s = 1.0
        names = [f"tx{number}" for number in range(10)]
        identities = [await service.begin(A, name=name) for name in names]
        for name, identity in zip(names, identities, strict=True):
            await service.transactions.end(name, *identity, committed=True, client_version=2)
            await asyncio.sleep(0.01)
        await asyncio.sleep(3)
        assert [len(markers) for _, markers in told(service)] == [1, 9]
        assert {await service.state(name) for name in names} == {"CompleteCommit"}

    simulate(test)


def test_the_new_leader_is_told_and_only_of_what_the_old_one_refused() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {A: 2, B: 2})
        service.brokers.answers[MARKERS] = written(
            lambda broker_id, tp: (
                ErrorCode.not_leader_or_follower if (broker_id, tp) == (2, B) else ErrorCode.none
            )
        )
        await service.end(await service.begin(A, B))
        await asyncio.sleep(0.15)
        assert await service.state() == "PrepareCommit"
        service.apply(led_by({A: 2, B: 3}))
        await asyncio.sleep(0.3)
        assert await service.state() == "CompleteCommit"
        first, *again, last = told(service)
        assert first == (2, ("orders-0", "orders-1"))
        assert set(again) == {(2, ("orders-1",))}
        assert last == (3, ("orders-1",))

    simulate(test)


@pytest.mark.parametrize("trouble", ["nobody leads", "no answer", "not in sync"])
def test_what_cannot_be_told_now_is_told_later(trouble: str) -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {A: -1 if trouble == "nobody leads" else 2})

        def fails(broker_id: int, values: Any) -> Any:
            raise NetworkException("broker 2 is gone")

        if trouble == "no answer":
            service.brokers.answers[MARKERS] = fails
        elif trouble == "not in sync":
            service.brokers.answers[MARKERS] = written(lambda broker, tp: ErrorCode.not_enough_replicas)
        await service.end(await service.begin(A))
        await asyncio.sleep(5)
        assert await service.state() == "PrepareCommit"
        service.brokers.answers[MARKERS] = written(accepted)
        service.apply(led_by({A: 2}))
        await asyncio.sleep(1)
        assert await service.state() == "CompleteCommit"

    simulate(test)


def test_a_coordinator_that_was_replaced_tells_nobody_any_more() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {A: 2})
        service.brokers.answers[MARKERS] = written(lambda broker, tp: ErrorCode.request_timed_out)
        await service.end(await service.begin(A))
        await asyncio.sleep(0.5)
        service.apply(led_by({A: 2, TopicPartition(TRANSACTION_TOPIC, 0): 3}))
        await asyncio.sleep(0.2)
        count = len(told(service))
        await asyncio.sleep(5)
        assert len(told(service)) == count

    simulate(test)


# --- questions to another coordinator


def knowing(*partitions: TopicPartition) -> Callable[[int, Any], Any]:
    """An answer to AddPartitionsToTxn of a coordinator that knows of these."""

    def answer(broker_id: int, values: Any) -> Any:
        return SimpleNamespace(
            error_code=ErrorCode.none,
            results_by_transaction=[
                SimpleNamespace(
                    transactional_id=transaction["transactional_id"],
                    topic_results=[
                        SimpleNamespace(
                            name=topic["name"],
                            results_by_partition=[
                                SimpleNamespace(
                                    partition_index=index,
                                    partition_error_code=(
                                        ErrorCode.none
                                        if not transaction["verify_only"]
                                        or TopicPartition(topic["name"], index) in partitions
                                        else ErrorCode.transaction_abortable
                                    ),
                                )
                                for index in topic["partitions"]
                            ],
                        )
                        for topic in transaction["topics"]
                    ],
                )
                for transaction in reversed(values["transactions"])
            ],
        )

    return answer


ELSEWHERE = {TopicPartition(TRANSACTION_TOPIC, 0): 2}


def test_the_coordinator_on_another_broker_is_asked() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, ELSEWHERE)
        service.brokers.answers[ADDS] = knowing(A)
        codes = await service.transactions.verify("tx", 10, 1, [B, A], add=False)
        assert codes == {A: ErrorCode.none, B: ErrorCode.transaction_abortable}
        assert await service.transactions.verify("tx", 10, 1, [B], add=True) == {B: ErrorCode.none}
        (_, _, asks), (broker_id, _, adds) = service.brokers.asked
        assert broker_id == 2
        assert asks["transactions"] == [
            {
                "transactional_id": "tx",
                "producer_id": 10,
                "producer_epoch": 1,
                "verify_only": True,
                "topics": [{"name": "orders", "partitions": [0, 1]}],
            }
        ]
        assert adds["transactions"][0]["verify_only"] is False

    simulate(test)


def test_questions_go_together_but_never_two_of_one_id() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, ELSEWHERE)
        service.brokers.answers[ADDS] = knowing(A)
        service.brokers.delay_s = 1.0
        codes = await asyncio.gather(
            *(
                service.transactions.verify(name, 10, 1, [tp], add=False)
                for name, tp in (("x", A), ("y", A), ("x", B), ("z", B))
            )
        )
        assert [list(each.values()) == [ErrorCode.none] for each in codes] == [True, True, False, False]
        assert [
            sorted(transaction["transactional_id"] for transaction in values["transactions"])
            for _, _, values in service.brokers.asked
        ] == [["x", "y", "z"], ["x"]]

    simulate(test)


@pytest.mark.parametrize(
    ("leader", "code"), [(-1, ErrorCode.coordinator_not_available), (2, ErrorCode.network_exception)]
)
def test_each_partition_is_told_of_a_coordinator_that_cannot_be_asked(leader: int, code: ErrorCode) -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {TopicPartition(TRANSACTION_TOPIC, 0): leader})

        def fails(broker_id: int, values: Any) -> Any:
            raise NetworkException("broker 2 is gone")

        service.brokers.answers[ADDS] = fails
        assert await service.transactions.verify("tx", 10, 1, [A, B], add=True) == {A: code, B: code}

    simulate(test)


def test_whoever_coordinates_itself_asks_nobody() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {})
        identity: ProducerIdentity = await service.begin(A)
        assert await service.transactions.verify("tx", *identity, [A], add=False) == {A: ErrorCode.none}
        assert service.brokers.asked == []

    simulate(test)


def test_a_transaction_ends_while_nobody_gives_out_producer_ids() -> None:
    async def test(scope: TaskScope) -> None:
        service = await ready(scope, {})

        async def refuse() -> range:
            raise CoordinatorLoadInProgress("there is no controller")

        service.blocks = iter([range(10, 11)])
        identity = await service.begin(A)
        service.transactions._producer_ids._allocate_block = refuse
        following = await service.end(identity)
        assert following == (10, 1)
        assert await service.transactions.init_producer_id("tx", 60_000) == (10, 2)
        with pytest.raises(CoordinatorLoadInProgress):
            await service.transactions.init_producer_id("another", 60_000)

    simulate(test)
