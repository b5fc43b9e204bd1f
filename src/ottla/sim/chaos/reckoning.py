"""The end of a run: every fault is undone, everything is read, and what was promised must be there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from ottla.records.records import Record, encode_batch
from ottla.sim.chaos import requests
from ottla.sim.chaos.promises import TopicPromises
from ottla.sim.chaos.session import GROUPS, INTERNAL_TOPICS, BrokerSession
from ottla.sim.checkers import InvariantViolation
from ottla.sim.client import Client, RequestFailed

T = TypeVar("T")

RECOVERY_MAX_S = 120.0


class Reckoning:
    def __init__(self, session: BrokerSession) -> None:
        self._session = session

    async def check(self) -> None:
        disk = self._session.machine.disk
        disk.make_room()
        disk.heal()
        for path in self._session.obstacles:
            disk.clear(path)
        chance = self._session.world.random("end")
        if self._session.obstacles or chance.random() < 0.7:
            await self._session.bounce(chance, chance.choice(("stop", "kill")))
        client = self._session.client("auditor")
        found = await self._eventually("metadata", lambda: requests.all_topics(client))
        self._session.promises.check_topics(found)
        for name, (topic_id, count) in sorted(found.items()):
            topic = self._session.promises.topics.get(name)
            if name in INTERNAL_TOPICS or topic is None or topic.topic_id != topic_id:
                continue
            settings = await self._eventually("settings", partial(requests.topic_settings, client, name))
            self._session.promises.check_settings(topic, settings)
            for partition in range(count):
                await self._check_partition(client, topic, partition)
            if not topic.may_be_gone and not self._session.promises.offsets_excused:
                for group in GROUPS if self._session.mix.groups else ():
                    await self._check_group(client, group, topic, count)
        self._session.counts["topics checked"] += len(found)

    async def _check_partition(self, client: Client, topic: TopicPromises, partition: int) -> None:
        records = await self._read(client, topic, partition)
        self._session.promises.check_records(topic, partition, records, self._session.now_ms())
        self._session.counts["records found again"] += len(records)
        batch = encode_batch([Record(b"last", b"and it goes on", self._session.now_ms())])
        await self._eventually(
            f"produce to {topic.name}-{partition}",
            lambda: client.produce_batch(topic.name, partition, batch),
        )

    async def _read(self, client: Client, topic: TopicPromises, partition: int) -> dict[int, Record]:
        """From the start to the end; where the medium has damaged the log, up to the damage."""
        where = f"{topic.name}-{partition}"
        is_rotten = topic.partition(partition).rotten_from is not None
        records: dict[int, Record] = {}
        offset = 0

        async def next_page() -> requests.Page:
            # Retention goes on meanwhile.
            first = await requests.first_offset(client, topic.name, partition)
            return await requests.fetch_page(client, topic.name, partition, max(first, offset))

        while True:
            try:
                page = await self._eventually(where, next_page, 5 if is_rotten else RECOVERY_MAX_S)
            except (requests.CorruptBatch, InvariantViolation):
                if is_rotten:
                    return records
                raise
            for record in page.records:
                self._session.promises.seen(topic.name, topic.topic_id, partition, record)
                records[record.offset] = record
            offset = page.next_offset
            if page.is_last:
                return records

    async def _check_group(self, client: Client, group: str, topic: TopicPromises, count: int) -> None:
        if any(of_group == group for of_group, _ in topic.committed):
            found = await self._eventually(
                f"offsets of {group}", lambda: requests.committed_offsets(client, group, topic.name, count)
            )
            self._session.promises.check_committed(topic, group, found)
            self._session.counts["groups checked"] += 1

    async def _eventually(
        self, what: str, request: Callable[[], Awaitable[T]], patience_s: float = RECOVERY_MAX_S
    ) -> T:
        """With every fault undone, the broker must come round."""
        give_up_at = self._session.world.loop.time() + patience_s
        while True:
            try:
                return await request()
            except (RequestFailed, OSError) as error:
                if self._session.world.loop.time() > give_up_at:
                    raise InvariantViolation(
                        "NodeThatFails",
                        f"{what} still fails {patience_s:.0f} s after faults were undone, with {error!r}",
                    ) from error
                await asyncio.sleep(0.5)
