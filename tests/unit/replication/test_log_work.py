"""Partitions follow the metadata, and their logs follow them, off the commit; what fails fails alone."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import ParamSpec, TypeVar
from uuid import UUID

import pytest
from immutables import Map

from ottla.config import BrokerConfig, LogConfig
from ottla.log.checkpoints import read_offsets
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.names import RECOVERY_POINTS_FILE
from ottla.log.types import TopicPartition
from ottla.metadata.change import between
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import NO_LEADER
from ottla.records.records import Record, encode_batch
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Role
from ottla.runtime import Runtime
from ottla.runtime.clock import SystemClock
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import TaskScope
from ottla.sim.disk import SimDisk
from ottla.wire.errors import StorageError, UnknownTopicOrPartition

P = ParamSpec("P")
T = TypeVar("T")
DIRS = ("/disk1", "/disk2")


class InlineOffload:
    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    def close(self) -> None: ...


def topic(name: str, number: int, partitions: int = 1) -> TopicImage:
    state = PartitionImage(
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(UUID(int=99),),
    )
    return TopicImage(name, UUID(int=number), (state,) * partitions)


def image(*topics: TopicImage) -> MetadataImage:
    return MetadataImage(
        topics=Map({each.name: each for each in topics}),
        topic_names=Map({each.id: each.name for each in topics}),
    )


class Broker:
    def __init__(self) -> None:
        self.disk = SimDisk()
        runtime = Runtime(SystemClock(), self.disk, AsyncioNetwork(), random.Random(1), InlineOffload())
        properties = {"node.id": "1", "log.dirs": ",".join(DIRS), "metadata.log.dir": "/metadata"}
        config = BrokerConfig.from_properties(properties)
        self.logs = LogManager(runtime, config, DIRS)
        self.logs.lock()
        self.logs.open(lambda name: LogConfig())
        self.replicas = ReplicaManager(1, config, self.logs, runtime.offload)
        self.image = MetadataImage()

    def commit(self, *topics: TopicImage) -> None:
        before, self.image = self.image, image(*topics)
        self.replicas.apply(between(before, self.image))


def records() -> memoryview:
    return memoryview(encode_batch([Record(b"k", b"v", SystemClock().now_ms())]))


def test_a_commit_touches_no_disk_and_partitions_appear_once_their_logs_do() -> None:
    async def scenario() -> None:
        broker = Broker()
        operations = broker.disk.operations
        broker.commit(topic("a", 1, partitions=100))
        assert broker.disk.operations == operations
        with pytest.raises(UnknownTopicOrPartition):
            broker.replicas.partition("a", 99)
        await broker.replicas.catch_up()
        await broker.replicas.wait_made(["a"])
        assert broker.replicas.partition("a", 99).append(records(), -1).base_offset == 0
        assert [len(logs) for logs in broker.logs.logs_by_dir().values()] == [50, 50]

    asyncio.run(scenario())


def test_what_is_in_the_way_takes_one_partition_offline_until_it_is_gone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("ottla.replication.log_work.RETRY_SECONDS", 0.01)
        broker = Broker()
        broker.disk.obstruct("/disk1/a-0")
        broker.commit(topic("a", 1, partitions=2))
        running = asyncio.ensure_future(broker.replicas.run())
        await broker.replicas.wait_made(["a"])
        with pytest.raises(StorageError, match="a-0 is offline"):
            broker.replicas.partition("a", 0)
        assert 0 in broker.replicas.by_name[b"a"].offline
        broker.replicas.partition("a", 1).append(records(), -1)
        assert "a-0 is offline" in caplog.text
        broker.disk.clear("/disk1/a-0")
        async with asyncio.timeout(10):
            while broker.replicas.find("a", 0) is None:
                await asyncio.sleep(0.005)
        assert broker.replicas.by_name[b"a"].offline == {}
        running.cancel()

    asyncio.run(scenario())


def test_a_log_whose_directory_is_gone_begins_empty_only_where_another_broker_leads(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("ottla.replication.log_work.RETRY_SECONDS", 0.01)
        broker = Broker()
        me = BrokerImage(1, 1, UUID(int=5), (), (), None, False, False, directories=(UUID(int=98),))

        def commit(leader: int) -> None:
            state = replace(
                topic("a", 1).partitions[0],
                replicas=(1, 2),
                isr=(1,) if leader == NO_LEADER else (leader,),
                leader=leader,
                directories=(UUID(int=99), UUID(int=97)),
            )
            before = broker.image
            broker.image = replace(image(TopicImage("a", UUID(int=1), (state,))), brokers=Map({1: me}))
            broker.replicas.apply(between(before, broker.image))

        commit(NO_LEADER)
        running = asyncio.ensure_future(broker.replicas.run())
        await broker.replicas.wait_made(["a"])
        with pytest.raises(StorageError, match=r"was in a directory .* that this broker does not have now"):
            broker.replicas.partition("a", 0)
        assert "Bring it back and restart the broker" in caplog.text
        commit(2)
        async with asyncio.timeout(10):
            while broker.replicas.find("a", 0) is None:
                await asyncio.sleep(0.005)
        running.cancel()

    asyncio.run(scenario())


def test_a_full_disk_refuses_and_takes_records_again() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1))
        await broker.replicas.catch_up()
        partition = broker.replicas.partition("a", 0)
        partition.append(records(), -1)
        broker.disk.fill()
        with pytest.raises(StorageError):
            partition.append(records(), -1)
        with pytest.raises(StorageError):
            await broker.logs.write_checkpoints()
        broker.commit(topic("a", 1), topic("b", 2))
        await broker.replicas.catch_up()
        with pytest.raises(StorageError, match="b-0 is offline"):
            broker.replicas.partition("b", 0)
        broker.disk.make_room()
        assert partition.append(records(), -1).base_offset == 1
        await broker.logs.write_checkpoints()

    asyncio.run(scenario())


def test_a_sync_that_fails_takes_its_directory_out_of_use_and_no_other() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1, partitions=2))
        await broker.replicas.catch_up()
        bad, good = (broker.replicas.partition("a", index) for index in range(2))
        for partition in (bad, good):
            partition.append(records(), -1)
        broker.disk.fail("sync", errno.EIO, path="/disk1/a-0/00000000000000000000.log")
        both = await asyncio.gather(bad.log.flush(), bad.log.flush(), return_exceptions=True)
        # Nobody is told that what the kernel dropped is on disk.
        assert [type(each) for each in both] == [StorageError, StorageError]
        assert bad.role is Role.OFFLINE
        with pytest.raises(StorageError, match="out of use"):
            broker.replicas.partition("a", 0)
        assert broker.logs.failure_of("/disk1") is not None
        assert broker.logs.failure_of("/disk2") is None
        await good.log.flush()
        good.append(records(), -1)

    asyncio.run(scenario())


def test_nothing_known_of_a_deleted_topic_is_taken_for_one_of_its_name() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1))
        await broker.replicas.catch_up()
        for _ in range(3):
            broker.replicas.partition("a", 0).append(records(), -1)
        await broker.replicas.partition("a", 0).log.flush()
        await broker.logs.write_checkpoints()
        file = f"/disk1/{RECOVERY_POINTS_FILE}"
        assert read_offsets(broker.disk, file)[TopicPartition("a", 0)] > 0
        broker.commit(topic("a", 2))
        await broker.replicas.catch_up()
        broker.replicas.partition("a", 0).append(records(), -1)
        assert not read_offsets(broker.disk, file).get(TopicPartition("a", 0))

    asyncio.run(scenario())


def test_a_log_that_could_not_be_made_is_not_made_in_a_second_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What came of the first try is found again when the disk is mended."""

    async def scenario() -> None:
        monkeypatch.setattr("ottla.replication.log_work.RETRY_SECONDS", 0.01)
        broker = Broker()
        broker.disk.fail("append", errno.EIO, path="/disk1/", times=100)
        broker.disk.fail("remove", errno.EIO, path="/disk1/", times=100)
        broker.disk.fail("rename", errno.EIO, path="/disk1/", times=100)
        broker.commit(topic("a", 1))
        await broker.replicas.catch_up()
        work = asyncio.ensure_future(broker.replicas.run())
        creation = broker.replicas._work._wanted[TopicPartition("a", 0)]
        while creation.tries < 3:
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(StorageError):
            broker.replicas.partition("a", 0)
        assert broker.logs.failure_of("/disk1") is not None
        assert "a-0" not in broker.disk.list_dir("/disk2")

    asyncio.run(scenario())


