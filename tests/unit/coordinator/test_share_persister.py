"""Where a leader of partitions finds the state of share groups: here, with another broker, or a little
later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from test_hosted_groups import image, simulate

from ottla.coordinator.share import persister as module
from ottla.coordinator.share.persister import SharePersister
from ottla.metadata.internal_topics import SHARE_STATE_TOPIC
from ottla.replication.share.in_flight import State, StateBatch
from ottla.replication.share.persister import ShareKey, StateChange, StoredState
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    NotCoordinator,
)

TOPIC_ID = UUID(int=7)
KEY = ShareKey("group", TOPIC_ID, 0)
CHANGE = StateChange(1, 2, 5, 3, [StateBatch(5, 7, State.ACKNOWLEDGED, 1)])
Answer = Callable[[ApiKey, Any], Any]


class FakeCoordinator:
    """Of this broker: answers what it is told to, one thing after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    def partition_for(self, name: Any) -> int:
        return 0

    async def _answer(self, *asked: Any) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def read(self, name: Any, leader_epoch: int) -> Any:
        return await self._answer(name, leader_epoch)

    async def write(self, name: Any, request: Any) -> Any:
        return await self._answer(name, request)


def persister(
    scope: TaskScope, coordinator: FakeCoordinator, node_id: int = 1, answer: Answer | None = None
) -> SharePersister:

    async def ask(broker_id: int, api_key: ApiKey, values: Any) -> Any:
        assert answer is not None
        assert broker_id == 1
        return answer(api_key, values)

    clock: Any = SimpleNamespace(monotonic=asyncio.get_running_loop().time)
    known = image(**{SHARE_STATE_TOPIC: 1})
    found: Any = coordinator
    return SharePersister(node_id, found, lambda: known, ask, clock, scope)


def results(values: Any, row: Callable[[Any], Any]) -> Any:
    return SimpleNamespace(
        results=[
            SimpleNamespace(
                topic_id=topic["topic_id"], partitions=[row(each) for each in topic["partitions"]]
            )
            for topic in values["topics"]
        ]
    )


def test_what_is_coordinated_here_is_asked_here() -> None:
    async def test(scope: TaskScope) -> None:
        batch = SimpleNamespace(first_offset=5, last_offset=7, delivery_state=2, delivery_count=1)
        state = SimpleNamespace(state_epoch=1, start_offset=5, batches=[batch])
        coordinator = FakeCoordinator(state, None)
        found = persister(scope, coordinator)
        assert await found.read(KEY, 2) == StoredState(1, 5, [StateBatch(5, 7, State.ACKNOWLEDGED, 1)])
        await found.write(KEY, CHANGE)
        assert coordinator.asked[1][1].start_offset == 5

    simulate(test)


def test_a_coordinator_that_moves_is_asked_again() -> None:
    async def test(scope: TaskScope) -> None:
        moves = (
            NotCoordinator("moves"),
            CoordinatorLoadInProgress("loads"),
            CoordinatorNotAvailable("not yet"),
        )
        coordinator = FakeCoordinator(*moves, None)
        await persister(scope, coordinator).write(KEY, CHANGE)
        assert len(coordinator.asked) == 4
        with pytest.raises(FencedLeaderEpoch):
            await persister(scope, FakeCoordinator(FencedLeaderEpoch("old"))).write(KEY, CHANGE)

    simulate(test)


def test_patience_ends() -> None:
    async def test(scope: TaskScope) -> None:
        coordinator = FakeCoordinator(*[NotCoordinator("never")] * 100)
        with pytest.raises(NotCoordinator):
            await persister(scope, coordinator).read(KEY, 2)
        assert 30 < len(coordinator.asked) < 45

    assert module.PATIENCE_SECONDS == 30
    simulate(test)


def test_another_broker_is_asked_for_several_at_once() -> None:
    requests: list[tuple[ApiKey, Any]] = []

    def answer(api_key: ApiKey, values: Any) -> Any:
        requests.append((api_key, values))
        fenced = ErrorCode.fenced_state_epoch
        return results(
            values,
            lambda row: SimpleNamespace(
                partition=row["partition"],
                error_code=fenced if row["partition"] == 3 else ErrorCode.none,
                error_message=None,
                state_epoch=row["partition"],
                start_offset=9,
                state_batches=(),
            ),
        )

    async def test(scope: TaskScope) -> None:
        found = persister(scope, FakeCoordinator(), node_id=2, answer=answer)
        keys = [KEY._replace(partition=index) for index in range(4)] + [KEY._replace(group_id="other")]
        read = await asyncio.gather(*(found.read(key, 2) for key in keys), return_exceptions=True)
        assert [each.state_epoch for each in read if isinstance(each, StoredState)] == [0, 1, 2, 0]
        assert isinstance(read[3], KafkaError)
        assert read[3].code is ErrorCode.fenced_state_epoch
        written = await asyncio.gather(*(found.write(key, CHANGE) for key in keys), return_exceptions=True)
        assert [isinstance(each, KafkaError) for each in written] == [False, False, False, True, False]

    simulate(test)
    # A request is about one group.
    assert sorted((key, values["group_id"]) for key, values in requests) == [
        (ApiKey.READ_SHARE_GROUP_STATE, "group"),
        (ApiKey.READ_SHARE_GROUP_STATE, "other"),
        (ApiKey.WRITE_SHARE_GROUP_STATE, "group"),
        (ApiKey.WRITE_SHARE_GROUP_STATE, "other"),
    ]
