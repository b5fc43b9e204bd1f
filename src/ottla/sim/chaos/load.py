"""Ordinary clients: they write, with transactions and without, read, and commit offsets in groups."""

from __future__ import annotations

import asyncio

from ottla.records.records import Record, encode_batch
from ottla.sim.chaos import requests
from ottla.sim.chaos.promises import TopicPromises
from ottla.sim.chaos.session import Session, Unanswered
from ottla.sim.client import Client, RequestFailed
from ottla.sim.transactions import NEW, OLD, SimProducer


class Load:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def write(self, host: str) -> None:
        chance = self._session.world.random(host)
        client = self._session.client(host)
        while await self._session.pause(chance, 0.1):
            topic = self._session.some_topic(chance)
            if topic is not None:
                partition = chance.randrange(topic.partition_count)
                try:
                    await self._produce(
                        client, topic, partition, self._session.new_records(topic, partition, chance)
                    )
                except (RequestFailed, Unanswered):
                    continue

    async def _produce(
        self, client: Client, topic: TopicPromises, partition: int, pairs: list[tuple[bytes, bytes]]
    ) -> None:
        now_ms = self._session.now_ms()
        cuts = self._session.promises.power_cuts
        self._session.promises.sending(topic, partition, [value for _, value in pairs])
        batch = encode_batch([Record(key, value, now_ms) for key, value in pairs])
        offset = await self._session.ask("produce", client.produce_batch(topic.name, partition, batch))
        self._session.promises.acknowledged(topic, partition, offset, pairs, now_ms, cuts)
        self._session.counts["records acknowledged"] += len(pairs)

    async def read(self, host: str) -> None:
        chance = self._session.world.random(host)
        client = self._session.client(host)
        while await self._session.pause(chance, 0.2):
            topic = self._session.some_topic(chance)
            if topic is None:
                continue
            partition = chance.randrange(topic.partition_count)
            try:
                offset = await self._session.ask(
                    "list_offsets", requests.first_offset(client, topic.name, partition)
                )
                page = await self._session.ask(
                    "fetch", requests.fetch_page(client, topic.name, partition, offset)
                )
            except (RequestFailed, Unanswered):
                continue
            except requests.CorruptBatch as error:
                if topic.partition(partition).rotten_from is None and not topic.may_be_gone:
                    self._session.fail("CorruptRead", "a damaged batch came", error)
                continue
            self._session.counts["records read along"] += len(page.records)

    async def follow_in_group(self, group: str) -> None:
        chance = self._session.world.random(group)
        client = self._session.client(group, timeout_s=15.0)
        membership = requests.Membership(-1, "")
        while await self._session.pause(chance, 0.5):
            topic = self._session.some_topic(chance)
            if topic is None:
                continue
            partition = chance.randrange(topic.partition_count)
            try:
                if membership.generation < 0 or chance.random() < 0.1:
                    await self._session.ask("find_coordinator", requests.find_coordinator(client, group, 0))
                    membership = await self._session.ask("join_group", requests.join_group(client, group))
                await self._commit(client, group, topic.name, partition, membership, chance.randrange(1000))
            except (RequestFailed, Unanswered):
                membership = requests.Membership(-1, "")

    async def _commit(
        self,
        client: Client,
        group: str,
        topic: str,
        partition: int,
        membership: requests.Membership,
        offset: int,
    ) -> None:
        key = (group, partition)
        promises = self._session.promises
        cuts = promises.power_cuts
        before = promises.topics.get(topic)

        def may_count(named: TopicPromises) -> None:
            # After a power cut nobody knows what there is until the next acknowledgement.
            if key in named.committed or promises.flushes_offsets or not promises.power_cuts:
                named.committed.setdefault(key, {-1}).add(offset)

        # By name: an administrator may replace the topic meanwhile.
        asked = promises.asking(topic, may_count)
        request = requests.commit_offset(
            client,
            group,
            topic,
            partition,
            offset,
            generation=membership.generation,
            member=membership.member,
        )
        try:
            await self._session.ask("commit", request)
        except RequestFailed:
            asked.ended_s = self._session.world.loop.time()
            if before is not None:
                before.committed.get(key, set()).discard(offset)
            raise
        asked.ended_s = self._session.world.loop.time()
        if cuts == promises.power_cuts and before is not None and promises.topics[topic] is before:
            before.committed[key] = {offset}

    async def write_in_transactions(self, name: str) -> None:
        chance = self._session.world.random(name)
        client = self._session.client(name)
        producer: SimProducer | None = None
        while await self._session.pause(chance, 0.5):
            topic = self._session.some_topic(chance)
            if topic is None:
                continue
            partition = chance.randrange(topic.partition_count)
            try:
                # A producer asks again and again for what may never be there.
                async with asyncio.timeout(5):
                    if producer is None:
                        versions = chance.choice((OLD, NEW))
                        producer = SimProducer(
                            self._session.world.runtime(name),
                            client,
                            name,
                            versions=versions,
                            timeout_ms=5000,
                        )
                        await producer.init()
                    now_ms, cuts = self._session.now_ms(), self._session.promises.power_cuts
                    values = [value for _, value in self._session.new_records(topic, partition, chance)]
                    self._session.promises.sending(topic, partition, values)
                    offset = await producer.send(topic.name, partition, values)
                    pairs = [(b"", value) for value in values]
                    # A power cut may take from the coordinator an epoch that was not flushed, and leave on
                    # the partition what was written in it: given out again, its first batch looks like a
                    # repetition, and is not written. So it is with Apache Kafka and a single replica.
                    if self._session.flushes_each or not self._session.promises.power_cuts:
                        self._session.promises.acknowledged(topic, partition, offset, pairs, now_ms, cuts)
                    if self._session.mix.groups and chance.random() < 0.3:
                        await producer.send_offsets("in-transactions", topic.name, {partition: offset})
                    if chance.random() < 0.8:
                        await producer.end(committed=chance.random() < 0.7)
                        self._session.counts["transaction: ended"] += 1
                    else:
                        # Left open: its time-out or its successor ends it.
                        producer = None
            except (RequestFailed, TimeoutError, OSError):
                self._session.counts["transaction: given up"] += 1
                producer = None
