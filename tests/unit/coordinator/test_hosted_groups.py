"""Shards on an event loop: loading, group commit, failed appends, deadlines, leadership."""

from __future__ import annotations

import asyncio
import random
import struct
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from group_driver import EPOCH_MS, FakeTopics, subscription, topics
from immutables import Map

from ottla.coordinator.groups.commands import (
    CommitRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    PartitionCommit,
    TopicCommit,
    TopicFetch,
)
from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.groups.records import decode, encode
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.host import shard_log
from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.shard_kind import ShardKind
from ottla.coordinator.host.shard_log import java_hash, partition_for, read_batches
from ottla.metadata.change import between
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC as TOPIC
from ottla.records.batch import iter_headers
from ottla.records.markers import Marker, encode_marker
from ottla.records.producer import ProducerIdentity
from ottla.runtime.tasks import TaskScope
from ottla.sim.loop import SimLoop
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    NotCoordinator,
    NotEnoughReplicas,
    RecordTooLarge,
)

SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=1)


class LoopClock:
    def now_ms(self) -> int:
        return EPOCH_MS + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class CountingLog:
    """Sets offsets as a real log would. Appends are committed at once, or when the test says so."""

    batches: dict[int, list[bytes]] = field(default_factory=dict)
    """By partition, what each append brought."""
    ends: dict[int, list[int]] = field(default_factory=dict)
    """The offsets after each."""
    commit: Callable[[], Awaitable[None] | None] = lambda: None
    error: Exception | None = None
    left_by_another: Awaitable[None] | None = None
    """Done when what the leader before wrote last is committed."""

    def append(self, partition: int, batches: bytes) -> Awaitable[None] | None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        offset = self.end_offset(partition)
        stamped = bytearray(batches)
        for at, header in list(iter_headers(stamped)):
            stamped[at : at + 8] = offset.to_bytes(8, "big")
            offset += header.last_offset_delta + 1
        self.batches.setdefault(partition, []).append(bytes(stamped))
        self.ends.setdefault(partition, []).append(offset)
        return self.commit()

    def append_marker(
        self, partition: int, marker: Marker, transaction_version: int
    ) -> Awaitable[None] | None:
        return self.append(partition, encode_marker(marker, EPOCH_MS))

    def check_producer(self, partition: int, producer: ProducerIdentity) -> None:
        pass

    def has_transaction(self, partition: int, producer: ProducerIdentity) -> bool:
        return False

    def read(self, partition: int, offset: int, size_bytes: int) -> bytes:
        """Every append is its own file."""
        for end, data in zip(self.ends.get(partition, []), self.batches.get(partition, []), strict=True):
            if offset < end:
                return data
        return b""

    def find_whole_batch(self, partition: int, offset: int) -> Iterator[int | None]:
        """Damage goes to the end of its append."""
        yield None
        yield next(end for end in self.ends[partition] if offset < end)

    async def wait_made(self) -> None: ...

    def start_offset(self, partition: int) -> int:
        return 0

    def end_offset(self, partition: int) -> int:
        return self.ends[partition][-1] if partition in self.ends else 0

    def wait_committed(self, partition: int) -> Awaitable[None] | None:
        return self.left_by_another

    def batch_bytes_max(self, partition: int) -> int:
        return 1_000_000


