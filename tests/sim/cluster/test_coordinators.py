"""Coordinators in a cluster: groups and transactions go on with whoever leads next, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sim_cluster import CLIENT, SimCluster

from ottla.client.cluster import GROUP, LATEST, TRANSACTION, ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost
from ottla.client.produce import PartitionProducer
from ottla.client.transaction import CommittedOffset, Transactions, add_partitions
from ottla.records.batch import iter_headers
from ottla.records.markers import read_marker
from ottla.records.records import Record, encode_batch, iter_records
from ottla.sim.world import SimWorld
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

TX, APP = "tx", "app"
TOPIC = "orders"
PARTITIONS = [(TOPIC, index) for index in range(3)]
SETTINGS = {
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
    "min_insync_replicas": "2",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
    "replica_lag_time_max_ms": "3000",
}
CLIENT_SETTINGS = {"client.id": CLIENT, "request.timeout.ms": "5000", "default.api.timeout.ms": "60000"}


class Application:
    """Writes numbers to all partitions and notes in its group how far it is, both in one transaction."""

    def __init__(self, cluster: SimCluster) -> None:
        servers = [f"{cluster.host(number)}:9092" for number in cluster.numbers]
        self.client = ClusterClient(cluster.world.runtime(CLIENT).net, servers, CLIENT_SETTINGS)
        self._transactions = Transactions(self.client, TX, timeout_ms=20_000)

    async def transfer(self, number: int) -> None:
        """Until it is acknowledged, which it may be although an attempt before was committed, too."""
        for _ in range(20):
            try:
                return await self._attempt(number)
            except (KafkaError, PeerLost, ClusterUnreachable, OSError):
                if await self.position() == number:
                    return None
        raise AssertionError(f"transaction {number} never came to an end")

    async def _attempt(self, number: int) -> None:
        producer = await self._transactions.begin()
        await add_partitions(self.client, TX, producer, PARTITIONS)
        batch = encode_batch(
            [Record(None, str(number).encode(), 1)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        for topic, index in PARTITIONS:
            writer = PartitionProducer(self.client, topic, index, transactional_id=TX)
            try:
                await writer.send(batch)
                await writer.flush()
            finally:
                writer.cancel()
        await self._transactions.commit(APP, {(TOPIC, 0): CommittedOffset(number, "")})

    async def position(self) -> int:
        committed = await self._transactions.committed_offsets(APP)
        return committed[TOPIC, 0].offset if committed else -1

    async def coordinator(self, kind: int, key: str) -> int:
        return (await self.client.coordinating_broker(kind, key)).id

    async def ends(self, *, read_committed: bool) -> dict[tuple[str, int], int]:
        found = await self.client.list_offsets(
            dict.fromkeys(PARTITIONS, LATEST), read_committed=read_committed
        )
        return {tp: at.offset for tp, at in found.items()}

    async def committed(self, index: int) -> list[int]:
        """The numbers of committed transactions, in their order."""
        end = (await self.ends(read_committed=False))[TOPIC, index]
        counted: list[int] = []
        open_by: dict[int, list[int]] = {}
        offset = 0
        while offset < end:
            records = bytes((await self.client.fetch(TOPIC, index, offset)).records)
            for at, header in iter_headers(records):
                batch = records[at : at + header.size]
                offset = header.last_offset + 1
                if (marker := read_marker(batch) if header.is_control else None) is not None:
                    written = open_by.pop(marker.producer_id, [])
                    counted += written if marker.committed else []
                else:
                    values = [int(record.value or b"") for record in iter_records(batch)]
                    open_by.setdefault(header.producer_id, []).extend(values)
        return counted


async def check(cluster: SimCluster, app: Application, last: int) -> None:
    """Every transaction is whole, in every partition and in the group, and none is left open."""

    async def all_ended() -> bool:
        return await app.ends(read_committed=True) == await app.ends(read_committed=False)

    await cluster.wait(all_ended)
    assert await app.position() == last
    for _, index in PARTITIONS:
        assert await app.committed(index) == list(range(last + 1)), index


@pytest.mark.parametrize("seed", range(2))
def test_a_transaction_spans_brokers(seed: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world, **SETTINGS)

        async def scenario() -> None:
            await cluster.create_topic(1, TOPIC)
            app = Application(cluster)
            for number in range(3):
                await app.transfer(number)
            await check(cluster, app, 2)
            image = cluster.nodes[1]._broker.metadata.image
            for name in ("__consumer_offsets", "__transaction_state"):
                assert {len(part.replicas) for part in image.topics[name].partitions} == {3}
            # Somebody had to be asked, and told, over the network.
            leaders = {part.leader for part in image.topics[TOPIC].partitions}
            assert len(leaders | {await app.coordinator(GROUP, APP)}) > 1
            app.client.close()

        cluster.run(scenario)


@pytest.mark.parametrize("kind", [TRANSACTION, GROUP])
@pytest.mark.parametrize("seed", range(2))
def test_another_broker_coordinates_when_one_is_lost(seed: int, kind: int) -> None:
    with SimWorld(seed) as world:
        cluster = SimCluster(world, **SETTINGS)

        async def scenario() -> None:
            await cluster.create_topic(1, TOPIC)
            app = Application(cluster)
            await app.transfer(0)
            lost = await app.coordinator(kind, TX if kind == TRANSACTION else APP)
            # Right after the answer: others may yet have to be told.
            cluster.crash(lost)
            await app.transfer(1)
            assert await app.coordinator(kind, TX if kind == TRANSACTION else APP) != lost
            await cluster.restart(lost)
            await app.transfer(2)
            await check(cluster, app, 2)
            app.client.close()

        cluster.run(scenario)


def test_members_are_sent_to_the_coordinator() -> None:
    with SimWorld(3) as world:
        cluster = SimCluster(world, **SETTINGS)

        async def scenario() -> None:
            app = Application(cluster)
            coordinator = await app.coordinator(GROUP, APP)
            for number in cluster.numbers:

                async def heartbeat(number: int = number) -> ErrorCode:
                    values: dict[str, Any] = {"group_id": APP, "member_id": "me", "generation_id": 1}
                    code: ErrorCode = (await cluster.ask(number, ApiKey.HEARTBEAT, values)).error_code
                    return code

                async def is_loaded() -> bool:
                    return await heartbeat() is not ErrorCode.none

                await cluster.wait(is_loaded)
                expected = ErrorCode.unknown_member_id if number == coordinator else ErrorCode.not_coordinator
                assert await heartbeat() is expected, number
            app.client.close()

        cluster.run(scenario)