def test_a_topic_deleted_and_made_again_at_once_begins_empty() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1))
        await broker.replicas.catch_up()
        broker.replicas.partition("a", 0).append(records(), -1)
        broker.commit(topic("a", 2))
        broker.commit()
        broker.commit(topic("a", 3))
        await broker.replicas.catch_up()
        assert broker.replicas.partition("a", 0).log.next_offset == 0
        assert broker.replicas.partition("a", 0).topic_id == UUID(int=3)
        assert len(list(broker.logs.all_logs)) == 1

    asyncio.run(scenario())


def test_a_directory_removed_under_the_broker_is_noticed() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1, partitions=2))
        await broker.replicas.catch_up()
        broker.disk.remove_tree("/disk1")
        await broker.logs.presence.check()
        with pytest.raises(StorageError, match="removed, or unmounted"):
            broker.replicas.partition("a", 0)
        broker.replicas.partition("a", 1).append(records(), -1)
        # One log alone, its directory being there.
        broker.disk.remove_tree("/disk2/a-1")
        await broker.logs.presence.check()
        with pytest.raises(StorageError, match="was removed while"):
            broker.replicas.partition("a", 1)
        assert broker.logs.get(TopicPartition("a", 1)) is None

    asyncio.run(scenario())


def test_a_disk_that_fails_when_a_file_is_looked_for_takes_its_directory_alone() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1, partitions=2))
        await broker.replicas.catch_up()
        broker.disk.fail("read", errno.EIO, path="/disk1/a-0/00000000000000000000.log")
        await broker.logs.presence.check()
        with pytest.raises(StorageError, match="Input/output error while looking for the files of a-0"):
            broker.replicas.partition("a", 0)
        broker.replicas.partition("a", 1).append(records(), -1)

    asyncio.run(scenario())


