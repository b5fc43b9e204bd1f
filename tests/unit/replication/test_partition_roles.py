"""What a broker answers for partitions that it leads, follows, or does not have."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

import pytest
from immutables import Map

from ottla.config import BrokerConfig, LogConfig
from ottla.log.manager import LogManager
from ottla.metadata.change import between
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.records.records import Record, encode_batch
from ottla.replication.appends import Appends
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Role
from ottla.runtime import Runtime
from ottla.runtime.clock import SystemClock
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import TaskScope
from ottla.sim.disk import SimDisk
from ottla.wire.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ottla.wire.produce import TopicData

P = ParamSpec("P")
T = TypeVar("T")
ME, OTHER = 1, 2
LEADER_EPOCH = 5
LED = PartitionImage((ME,), (ME,), ME, LEADER_EPOCH, 0, (UUID(int=99),))
FOLLOWED = PartitionImage((OTHER, ME), (OTHER, ME), OTHER, LEADER_EPOCH, 0, (UUID(int=98), UUID(int=99)))
ELSEWHERE = PartitionImage((OTHER,), (OTHER,), OTHER, LEADER_EPOCH, 0, (UUID(int=98),))


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


class Kit:
    """Topic a: partition 0 is led here, 1 is followed, 2 is elsewhere."""

    def __init__(self) -> None:
        runtime = Runtime(SystemClock(), SimDisk(), AsyncioNetwork(), random.Random(1), InlineOffload())
        properties = {"node.id": str(ME), "log.dirs": "/disk", "metadata.log.dir": "/metadata"}
        config = BrokerConfig.from_properties(properties)
        logs = LogManager(runtime, config, ("/disk",))
        logs.lock()
        logs.open(lambda name: LogConfig())
        self.replicas = ReplicaManager(ME, config, logs, runtime.offload)
        nobody: Any = None
        self.appends = Appends(runtime, config, self.replicas, nobody, TaskScope("test", nobody))
        self.image = MetadataImage()

    async def commit(self, *partitions: PartitionImage) -> None:
        topic = TopicImage("a", UUID(int=7), partitions)
        before = self.image
        self.image = MetadataImage(topics=Map({"a": topic}), topic_names=Map({topic.id: "a"}))
        self.replicas.apply(between(before, self.image))
        await self.replicas.catch_up()

    def produce(self, index: int, version: int = 12, topic: bytes = b"a", acks: int = 1) -> ErrorCode:
        records = memoryview(encode_batch([Record(b"k", b"v", 1)]))
        results = self.appends.append(version, acks, 1000, [TopicData(topic, [(index, records)])], False)
        assert isinstance(results, list)
        return ErrorCode(results[0][1][0].error_code)


def run(scenario: Callable[[Kit], Awaitable[None]]) -> None:
    async def main() -> None:
        kit = Kit()
        await kit.commit(LED, FOLLOWED, ELSEWHERE)
        await scenario(kit)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (0, ErrorCode.none),
        (1, ErrorCode.not_leader_or_follower),
        (2, ErrorCode.not_leader_or_follower),
        (3, ErrorCode.unknown_topic_or_partition),
        (-1, ErrorCode.unknown_topic_or_partition),
    ],
)
@pytest.mark.parametrize(("version", "topic"), [(12, b"a"), (13, UUID(int=7).bytes)])
def test_only_a_leader_takes_records(index: int, error: ErrorCode, version: int, topic: bytes) -> None:
    async def scenario(kit: Kit) -> None:
        assert kit.produce(index, version, topic) is error

    run(scenario)


def test_unknown_topics_are_unknown_by_name_or_by_id() -> None:
    async def scenario(kit: Kit) -> None:
        assert kit.produce(0, 12, b"b") is ErrorCode.unknown_topic_or_partition
        assert kit.produce(0, 13, UUID(int=8).bytes) is ErrorCode.unknown_topic_id
        with pytest.raises(UnknownTopicOrPartition, match="'b'"):
            kit.replicas.partition("b", 0)

    run(scenario)


def test_a_client_with_another_leader_epoch_is_told_which_of_both_is_behind() -> None:
    async def scenario(kit: Kit) -> None:
        assert kit.replicas.leading("a", 0, LEADER_EPOCH).role is Role.LEADER
        for index in (0, 1):
            with pytest.raises(FencedLeaderEpoch):
                kit.replicas.leading("a", index, LEADER_EPOCH - 1)
            with pytest.raises(UnknownLeaderEpoch):
                kit.replicas.leading("a", index, LEADER_EPOCH + 1)
        for index in (1, 2):
            with pytest.raises(NotLeaderOrFollower):
                kit.replicas.leading("a", index, LEADER_EPOCH)
        assert kit.replicas.partition("a", 1).role is Role.FOLLOWER

    run(scenario)


def test_a_partition_changes_its_role_with_the_metadata_and_readers_are_told() -> None:
    async def scenario(kit: Kit) -> None:
        woken: list[str] = []

        class Reader:
            def partition_changed(self) -> None:
                woken.append("again")

        partition = kit.replicas.partition("a", 0)
        partition.watchers[Reader()] = None
        moved = replace(LED, replicas=(ME, OTHER), leader=OTHER, leader_epoch=LEADER_EPOCH + 1)
        await kit.commit(moved, FOLLOWED, ELSEWHERE)
        assert woken == ["again"]
        assert partition.role is Role.FOLLOWER
        assert kit.produce(0) is ErrorCode.not_leader_or_follower
        await kit.commit(replace(moved, leader=ME, leader_epoch=LEADER_EPOCH + 2), FOLLOWED, ELSEWHERE)
        assert kit.produce(0) is ErrorCode.none
        assert partition.log.epochs.latest == LEADER_EPOCH + 2

    run(scenario)
