"""How long a cluster takes no writes when it loses a node, and how long one takes to leave in order.

A producer per partition writes small records at a steady rate, idempotent and acknowledged by all in sync.
What is measured is the longest time between two acknowledgements of any partition. The producer asks for
the leader anew every few milliseconds as soon as something is wrong: those of users take longer (librdkafka
looks once a second), and would hide what the cluster does.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from bench.cluster_loads import IN_SYNC_TIMEOUT_S, QUIET, REPLICAS, throw_away_topic
from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import Peer, PeerLost
from ottla.config.local_cluster import HOST
from ottla.records.records import Record, encode_batch
from ottla.runtime.net import AsyncioNetwork
from ottla.testing.cluster import BrokerCluster, ClusterBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

PARTITIONS = 3
RATE = 100
SETTLE_S = 2.0
RECOVERED_S = 1.0
GIVE_UP_S = 60.0
RETRY_S = 0.01
ANSWER_S = 5.0
PRODUCE_BY_NAME_MAX = 12
DONE = {ErrorCode.none, ErrorCode.duplicate_sequence_number}


class Shutdown(NamedTuple):
    led: int
    """Partitions that the node led."""
    exit_s: float
    """From the signal to the end of the process."""
    gap_s: float


class _Writer:
    """Of one partition."""

    def __init__(self, ports: Sequence[int], topic: str, partition: int) -> None:
        self._ports = itertools.cycle(ports)
        self._topic = topic
        self._partition = partition
        self._connections = Connections(AsyncioNetwork(), {"client.id": f"writer-{partition}"}, ANSWER_S)
        self._leader: Peer | None = None
        self.acknowledged_at = time.monotonic()
        self.longest_gap_s = 0.0

    async def run(self) -> None:
        identity = await self._until_answered(self._init)
        due = time.monotonic()
        for sequence in itertools.count():
            batch = encode_batch(
                [Record(None, b"x" * 100, int(time.time() * 1000))],
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequence,
            )
            await self._until_answered(lambda batch=batch: self._produce(batch))  # type: ignore[misc]
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - self.acknowledged_at)
            self.acknowledged_at = now
            due = max(due + 1 / RATE, now)
            await asyncio.sleep(due - now)

    async def _until_answered(self, attempt: Callable[[], Any]) -> Any:
        while True:
            try:
                async with asyncio.timeout(ANSWER_S):
                    answer = await attempt()
                if answer is not None:
                    return answer
            except (PeerLost, ClusterUnreachable, OSError):
                pass
            self._leader = None
            await asyncio.sleep(RETRY_S)

    async def _any_peer(self) -> Peer:
        return await self._connections.peer(HOST, next(self._ports))

    async def _init(self) -> Any:
        values = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        answer = await (await self._any_peer()).ask(ApiKey.INIT_PRODUCER_ID, values)
        return answer if answer.error_code is ErrorCode.none else None

    async def _produce(self, batch: bytes) -> bool | None:
        if self._leader is None:
            self._leader = await self._find_leader()
            if self._leader is None:
                return None
        data = {"name": self._topic, "partition_data": [{"index": self._partition, "records": batch}]}
        values = {"acks": -1, "timeout": 30_000, "topic_data": [data]}
        answer = await self._leader.ask(ApiKey.PRODUCE, values, version_max=PRODUCE_BY_NAME_MAX)
        return answer.responses[0].partition_responses[0].error_code in DONE or None

    async def _find_leader(self) -> Peer | None:
        answer = await (await self._any_peer()).ask(ApiKey.METADATA, {"topics": [{"name": self._topic}]})
        brokers = {broker.node_id: broker for broker in answer.brokers}
        partitions = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        found = brokers.get(partitions.get(self._partition, -1))
        return None if found is None else await self._connections.peer(found.host, found.port)

    def close(self) -> None:
        self._connections.close()


class _Writers(threading.Thread):
    """On an event loop of their own, while the `with` lasts."""

    def __init__(self, cluster: BrokerCluster, topic: str) -> None:
        super().__init__(daemon=True)
        ports = [broker.port for broker in cluster.brokers.values()]
        self._writers = [_Writer(ports, topic, partition) for partition in range(PARTITIONS)]
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(writer.run() for writer in self._writers))

        self._running = self._loop.create_task(all_of_them())
        try:
            self._loop.run_until_complete(self._running)
        except asyncio.CancelledError:
            for writer in self._writers:
                writer.close()

    def __enter__(self) -> _Writers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._running.cancel)
        self.join(GIVE_UP_S)

    def forget_gaps(self) -> None:
        for writer in self._writers:
            writer.longest_gap_s = 0.0

    @property
    def longest_gap_s(self) -> float:
        return max(writer.longest_gap_s for writer in self._writers)

    def wait_recovered(self, lost_at: float) -> None:
        """All are acknowledged again, some time after the fault: a leader may be missed late."""
        while True:
            oldest = min(writer.acknowledged_at for writer in self._writers)
            now = time.monotonic()
            if oldest > lost_at + RECOVERED_S and now - oldest < RECOVERED_S / 2:
                return
            if now - lost_at > GIVE_UP_S:
                raise TimeoutError(f"no writes for {GIVE_UP_S:g} s")
            time.sleep(0.02)


def unavailability(cluster: BrokerCluster, topic: str, choose: Callable[[], ClusterBroker]) -> float:
    """Seconds without an acknowledgement after kill -9. The node is up and in sync again afterwards."""
    with throw_away_topic(cluster, topic, PARTITIONS):
        victim = choose()
        gap_s = _gap_of(cluster, topic, victim.kill9)
        _bring_back(cluster, victim, topic)
    return gap_s


def leader_that_does_not_control(cluster: BrokerCluster) -> ClusterBroker:
    """Of a topic with as many partitions as nodes, each leads one."""
    controller = cluster.controller()
    return next(broker for broker in cluster.brokers.values() if broker is not controller)


def controlled_shutdown(cluster: BrokerCluster, topic: str, partitions: int) -> Shutdown:
    with throw_away_topic(cluster, topic, partitions):
        victim = leader_that_does_not_control(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
        found = admin.list_topics(timeout=IN_SYNC_TIMEOUT_S).topics.values()
        led = sum(each.leader == victim.id for one in found for each in one.partitions.values())
        took: list[float] = []

        def stop() -> None:
            begin = time.monotonic()
            victim.stop(GIVE_UP_S)
            took.append(time.monotonic() - begin)

        gap_s = _gap_of(cluster, topic, stop)
        _bring_back(cluster, victim, topic)
    return Shutdown(led, took[0], gap_s)


def _gap_of(cluster: BrokerCluster, topic: str, fault: Callable[[], None]) -> float:
    with _Writers(cluster, topic) as writers:
        time.sleep(SETTLE_S)
        writers.forget_gaps()
        fault()
        writers.wait_recovered(time.monotonic())
        return writers.longest_gap_s


def _bring_back(cluster: BrokerCluster, victim: ClusterBroker, topic: str) -> None:
    victim.start()
    for partition in range(PARTITIONS):
        cluster.wait_in_sync(topic, REPLICAS, partition, IN_SYNC_TIMEOUT_S)