def test_a_removed_directory_is_noticed_while_housekeeping_waits_for_a_disk() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1, partitions=2))
        await broker.replicas.catch_up()
        begun, never = asyncio.Event(), asyncio.Event()

        class StuckLog(PartitionLog):
            __slots__ = ()
            flush_is_due = True

            async def flush(self, upto: int | None = None) -> None:
                begun.set()
                await never.wait()

        # These alone: brokers of other tests may run in this process.
        for log in broker.logs.all_logs:
            log.__class__ = StuckLog
        failures: list[str] = []
        scope = TaskScope("test", lambda name, error: failures.append(name))
        broker.logs.start(scope, lambda partition: None)
        try:
            await asyncio.wait_for(begun.wait(), 10)
            broker.disk.remove_tree("/disk1")
            async with asyncio.timeout(10):
                while broker.logs.failure_of("/disk1") is None:
                    await asyncio.sleep(0.01)
            with pytest.raises(StorageError, match="removed, or unmounted"):
                broker.replicas.partition("a", 0)
            broker.replicas.partition("a", 1).append(records(), -1)
        finally:
            await scope.close()
        assert not failures

    asyncio.run(scenario())


def test_a_roll_without_room_leaves_no_segment_behind() -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.commit(topic("a", 1))
        await broker.replicas.catch_up()
        log = broker.replicas.partition("a", 0).log
        log.append(records(), 0)
        broker.disk.fail("open", errno.ENOSPC, path=f"{log.dir}/{1:020d}.timeindex")
        with pytest.raises(OSError, match="No space"):
            log.roll()
        names = broker.disk.list_dir(log.dir)
        assert [name for name in names if name.startswith(f"{1:020d}")] == []
        assert log.append(records(), 0).base_offset == 1

    asyncio.run(scenario())
