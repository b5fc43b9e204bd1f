"""Administrators of replicas: reassignments, and elections of preferred leaders."""

from __future__ import annotations

import datetime
import random

from ottla.sim.chaos import requests
from ottla.sim.chaos.session import Unanswered
from ottla.sim.client import Client, RequestFailed
from ottla.sim.cluster.session import ClusterSession

_TIMEOUT = datetime.timedelta(seconds=5)
REPLICAS = 3
PREFERRED = 0


class Moving:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def move(self, name: str) -> None:
        session = self._session
        chance, client = session.world.random(name), session.client(name)
        topics = (*session.stable_topics, "__consumer_offsets", "__transaction_state")
        while await session.pause(chance, 1.5):
            topic, partition = chance.choice(topics), chance.randrange(2)
            if chance.random() < 0.25:
                what, request = "elect", self._elect(client, topic, partition)
            else:
                what, request = "reassign", self._reassign(client, chance, topic, partition)
            try:
                await session.ask(what, request)
            except (RequestFailed, Unanswered):
                continue

    async def _reassign(self, client: Client, chance: random.Random, topic: str, partition: int) -> None:
        brokers = self._session.machines.shape.broker_ids
        replicas = None if chance.random() < 0.1 else tuple(chance.sample(brokers, REPLICAS))
        module = requests.schema("alter_partition_reassignments", 0)
        wanted = module.ReassignablePartition(partition_index=partition, replicas=replicas)
        answer = await client.send(
            module.AlterPartitionReassignmentsRequest(
                timeout=_TIMEOUT, topics=(module.ReassignableTopic(name=topic, partitions=(wanted,)),)
            )
        )
        requests.check(answer)
        requests.check(answer.responses[0].partitions[0])

    async def _elect(self, client: Client, topic: str, partition: int) -> None:
        module = requests.schema("elect_leaders", 2)
        wanted = module.TopicPartitions(topic=topic, partitions=(partition,))
        answer = await client.send(
            module.ElectLeadersRequest(election_type=PREFERRED, topic_partitions=(wanted,), timeout=_TIMEOUT)
        )
        requests.check(answer)
        requests.check(answer.replica_election_results[0].partition_result[0])
