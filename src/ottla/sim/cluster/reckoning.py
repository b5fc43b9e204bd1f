"""The end of a run: every fault is undone, the cluster comes round, and what was promised must be there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.log.log import PartitionLog
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch
from ottla.sim.chaos import requests
from ottla.sim.chaos.promises import TopicPromises
from ottla.sim.chaos.session import INTERNAL_TOPICS, Unanswered
from ottla.sim.checkers import InvariantViolation, Read, ReadingStarts
from ottla.sim.client import Client, RequestFailed, SimClient
from ottla.sim.cluster.changing_access import ChangingAccess, described
from ottla.sim.cluster.consuming import CLASSIC_GROUP, CONSUMER_GROUP
from ottla.sim.cluster.faults import Faults
from ottla.sim.cluster.forbidden import DivergentReplicas
from ottla.sim.cluster.machines import PORT, host_of
from ottla.sim.cluster.session import ONCE, PARTITIONS, PLAIN, TRANSACTIONAL, ClusterSession
from ottla.sim.cluster.transacting import Transacting, group_of
from ottla.sim.transaction_checkers import Logged, OffsetSeen, Seen
from ottla.sim.transactions import read_log, read_stable

T = TypeVar("T")

RECOVERY_MAX_S = 60.0
LAG_MAX_S = 2.0
"""Until all brokers that can know of a change do."""
READ_BYTES = 1 << 20
ACCESS_CHANGES = 3


class Reckoning:
    def __init__(
        self, session: ClusterSession, faults: Faults, transacting: Transacting, access: ChangingAccess
    ) -> None:
        self._session = session
        self._faults = faults
        self._transacting = transacting
        self._access = access
        self._client = session.client("auditor")
        self._missing: set[int] = set()
        """Nodes that are left out for good."""

    async def check(self) -> None:
        self._faults.undo()
        await self._wait_whole()
        if self._session.cluster_mix.rots:
            # What it has forgotten, others have.
            self._missing.add(self._faults.rotten)
            self._session.machines.crash(self._faults.rotten, power_loss=False)
            await self._wait_whole()
        session = self._session
        if session.cluster_mix.transactional_writers:
            async with asyncio.timeout(RECOVERY_MAX_S):
                await self._transacting.settle()
        for topic in (PLAIN, ONCE):
            if topic in session.stable_topics:
                for partition in range(PARTITIONS):
                    await self._read_again(topic, partition)
        session.history.check()
        if TRANSACTIONAL in session.stable_topics:
            await self._read_transactions()
        await self._check_groups()
        await self._check_promises()
        if session.cluster_mix.access_changers:
            await self._check_access()
        await self._wait_whole()
        self._compare_replicas()
        self._check_voters()

    # The cluster comes round.

    async def _wait_whole(self) -> None:
        """Every node is back, every replica in sync, and all know the same metadata."""
        end = self._session.world.loop.time() + RECOVERY_MAX_S
        while (missing := self._what_is_missing()) is not None:
            if self._session.world.loop.time() > end:
                raise InvariantViolation(
                    "UnavailableThoughAMajorityLives",
                    f"{RECOVERY_MAX_S:.0f} s after all faults were undone {missing}",
                )
            await asyncio.sleep(0.2)

    def _what_is_missing(self) -> str | None:
        machines = self._session.machines
        for number in {*machines.shape.nodes} - self._missing:
            if number not in machines.nodes:
                return f"node {number} has not started"
        if machines.controller() is None:
            return "there is no controller"
        if machines.shape.first_voters and (missing := self._what_is_missing_in_the_quorum()) is not None:
            return missing
        image = machines.image()
        for number in {*machines.shape.broker_ids} - self._missing:
            broker = image.brokers.get(number)
            if broker is None or broker.fenced:
                return f"broker {number} is fenced"
        for name in sorted(image.topics):
            for index, part in enumerate(image.topics[name].partitions):
                wanted = {*part.replicas} - self._missing
                if part.leader < 0 or {*part.isr} != wanted:
                    return (
                        f"{name}-{index} is led by {part.leader}, in sync are {part.isr} of {part.replicas}"
                    )
                if part.is_reassigned:
                    return f"{name}-{index} is still being moved"
                ends = {
                    found.log.next_offset
                    for number in wanted
                    if (found := machines.nodes[number]._broker.replicas.find(name, index)) is not None
                }
                if len(ends) != 1:
                    return f"the replicas of {name}-{index} end at {sorted(ends)}"
        return None

    def _what_is_missing_in_the_quorum(self) -> str | None:
        """All know the same voters, at the places where they are."""
        machines = self._session.machines
        known = {number: machines.nodes[number]._broker.quorum.voter_set for number in machines.shape.nodes}
        if len({*known.values()}) > 1:
            return f"nodes know different voters: {known}"
        for voter in known[1].voters:
            if voter.key != machines.replica_key(voter.key.id):
                return f"{voter.key} is a voter, and its disk is gone"
            if voter.listeners != (machines.controller_listener(voter.key.id),):
                return f"{voter} is no longer there"
        return None

    async def _eventually(self, what: str, request: Callable[[], Awaitable[T]]) -> T:
        end = self._session.world.loop.time() + RECOVERY_MAX_S
        while True:
            try:
                return await request()
            except (RequestFailed, OSError) as error:
                if self._session.world.loop.time() > end:
                    raise InvariantViolation(
                        "UnavailableThoughAMajorityLives",
                        f"{what} still fails {RECOVERY_MAX_S:.0f} s after all faults were undone: {error!r}",
                    ) from error
                await asyncio.sleep(0.3)

    # What was promised.

    async def _read_again(self, topic: str, partition: int) -> None:
        where, offset = (topic, partition), 0
        last = encode_batch([Record(b"last", b"", self._session.now_ms())])
        self._session.history.observe(ReadingStarts(where, 0, "auditor"))
        while True:
            page = await self._eventually(
                f"reading {where}",
                lambda: requests.fetch_page(self._client, topic, partition, offset),  # noqa: B023
            )
            for record in page.records:
                self._session.history.observe(Read(where, record.offset, record.value or b"", "auditor"))
            self._session.counts["records found again"] += len(page.records)
            offset = page.next_offset
            if page.is_last:
                break
        await self._eventually(
            f"writing to {where}", lambda: self._client.produce_batch(topic, partition, last)
        )

    async def _read_transactions(self) -> None:
        history = self._session.transactions
        for partition in range(PARTITIONS):
            where = (TRANSACTIONAL, partition)
            values, offset = [], 0
            while True:
                stable = await self._eventually(
                    f"reading {where}",
                    lambda: read_stable(self._client, *where, offset),  # noqa: B023
                )
                values += [record.value or b"" for record in stable.records]
                if stable.next_offset == offset:
                    break
                offset = stable.next_offset
            history.observe(Seen(where, tuple(values)))
            log = await self._eventually(f"reading {where}", lambda: read_log(self._client, *where))  # noqa: B023
            history.observe(Logged(where, tuple(log)))
            self._session.counts["records found again"] += len(values)
        for number in range(self._session.cluster_mix.transactional_writers):
            group = group_of(f"transactor{number}")
            found = await self._eventually(
                f"offsets of {group}",
                lambda: requests.committed_offsets(self._client, group, TRANSACTIONAL, 1),  # noqa: B023
            )
            history.observe(OffsetSeen(group, max(found[0], 0)))
        history.check()

    async def _check_groups(self) -> None:
        mix = self._session.cluster_mix
        for group, members in ((CLASSIC_GROUP, mix.classic_members), (CONSUMER_GROUP, mix.consumer_members)):
            for partition in range(PARTITIONS if members else 0):
                where = (PLAIN, partition)
                fetch = self._session.offsets.fetching(group, where)
                found = await self._eventually(
                    f"offsets of {group}",
                    lambda: requests.committed_offsets(self._client, group, PLAIN, PARTITIONS),  # noqa: B023
                )
                self._session.offsets.fetched(fetch, found[partition])
                self._session.counts["groups checked"] += 1

    async def _check_promises(self) -> None:
        """Of those who made topics, and wrote to them."""
        promises = self._session.promises
        found = await self._eventually("metadata", lambda: requests.all_topics(self._client))
        promises.check_topics(found)
        for name, (topic_id, count) in sorted(found.items()):
            topic = promises.topics.get(name)
            if name in INTERNAL_TOPICS or topic is None or topic.topic_id != topic_id:
                continue
            settings = await self._eventually(
                "settings",
                lambda: requests.topic_settings(self._client, name),  # noqa: B023
            )
            promises.check_settings(topic, settings)
            for partition in range(count):
                await self._check_records(self._client, topic, partition)
        self._session.counts["topics checked"] += len(found)

    async def _check_records(self, client: Client, topic: TopicPromises, partition: int) -> None:
        records: dict[int, Record] = {}
        offset = 0

        async def next_page() -> requests.Page:
            # Retention goes on meanwhile.
            first = await requests.first_offset(client, topic.name, partition)
            return await requests.fetch_page(client, topic.name, partition, max(first, offset))

        while True:
            page = await self._eventually(f"reading {topic.name}-{partition}", next_page)
            for record in page.records:
                self._session.promises.seen(topic.name, topic.topic_id, partition, record)
                records[record.offset] = record
            offset = page.next_offset
            if page.is_last:
                break
        self._session.promises.check_records(topic, partition, records, self._session.now_ms())
        self._session.counts["records found again"] += len(records)

    # Who may do what.

    async def _check_access(self) -> None:
        """As it is, then without the controller, and after all have been down."""
        machines = self._session.machines
        await self._everybody_knows()
        await self._change_access()
        controller = machines.controller()
        assert controller is not None
        self._missing.add(controller)
        machines.crash(controller, power_loss=False)
        await self._wait_whole()
        await self._everybody_knows()
        await self._change_access()
        self._missing.discard(controller)
        for number in machines.shape.nodes:
            machines.crash(number, power_loss=False)
            machines.restart(number)
        await self._wait_whole()
        await self._everybody_knows()

    async def _change_access(self) -> None:
        chance = self._session.world.random("auditor")

        async def change() -> None:
            try:
                await self._access.change_one(self._client, chance)
            except Unanswered as unanswered:
                raise OSError(f"no certain answer: {unanswered.__cause__!r}") from unanswered

        for _ in range(ACCESS_CHANGES):
            await self._eventually("changing access", change)
            await self._everybody_knows()

    async def _everybody_knows(self) -> None:
        session = self._session
        self._access.look()
        end = session.world.loop.time() + LAG_MAX_S
        brokers = [
            host_of(number) for number in session.machines.shape.broker_ids if number not in self._missing
        ]
        while brokers:
            client = SimClient(session.world.runtime("auditor"), brokers[0], PORT)
            try:
                found = await self._eventually(
                    f"describing access to {brokers[0]}",
                    lambda: described(client),  # noqa: B023
                )
                session.access.seen(brokers[0], sys.maxsize, found)
                session.counts["brokers that know what was changed"] += 1
                del brokers[0]
            except InvariantViolation:
                if session.world.loop.time() > end:
                    raise
                await asyncio.sleep(0.05)
            finally:
                client.close()
        self._access.look()

    # The replicas.

    def _compare_replicas(self) -> None:
        machines, checker = self._session.machines, DivergentReplicas()
        image = machines.image()
        for name in sorted(image.topics):
            for index, part in enumerate(image.topics[name].partitions):
                logs = {}
                for number in {*part.replicas} - self._missing:
                    found = machines.nodes[number]._broker.replicas.find(name, index)
                    if found is not None:
                        logs[host_of(number)] = {
                            header.base_offset: data[at : at + header.size]
                            for data in [_all_of(found.log)]
                            for at, header in iter_headers(data)
                        }
                checker.check((name, index), logs)
                self._session.counts["replicas compared"] += len(logs)

    def _check_voters(self) -> None:
        machines = self._session.machines
        if machines.shape.first_voters:
            voters = machines.nodes[1]._broker.quorum.voter_set
            self._session.voters.check({voter.key for voter in voters.voters})
            self._session.counts["voters checked"] += len(voters)


def _all_of(log: PartitionLog) -> bytes:
    data, offset = b"", log.start_offset
    while batches := bytes(log.read(offset, READ_BYTES, upto=log.next_offset)):
        data += batches
        offset = max(header.last_offset for _, header in iter_headers(batches)) + 1
    return data