def simulate(test: Callable[[TaskScope], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        failures: list[BaseException] = []
        scope = TaskScope("test", lambda _, error: failures.append(error))
        try:
            await test(scope)
        finally:
            await scope.close()
        assert not failures

    loop = SimLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def host(
    scope: TaskScope, offsets_log: CountingLog, view: FakeTopics | None = None
) -> HostedShard[GroupShard]:
    known = view or topics(orders=4)
    ids = iter(range(10_000))
    kind = ShardKind(
        topic=TOPIC,
        noun="groups",
        remedy="look at them",
        log=offsets_log,
        new=lambda: GroupShard(SETTINGS, known, lambda: f"id{next(ids)}"),
        loaded=lambda shard, now: shard.loaded(known, now),
        encode=encode,
        decode=decode,
    )
    hosted = HostedShard(0, kind, LoopClock(), scope)
    hosted.start()
    return hosted


def commit(hosted: HostedShard[GroupShard], offset: int, group: str = "g") -> asyncio.Future[Any]:
    request = CommitRequest(group, [TopicCommit("orders", None, [PartitionCommit(0, offset)])])
    return hosted.submit(lambda shard, ticket, now: shard.commit_offsets(request, ticket, now))


async def fetch(hosted: HostedShard[GroupShard], group: str = "g") -> int | None:
    request = FetchOffsetsRequest(group, [TopicFetch("orders", None, [0])])
    (topic,) = await hosted.submit(lambda shard, ticket, now: shard.fetch_offsets(request, ticket, now))
    value = topic.partitions[0][1]
    return None if value is None else value.offset


def join(hosted: HostedShard[GroupShard], member_id: str = "", **fields: Any) -> asyncio.Future[Any]:
    request = JoinRequest(
        "g", member_id, "consumer", (("range", subscription("orders")),), 10_000, 60_000, **fields
    )
    return hosted.submit(lambda shard, ticket, now: shard.join_group(request, ticket, now))


async def loaded(hosted: HostedShard[GroupShard]) -> None:
    for _ in range(100):
        try:
            await fetch(hosted)
        except CoordinatorLoadInProgress:
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError("never loaded")


def test_commits_of_one_turn_share_an_append() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        results = await asyncio.gather(*(commit(hosted, n, f"g{n}") for n in range(100)))
        assert results == [[[ErrorCode.none]]] * 100
        assert len(offsets_log.batches[0]) == 1
        (batch,) = read_batches(offsets_log.batches[0][0])
        records = batch.records
        assert len(records) == 100
        assert len({record.timestamp_ms for record in records}) == 1

    simulate(test)


def test_large_outcomes_are_split_into_batches_but_appended_at_once() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        offsets_log.batch_bytes_max = lambda partition: 1_000  # type: ignore[method-assign]
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        await asyncio.gather(*(commit(hosted, n, f"g{n}") for n in range(100)))
        assert len(offsets_log.batches[0]) == 1
        batches = list(iter_headers(offsets_log.batches[0][0]))
        assert len(batches) > 10
        assert all(header.size <= 1_000 for _, header in batches)

    simulate(test)


def test_replies_wait_for_the_commit_and_reads_wait_with_them() -> None:
    async def test(scope: TaskScope) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        offsets_log.commit = lambda: gate
        first = commit(hosted, 5)
        await asyncio.sleep(0.1)
        second, read = commit(hosted, 6), asyncio.ensure_future(fetch(hosted))
        await asyncio.sleep(1)
        assert not first.done() and not second.done()
        assert not read.done(), "it would show what may still be lost"
        gate.set_result(None)
        assert await read == 6
        assert first.done() and second.done()
        offsets_log.commit = lambda: None
        assert await commit(hosted, 7) == [[ErrorCode.none]]

    simulate(test)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotEnoughReplicas("1 of 2"), CoordinatorNotAvailable),
        (OSError("disk is full"), NotCoordinator),
        (RecordTooLarge("2 MB"), KafkaError),
    ],
)
def test_a_failed_append_takes_back_what_it_said(error: Exception, told: type[KafkaError]) -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        await commit(hosted, 5)
        parked = join(hosted, requires_known_member_id=False)
        offsets_log.error = error
        with pytest.raises(told):
            await commit(hosted, 6, "other")
        with pytest.raises(KafkaError):
            await parked
        await loaded(hosted)
        assert await fetch(hosted) == 5
        assert await fetch(hosted, "other") is None

    simulate(test)


def test_a_commit_that_fails_later_takes_back_what_it_said() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        offsets_log.commit = lambda: gate
        first = commit(hosted, 5)
        await asyncio.sleep(0)
        second = commit(hosted, 6)
        await asyncio.sleep(0.1)
        gate.set_exception(NotEnoughReplicas("lost one"))
        for future in (first, second):
            with pytest.raises(CoordinatorNotAvailable):
                await future
        offsets_log.commit = lambda: None
        await loaded(hosted)
        await commit(hosted, 7)
        assert await fetch(hosted) == 7

    simulate(test)


def test_a_broken_invariant_costs_a_reload_not_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    async def test(scope: TaskScope) -> None:
        hosted = host(scope, CountingLog())
        await loaded(hosted)
        await commit(hosted, 5)

        def broken(shard: GroupShard, ticket: Any, now: Any) -> Any:
            shard.groups.offsets.clear()
            raise AssertionError("boom")

        with pytest.raises(KafkaError):
            await hosted.submit(broken)
        await loaded(hosted)
        assert await fetch(hosted) == 5

    simulate(test)
    assert "boom" in caplog.text


