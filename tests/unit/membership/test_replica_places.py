"""The controller is told where replicas are: only what it does not know, and until it has understood."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from immutables import Map

from ottla.controller.directories import DirectoryAssignment, DirectoryOutcome
from ottla.membership import replica_places
from ottla.membership.replica_places import AT_ONCE_MAX, ReplicaPlaces
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.uuids import DIRECTORY_UNASSIGNED
from ottla.runtime.clock import SystemClock
from ottla.wire.errors import KafkaError, NotController, UnknownTopicId

ONE, TWO = UUID(int=1001), UUID(int=1002)
TOPIC_ID = UUID(int=7)
BROKER, OTHER, EPOCH = 1, 2, 55
PARTITIONS = AT_ONCE_MAX + 10


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_places, "_TOGETHER_SECONDS", 0)
    monkeypatch.setattr(replica_places, "_RETRY_SECONDS", 0)


class FakeController:
    def __init__(self) -> None:
        self.asked: list[list[DirectoryAssignment]] = []
        self.answers: list[KafkaError | None] = []
        """To requests as a whole, and then to each assignment of the next."""
        self.refusal: KafkaError | None = None
        self.is_told = asyncio.Event()

    async def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[DirectoryOutcome]:
        assert (broker_id, broker_epoch) == (BROKER, EPOCH)
        self.asked.append(list(assignments))
        if self.answers and (failure := self.answers.pop(0)) is not None:
            raise failure
        self.is_told.set()
        return [DirectoryOutcome(each, self.refusal) for each in assignments]


def run(scenario: Callable[[ReplicaPlaces, FakeController], Awaitable[None]]) -> None:
    async def main() -> None:
        # The first partition is known to be in the first directory, of the others nothing is known.
        states = [
            PartitionImage((OTHER, BROKER), (OTHER,), OTHER, 0, 0, (UUID(int=2000), directory))
            for directory in (ONE, *[DIRECTORY_UNASSIGNED] * (PARTITIONS - 1))
        ]
        image = MetadataImage(
            topics=Map({"a": TopicImage("a", TOPIC_ID, tuple(states))}), topic_names=Map({TOPIC_ID: "a"})
        )
        controller: Any = FakeController()
        metadata: Any = SimpleNamespace(image=image)
        places = ReplicaPlaces(
            SystemClock(), controller, metadata, BROKER, lambda: EPOCH, {"/one": ONE, "/two": TWO}
        )
        running = asyncio.ensure_future(places.run())
        await scenario(places, controller)
        running.cancel()

    asyncio.run(main())


def test_only_what_is_not_known_is_told() -> None:
    async def scenario(places: ReplicaPlaces, controller: FakeController) -> None:
        places.note(TOPIC_ID, 0, "/one")
        places.note(UUID(int=8), 0, "/one")
        places.note(TOPIC_ID, 1, "/one")
        places.note(TOPIC_ID, 2, "/two")
        await controller.is_told.wait()
        assert controller.asked == [
            [DirectoryAssignment(ONE, TOPIC_ID, 1), DirectoryAssignment(TWO, TOPIC_ID, 2)]
        ]
        # Moved since.
        controller.is_told.clear()
        places.note(TOPIC_ID, 0, "/two")
        await controller.is_told.wait()
        assert controller.asked[1:] == [[DirectoryAssignment(TWO, TOPIC_ID, 0)]]

    run(scenario)


def test_it_is_told_again_until_the_controller_has_it() -> None:
    async def scenario(places: ReplicaPlaces, controller: FakeController) -> None:
        controller.answers = [NotController("elsewhere"), NotController("elsewhere"), None]
        places.note(TOPIC_ID, 1, "/one")
        await controller.is_told.wait()
        assert controller.asked == [[DirectoryAssignment(ONE, TOPIC_ID, 1)]] * 3

    run(scenario)


def test_what_is_gone_meanwhile_is_not_told_again() -> None:
    async def scenario(places: ReplicaPlaces, controller: FakeController) -> None:
        controller.refusal = UnknownTopicId("deleted")
        places.note(TOPIC_ID, 1, "/one")
        await controller.is_told.wait()
        controller.is_told.clear()
        places.note(TOPIC_ID, 2, "/two")
        await controller.is_told.wait()
        assert [len(each) for each in controller.asked] == [1, 1]

    run(scenario)


def test_many_replicas_take_several_requests() -> None:
    async def scenario(places: ReplicaPlaces, controller: FakeController) -> None:
        for partition in range(1, PARTITIONS):
            places.note(TOPIC_ID, partition, "/one")
        while sum(map(len, controller.asked)) < PARTITIONS - 1:
            controller.is_told.clear()
            await controller.is_told.wait()
        assert [len(each) for each in controller.asked] == [AT_ONCE_MAX, PARTITIONS - 1 - AT_ONCE_MAX]

    run(scenario)
