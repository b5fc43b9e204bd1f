"""Administrators of the quorum: voters are removed, added, moved and given an empty disk, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
from collections.abc import Awaitable, Callable

from ottla.raft.voters import ReplicaKey
from ottla.sim.chaos import requests
from ottla.sim.chaos.session import Unanswered
from ottla.sim.client import Client, RequestFailed
from ottla.sim.cluster.machines import CLUSTER_ID
from ottla.sim.cluster.session import ClusterSession
from ottla.wire.errors import ErrorCode

RECOVERY_MAX_S = 60.0
VOTERS_WITHOUT_ONE_MIN = 3
"""With fewer, those that are left without one of them are no majority."""
# A broker that lost the controller has asked again, and its first question had been heard; or who led when
# it was asked leads no more.
_PERHAPS_DONE = frozenset(
    {ErrorCode.duplicate_voter, ErrorCode.voter_not_found, ErrorCode.not_leader_or_follower}
)
_TIMEOUT = datetime.timedelta(seconds=5)
_METADATA_TOPIC = "__cluster_metadata"


class ChangingVoters:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session
        self._machines = session.machines

    async def change(self, name: str) -> None:
        session = self._session
        # Longer than a broker hands a request on, so that what was not answered is over.
        chance, client = session.world.random(name), session.client(name, timeout_s=15.0)
        while await session.pause(chance, 1.5):
            try:
                voters = await session.ask("describe quorum", self._voters(client))
                await self._change_one(client, chance, voters)
            except (RequestFailed, Unanswered):
                continue

    async def _change_one(self, client: Client, chance: random.Random, voters: list[ReplicaKey]) -> None:
        if len(voters) >= VOTERS_WITHOUT_ONE_MIN and not self._session.voters.is_in_doubt:
            victim = chance.choice(voters)
            if self._machines.is_up(victim.id) and chance.random() < 0.35:
                if chance.random() < 0.5:
                    await self._replace_disk(client, victim)
                else:
                    await self._move(client, chance, victim)
                return
        ids = {voter.id for voter in voters}
        absent = [number for number in self._machines.shape.quorum if number not in ids]
        if absent and (len(voters) == 1 or chance.random() < 0.6):
            await self._add(client, chance.choice(absent))
        elif len(voters) > 1:
            await self._remove(client, chance.choice(voters))

    async def _voters(self, client: Client) -> list[ReplicaKey]:
        module = requests.schema("describe_quorum", 2)
        wanted = module.TopicData(
            topic_name=_METADATA_TOPIC, partitions=(module.PartitionData(partition_index=0),)
        )
        answer = await client.send(module.DescribeQuorumRequest(topics=(wanted,)))
        requests.check(answer)
        partition = answer.topics[0].partitions[0]
        requests.check(partition)
        return [
            ReplicaKey(voter.replica_id, voter.replica_directory_id) for voter in partition.current_voters
        ]

    async def _add(self, client: Client, number: int) -> None:
        key = self._machines.replica_key(number)
        if key is None:
            return
        module = requests.schema("add_raft_voter", 1)
        listener = self._machines.controller_listener(number)
        request = module.AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout=_TIMEOUT,
            voter_id=number,
            voter_directory_id=key.directory_id,
            listeners=(module.Listener(name=listener.name, host=listener.host, port=listener.port),),
            ack_when_committed=True,
        )
        await self._ask(client, request, key, votes=True)

    async def _remove(self, client: Client, key: ReplicaKey) -> None:
        module = requests.schema("remove_raft_voter", 0)
        request = module.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
        )
        await self._ask(client, request, key, votes=False)

    async def _ask(self, client: Client, request: object, key: ReplicaKey, *, votes: bool) -> None:
        async def answered() -> None:
            requests.check(await client.send(request))

        promised = self._session.voters
        try:
            await self._session.ask("add voter" if votes else "remove voter", answered())
        except Unanswered as doubt:
            tell = promised.uncertain if isinstance(doubt.__cause__, RequestFailed) else promised.unanswered
            tell(key, votes=votes)
            raise
        except RequestFailed as refused:
            if refused.code in _PERHAPS_DONE:
                promised.uncertain(key, votes=votes)
            raise
        promised.acknowledged(key, votes=votes)

    async def _replace_disk(self, client: Client, lost: ReplicaKey) -> None:
        """Its voter must leave before any other may: a majority that needs it would need it for good."""
        self._session.counts["fault: disk of a voter lost"] += 1
        async with self._session.killing:
            self._machines.crash(lost.id, power_loss=False)
            self._machines.lose_metadata(lost.id)
            self._machines.restart(lost.id)

        async def is_removed() -> bool:
            try:
                await self._remove(client, lost)
            except RequestFailed as refused:
                return refused.code is ErrorCode.voter_not_found
            return True

        await self._until(is_removed, f"{lost} has lost its disk and cannot be removed")
        self._session.voters.acknowledged(lost, votes=False)

    async def _move(self, client: Client, chance: random.Random, moving: ReplicaKey) -> None:
        """Nobody else can ask it for its vote before the leader knows where it is."""
        self._session.counts["fault: voter moved"] += 1
        async with self._session.killing:
            self._machines.crash(moving.id, power_loss=False)
            self._machines.move_controller(moving.id)
            await asyncio.sleep(chance.choice((0.05, 1.0, 5.0)) * chance.random())
            self._machines.restart(moving.id)

        async def is_known() -> bool:
            leader = self._machines.controller()
            if leader is None:
                return False
            quorum = self._machines.nodes[leader]._broker.quorum
            voter = quorum.voter_set.get(moving.id)
            return voter is None or voter.listeners == (self._machines.controller_listener(moving.id),)

        await self._until(is_known, f"nobody knows where {moving} is")

    async def _until(self, condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
        while self._session.world.loop.time() < self._session.ends_at + RECOVERY_MAX_S:
            with contextlib.suppress(Unanswered):
                if await condition():
                    return
            await asyncio.sleep(0.3)
        self._session.fail("UnavailableThoughAMajorityLives", otherwise)