def test_groups_are_not_there_until_they_are_loaded() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        with pytest.raises(CoordinatorLoadInProgress):
            await commit(hosted, 1)
        await loaded(hosted)
        for n in range(200):
            await commit(hosted, n)
        again = host(scope, offsets_log)
        await loaded(again)
        assert await fetch(again) == 199

    simulate(test)


def test_records_of_another_release_are_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def test(scope: TaskScope) -> None:
        from ottla.records.records import Record, encode_batch

        offsets_log = CountingLog()
        offsets_log.append(0, encode_batch([Record(b"\x00\x63future", b"\x00\x00", EPOCH_MS)]))
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        await commit(hosted, 5)
        assert await fetch(hosted) == 5

    simulate(test)
    assert "type 99" in caplog.text


def test_deadlines_are_kept() -> None:
    async def test(scope: TaskScope) -> None:
        hosted = host(scope, CountingLog())
        await loaded(hosted)
        reply = await join(hosted, requires_known_member_id=False)
        assert reply.generation == 1
        beat = HeartbeatRequest("g", reply.member_id, 1)
        for _ in range(5):
            await asyncio.sleep(9)
            assert (
                await hosted.submit(lambda shard, ticket, now: shard.heartbeat(beat, ticket, now))
                is ErrorCode.none
            )
        await asyncio.sleep(10.1)
        with pytest.raises(KafkaError) as error:
            await hosted.submit(lambda shard, ticket, now: shard.heartbeat(beat, ticket, now))
        assert error.value.code is ErrorCode.unknown_member_id

    simulate(test)


def test_a_client_that_goes_away_disturbs_nobody() -> None:
    async def test(scope: TaskScope) -> None:
        hosted = host(scope, CountingLog())
        await loaded(hosted)
        gone = join(hosted, requires_known_member_id=False)
        gone.cancel()
        await asyncio.sleep(1)
        cancelled = commit(hosted, 5, "other")
        cancelled.cancel()
        await asyncio.sleep(1)
        assert await fetch(hosted, "other") == 5

    simulate(test)


def test_closing_answers_everybody() -> None:
    async def test(scope: TaskScope) -> None:
        hosted = host(scope, CountingLog())
        await loaded(hosted)
        parked, unsent = join(hosted, requires_known_member_id=False), commit(hosted, 5)
        hosted.close()
        for future in (parked, unsent):
            with pytest.raises(NotCoordinator):
                await future
        await asyncio.sleep(60)

    simulate(test)


# --- the service


def test_groups_go_to_the_partitions_java_puts_them_in() -> None:
    assert java_hash("hello") == 99162322
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("polygenelubricants", 50) == 0, "whose hash has no absolute value"
    assert java_hash("\N{GRINNING FACE}") == 0xD83D * 31 + 0xDE00


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 30_000])
def test_names_of_any_length_are_hashed_as_java_does_and_long_ones_not_remembered(length: int) -> None:
    name = ("abc\N{GRINNING FACE}" * length)[:length]
    expected = 0
    for unit in struct.unpack(f">{len(name.encode('utf-16-be')) // 2}H", name.encode("utf-16-be")):
        expected = (31 * expected + unit) & 0xFFFF_FFFF
    before = shard_log._remembered_hash.cache_info().currsize
    assert java_hash(name) == expected
    after = shard_log._remembered_hash.cache_info().currsize
    assert after - before == (0 if length > 250 else 1)


def image(leader: int = 1, epoch: int = 0, **counts: int) -> MetadataImage:
    partition = PartitionImage((1,), (1,), leader, epoch, 0, ())
    named = {
        name: TopicImage(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), (partition,) * count)
        for name, count in counts.items()
    }
    return MetadataImage(
        topics=Map(named),
        topic_names=Map({topic.id: name for name, topic in named.items()}),
    )


