"""Shards whose log has followers: what is said waits until it cannot be lost, whoever leads next."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from test_hosted_groups import CountingLog, commit, fetch, host, loaded, simulate

from ottla.coordinator.host.committed import wait_committed
from ottla.coordinator.host.hosted import HostedShard
from ottla.coordinator.host.journal import Instant, Outcome
from ottla.coordinator.host.shard_kind import ShardKind
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, NotCoordinator, NotLeaderOrFollower


def gate() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def test_what_the_leader_before_left_is_read_at_once_and_told_once_it_is_committed() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        before = host(scope, offsets_log)
        await loaded(before)
        await commit(before, 5)
        before.close()
        offsets_log.left_by_another = replicated = gate()
        hosted = host(scope, offsets_log)
        await asyncio.sleep(1)
        assert hosted.shard is not None, "it need not wait to load"
        read = asyncio.ensure_future(fetch(hosted))
        await asyncio.sleep(1)
        assert not read.done(), "it would show what may still be lost"
        replicated.set_result(None)
        assert await read == 5

    simulate(test)


def test_who_waits_too_long_for_replicas_is_told_to_ask_again_and_finds_it_done() -> None:
    async def test(scope: TaskScope) -> None:
        offsets_log = CountingLog()
        hosted = host(scope, offsets_log)
        await loaded(hosted)
        replicated = gate()
        offsets_log.commit = lambda: replicated
        with pytest.raises(CoordinatorNotAvailable):
            await commit(hosted, 5)
        offsets_log.commit = lambda: None
        again = commit(hosted, 6)
        replicated.set_result(None)
        assert await again == [[ErrorCode.none]]
        assert await fetch(hosted) == 6

    simulate(test)


def test_an_effect_does_not_outlive_the_leadership_in_which_it_was_decided() -> None:
    class Shard:
        def replay(self, *args: object) -> None: ...
        def replay_marker(self, producer_id: int, *, committed: bool) -> None: ...
        def next_deadline_ms(self) -> int | None:
            return None

        def tick(self, now: Instant) -> Outcome:
            return Outcome([], [])

    async def test(scope: TaskScope) -> None:
        acted: list[object] = []
        shard_log = CountingLog()
        kind: ShardKind[Any] = ShardKind(
            topic="t",
            noun="things",
            remedy="",
            log=shard_log,
            new=Shard,
            loaded=lambda shard, now: Outcome([], []),
            encode=lambda key, value: (key, value),
            decode=lambda key, value: (key, value),
            act=lambda partition, effect: acted.append(effect),
        )
        hosted: HostedShard[Any] = HostedShard(0, kind, SimpleNamespace(now_ms=int, monotonic=float), scope)  # type: ignore[arg-type]
        hosted.start()
        await asyncio.sleep(1)

        def decide(what: str) -> Any:
            return hosted.submit(
                lambda shard, ticket, now: Outcome([(b"key", b"value")], [(ticket, what)], [what])
            )

        assert await decide("first") == "first"
        replicated = gate()
        shard_log.commit = lambda: replicated
        second = decide("second")
        await asyncio.sleep(0.1)
        hosted.close()
        replicated.set_result(None)
        with pytest.raises(NotCoordinator):
            await second
        await asyncio.sleep(0.1)
        assert acted == ["first"]

    simulate(test)


class Led:
    """A partition with followers, of which only what waiting needs is there."""

    def __init__(self, end_offset: int, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.log = SimpleNamespace(next_offset=end_offset, reached_flush_messages=False, flush=self._flush)
        self.leads = True
        self.watchers: dict[Any, None] = {}

    async def _flush(self) -> None:
        self.log.reached_flush_messages = False

    def check_leads(self) -> None:
        if not self.leads:
            raise NotLeaderOrFollower("elsewhere")

    def notify(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.partition_changed()


@pytest.mark.parametrize("flushes", [False, True])
def test_committed_is_what_lies_below_the_high_watermark(flushes: bool) -> None:
    async def test(scope: TaskScope) -> None:
        partition: Any = Led(end_offset=10, high_watermark=10)
        assert wait_committed(partition) is None
        partition.log.next_offset = 12
        partition.log.reached_flush_messages = flushes
        pending = wait_committed(partition)
        assert pending is not None
        waiting = asyncio.ensure_future(pending)
        await asyncio.sleep(0.1)
        for high_watermark in (10, 11):
            partition.high_watermark = high_watermark
            partition.notify()
            await asyncio.sleep(0.1)
            assert not waiting.done()
        partition.high_watermark, partition.log.next_offset = 12, 20
        partition.notify()
        await waiting

    simulate(test)


def test_who_no_longer_leads_cannot_say_what_is_committed() -> None:
    async def test(scope: TaskScope) -> None:
        partition: Any = Led(end_offset=10, high_watermark=9)
        pending = wait_committed(partition)
        assert pending is not None
        partition.leads = False
        partition.high_watermark = 10
        partition.notify()
        with pytest.raises(NotLeaderOrFollower):
            await pending

    simulate(test)
