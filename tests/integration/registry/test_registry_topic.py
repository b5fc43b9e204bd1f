"""Who may write to the topic of a registry: the last one that took it over, and nobody before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.client.cluster import LATEST, ClusterClient
from ottla.records.records import Record
from ottla.registry.election import Identity
from ottla.registry.records import Change, Key
from ottla.registry.rules import Outcome, Rules, Wanted
from ottla.registry.schema import Schema
from ottla.registry.service import RegistryService, RegistrySettings
from ottla.registry.topic import TopicReader, TopicWriter, ensure_topic
from ottla.runtime.clock import SystemClock
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.in_process import InProcessBroker
from ottla.wire.errors import KafkaError

pytestmark = pytest.mark.xdist_group("registry")


@asynccontextmanager
async def writers(
    cluster: InProcessBroker, topic: str
) -> AsyncIterator[tuple[TopicReader, list[bytes | None], Callable[[], TopicWriter]]]:
    """A reader with what it has read, and writers of their own connections, as in processes of their own."""
    clients: list[ClusterClient] = []

    def client() -> ClusterClient:
        clients.append(ClusterClient(AsyncioNetwork(), cluster.bootstrap_servers))
        return clients[-1]

    await ensure_topic(client(), topic, 1)
    seen: list[bytes | None] = []

    def see(record: Record) -> None:
        seen.append(record.value)

    reader = TopicReader(client(), topic, see)
    reading = asyncio.ensure_future(reader.run())
    try:
        yield reader, seen, lambda: TopicWriter(client(), topic, f"writes-{topic}", SystemClock())
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        for each in clients:
            each.close()


def change(name: str) -> list[Change]:
    return [Change(Key("MODE", name), {"mode": name})]


def test_one_that_was_replaced_writes_nothing_more(cluster: InProcessBroker) -> None:
    async def run() -> list[bytes | None]:
        async with writers(cluster, "_replaced") as (reader, seen, new_writer):
            first, second = new_writer(), new_writer()
            await first.take_over()
            await reader.wait_for_batch_of(await first.write(change("before")))
            await second.take_over()
            with pytest.raises(KafkaError):
                await first.write(change("too late"))
            await reader.wait_for_batch_of(await second.write(change("after")))
            await reader.catch_up()
            return seen

    assert asyncio.run(run()) == [b'{"mode":"before"}', b'{"mode":"after"}']


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_one_that_is_replaced_in_the_middle_of_a_write_has_written_nothing(
    cluster: InProcessBroker, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """After it began its transaction, named the partition, or wrote the records, but before the commit."""

    async def run() -> list[bytes | None]:
        async with writers(cluster, f"_middle{steps}") as (reader, seen, new_writer):
            first, second = new_writer(), new_writer()
            await first.take_over()
            reached, go_on = asyncio.Event(), asyncio.Event()
            _pause_before_step(first, steps, reached, go_on, monkeypatch)
            writing = asyncio.ensure_future(first.write(change("half")))
            await reached.wait()
            await second.take_over()
            # All that the first one may have committed is read when the second one begins.
            await reader.catch_up()
            known = list(seen)
            go_on.set()
            with pytest.raises(KafkaError):
                await writing
            await reader.wait_for_batch_of(await second.write(change("whole")))
            assert seen[: len(known)] == known
            return seen

    assert asyncio.run(run()) == [b'{"mode":"whole"}']


def _pause_before_step(
    writer: TopicWriter,
    step: int,
    reached: asyncio.Event,
    go_on: asyncio.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ottla.client.produce import PartitionProducer
    from ottla.registry import topic

    owner, name = [
        (topic, "add_partitions"),
        (PartitionProducer, "send"),
        (writer._transactions, "commit"),
    ][step]
    real = getattr(owner, name)

    async def paused(*given: object, **named: object) -> object:
        if not reached.is_set():
            reached.set()
            await go_on.wait()
        return await real(*given, **named)

    monkeypatch.setattr(owner, name, paused)


def test_a_write_is_answered_when_it_has_been_read_back(
    cluster: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next one would be decided without it, and get the same id."""
    held = asyncio.Event()
    held.set()
    take = TopicReader.run

    async def run_when_let(self: TopicReader) -> None:
        fetch = self._cluster.fetch

        async def fetch_when_let(*given: Any, **named: Any) -> Any:
            fetched = await fetch(*given, **named)
            await held.wait()
            return fetched

        monkeypatch.setattr(self._cluster, "fetch", fetch_when_let)
        await take(self)

    monkeypatch.setattr(TopicReader, "run", run_when_let)
    settings = RegistrySettings(cluster.bootstrap_servers, {}, topic="_read-back", group="read-back")

    def register(name: str) -> Callable[[Rules], Outcome]:
        return lambda rules: rules.register(name, Wanted(Schema("AVRO", f'"{name}"')))

    async def run() -> tuple[int, int]:
        service = RegistryService(AsyncioNetwork(), SystemClock(), settings)
        await service.start()
        running = asyncio.ensure_future(service.run(Identity("127.0.0.1", 1)))
        other = ClusterClient(AsyncioNetwork(), cluster.bootstrap_servers)
        try:
            await service.wait_until_ready()
            held.clear()
            first = asyncio.ensure_future(service.write(register("string")))
            end = ("_read-back", 0)
            while (await other.list_offsets({end: LATEST}, read_committed=True))[end].offset == 0:
                await asyncio.sleep(0.01)
            second = asyncio.ensure_future(service.write(register("long")))
            done, _ = await asyncio.wait((first, second), timeout=0.2)
            assert not done
            held.set()
            return (await first)[0].id, (await second)[0].id
        finally:
            held.set()
            await service.stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            other.close()

    assert asyncio.run(run()) == (1, 2)