class Service:
    def __init__(self, scope: TaskScope) -> None:
        runtime: Any = SimpleNamespace(clock=LoopClock(), random=random.Random(1))
        self.log = CountingLog()
        self.groups = GroupCoordinator(runtime, 1, SETTINGS, self.log, scope, SimpleNamespace)  # type: ignore[arg-type]
        self.image = MetadataImage()

    def apply(self, new: MetadataImage) -> None:
        old, self.image = self.image, new
        self.groups.apply(between(old, new))

    async def commit(self, group: str, offset: int) -> list[list[ErrorCode]]:
        topic_id = self.image.topics["orders"].id
        request = CommitRequest(group, [TopicCommit("orders", topic_id, [PartitionCommit(0, offset)])])
        return await self.groups.commit_nowait(request)

    async def fetch(self, group: str) -> int | None:
        (topic,) = await self.groups.fetch(FetchOffsetsRequest(group, [TopicFetch("orders", None, [0])]))
        value = topic.partitions[0][1]
        return None if value is None else value.offset


def test_the_service_follows_leadership() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        with pytest.raises(CoordinatorNotAvailable):
            await service.fetch("g")
        service.apply(image(**{TOPIC: 5, "orders": 1}))
        await asyncio.sleep(1)
        assert await service.commit("g", 5) == [[ErrorCode.none]]
        service.apply(image(leader=2, epoch=1, **{TOPIC: 5, "orders": 1}))
        with pytest.raises(NotCoordinator):
            await service.fetch("g")
        service.apply(image(leader=1, epoch=2, **{TOPIC: 5, "orders": 1}))
        with pytest.raises(CoordinatorLoadInProgress):
            await service.fetch("g")
        await asyncio.sleep(1)
        assert await service.fetch("g") == 5

    simulate(test)


def test_a_new_leader_epoch_means_loading_again() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{TOPIC: 1, "orders": 1}))
        await asyncio.sleep(1)
        await service.commit("g", 5)
        service.apply(image(epoch=1, **{TOPIC: 1, "orders": 1}))
        with pytest.raises(CoordinatorLoadInProgress):
            await service.fetch("g")
        await asyncio.sleep(1)
        assert await service.fetch("g") == 5

    simulate(test)


def test_deleting_a_topic_forgets_its_offsets() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{TOPIC: 2, "orders": 1}))
        await asyncio.sleep(1)
        await service.commit("g", 5)
        service.apply(image(**{TOPIC: 2}))
        await asyncio.sleep(1)
        assert await service.fetch("g") is None
        (batch,) = read_batches(service.log.batches[partition_for("g", 2)][-1])
        assert [record.value for record in batch.records] == [None]

    simulate(test)


def test_topics_that_change_while_groups_load_are_known_afterwards() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{TOPIC: 1}))
        service.apply(image(**{TOPIC: 1, "orders": 3}))
        await asyncio.sleep(1)
        from ottla.coordinator.groups.commands import ConsumerHeartbeatRequest

        reply = await service.groups.consumer_heartbeat(
            ConsumerHeartbeatRequest("g", "m", 0, rebalance_timeout_ms=1_000, topics=("orders",), owned={})
        )
        assert reply.assignment == {service.image.topics["orders"].id: {0, 1, 2}}

    simulate(test)


def test_listing_asks_every_shard() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{TOPIC: 5, "orders": 1}))
        await asyncio.sleep(1)
        for n in range(20):
            await service.commit(f"g{n}", n)
        listed = await service.groups.list((), ())
        assert sorted(group.group_id for group in listed) == sorted(f"g{n}" for n in range(20))
        assert await service.groups.list(("stable",), ()) == []
        assert len(await service.groups.list(("EMPTY",), ("Classic",))) == 20

    simulate(test)


def test_requests_are_checked_before_they_reach_a_shard() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        request = JoinRequest("", "", "consumer", (), 10_000, 10_000)
        with pytest.raises(InvalidGroupId):
            await service.groups.join(request)
        with pytest.raises(InvalidSessionTimeout, match=r"group\.max\.session\.timeout\.ms"):
            await service.groups.join(replace(request, group_id="g", session_timeout_ms=2_000_000))

    simulate(test)


def test_stopping_answers_everybody() -> None:
    async def test(scope: TaskScope) -> None:
        service = Service(scope)
        service.apply(image(**{TOPIC: 1}))
        await asyncio.sleep(1)
        request = JoinRequest(
            "g",
            "",
            "consumer",
            (("range", subscription("orders")),),
            10_000,
            10_000,
            requires_known_member_id=False,
        )
        joining = asyncio.ensure_future(service.groups.join(request))
        await asyncio.sleep(0)
        service.groups.close()
        with pytest.raises(CoordinatorNotAvailable):
            await joining

    simulate(test)
