"""Administrators: topics are made, grown, altered and deleted, wisely and not."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from ottla.sim.chaos import requests
from ottla.sim.chaos.mixes import BROKER_SETTINGS, CONTRADICTIONS, ORDINARY_SETTINGS, UNKNOWN_SETTINGS
from ottla.sim.chaos.promises import TopicPromises
from ottla.sim.chaos.session import INTERNAL_TOPICS, NAMES, Session, Unanswered
from ottla.sim.client import Client, RequestFailed
from ottla.wire.errors import ErrorCode

PARTITIONS_MAX = 6


class Administration:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def administer(self, host: str) -> None:
        chance = self._session.world.random(host)
        client = self._session.client(host)
        actions: dict[str, Callable[[Client, random.Random], Awaitable[None]]] = {
            "create": self._create,
            "delete": self._delete,
            "grow": self._grow,
            "alter": self._alter,
            "alter_contradictory": self._alter_contradictory,
            "alter_unknown": self._alter_unknown,
            "alter_broker": self._alter_broker,
            "delete_records": self._delete_records,
            "delete_internal": self._delete_internal,
        }
        names, weights = list(self._session.mix.operations), list(self._session.mix.operations.values())
        while await self._session.pause(chance, 0.25):
            try:
                await actions[chance.choices(names, weights)[0]](client, chance)
            except (RequestFailed, Unanswered):
                continue

    async def _create(self, client: Client, chance: random.Random) -> None:
        absent = [
            name
            for name in NAMES
            if name not in self._session.promises.topics or self._session.promises.topics[name].may_be_gone
        ]
        if absent:
            await self.create_named(client, chance, chance.choice(absent))

    async def create_named(self, client: Client, chance: random.Random, name: str) -> None:
        catalogue = self._session.mix.settings + (CONTRADICTIONS if self._session.mix.contradictions else ())
        settings = {key: chance.choice(values) for key, values in catalogue if chance.random() < 0.25}
        count = chance.randint(1, 4)
        asked_s = self._session.world.loop.time()
        # Unanswered, it may be there all the same, but nothing of it has been promised.
        try:
            topic_id = await self._session.ask("create", requests.create_topic(client, name, count, settings))
        except RequestFailed as error:
            if error.code is ErrorCode.topic_already_exists and chance.random() < 0.3:
                await self._ask_for("delete", name, _may_be_gone, requests.delete_topic(client, name=name))
            raise
        topic = TopicPromises(name, topic_id, count)
        topic.ask_for(settings)
        topic.settings = {key: {value} for key, value in settings.items()}
        topic.flushes_each = settings.get("flush.messages", "1" if self._session.flushes_each else "") == "1"
        self._session.promises.created(topic, asked_s)

    async def _ask_for(
        self, operation: str, name: str, effect: Callable[[TopicPromises], None], request: Awaitable[None]
    ) -> None:
        """By name: another administrator may have replaced the topic that it is meant for."""
        asked = self._session.promises.asking(name, effect)
        try:
            await self._session.ask(operation, request)
        except RequestFailed:
            asked.ended_s = self._session.world.loop.time()
            raise
        asked.ended_s = self._session.world.loop.time()

    async def _delete(self, client: Client, chance: random.Random) -> None:
        topic = self._session.some_topic(chance)
        if topic is None:
            return
        if chance.random() < 0.5:
            request = requests.delete_topic(client, name=topic.name)
            await self._ask_for("delete", topic.name, _may_be_gone, request)
            topic.is_gone = True
        else:
            topic.may_be_gone = True
            await self._session.ask("delete", requests.delete_topic(client, topic_id=topic.topic_id))
            self._session.promises.deleted(topic)

    async def _grow(self, client: Client, chance: random.Random) -> None:
        topic = self._session.some_topic(chance)
        if topic is not None and topic.partition_count < PARTITIONS_MAX:
            count = topic.partition_count + chance.randint(1, 2)
            await self._session.ask("grow", requests.grow_topic(client, topic.name, count))
            if self._session.promises.topics[topic.name] is topic and not topic.may_be_gone:
                topic.partition_count = max(topic.partition_count, count)

    async def _alter(self, client: Client, chance: random.Random) -> None:
        await self._alter_topic("alter", client, chance, ORDINARY_SETTINGS)

    async def _alter_contradictory(self, client: Client, chance: random.Random) -> None:
        await self._alter_topic("alter_contradictory", client, chance, CONTRADICTIONS)

    async def _alter_unknown(self, client: Client, chance: random.Random) -> None:
        topic = self._session.some_topic(chance)
        if topic is not None:
            key, values = chance.choice(UNKNOWN_SETTINGS)
            request = requests.alter_settings(
                client, requests.TOPIC_RESOURCE, topic.name, {key: chance.choice(values)}
            )
            await self._session.ask("alter_unknown", request)

    async def _alter_topic(
        self,
        operation: str,
        client: Client,
        chance: random.Random,
        catalogue: Sequence[tuple[str, tuple[str, ...]]],
    ) -> None:
        topic = self._session.some_topic(chance)
        if topic is None:
            return
        chosen = chance.sample(catalogue, chance.randint(1, 2))
        settings = {key: None if chance.random() < 0.2 else chance.choice(values) for key, values in chosen}
        request = requests.alter_settings(client, requests.TOPIC_RESOURCE, topic.name, settings)
        await self._ask_for(operation, topic.name, lambda named: named.ask_for(settings), request)

    async def _alter_broker(self, client: Client, chance: random.Random) -> None:
        key, values = chance.choice(BROKER_SETTINGS)
        value = chance.choice(values)
        if key == "log.retention.ms" and value is not None:
            self._session.promises.retention_ms = min(self._session.promises.retention_ms, int(value))
        request = requests.alter_settings(
            client, requests.BROKER_RESOURCE, chance.choice(("", "1")), {key: value}
        )
        await self._session.ask("alter_broker", request)

    async def _delete_records(self, client: Client, chance: random.Random) -> None:
        topic = self._session.some_topic(chance)
        if topic is None:
            return
        partition = chance.randrange(topic.partition_count)
        records = topic.partition(partition).records
        if records:
            offset = chance.choice(records).offset
            request = requests.delete_records(client, topic.name, partition, offset)
            await self._ask_for(
                "delete_records", topic.name, lambda named: named.delete_below(partition, offset), request
            )

    async def _delete_internal(self, client: Client, chance: random.Random) -> None:
        name = chance.choice(INTERNAL_TOPICS)
        self._session.excuse_internal(name)
        await self._session.ask("delete_internal", requests.delete_topic(client, name=name))


def _may_be_gone(topic: TopicPromises) -> None:
    topic.may_be_gone = True
