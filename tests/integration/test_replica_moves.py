"""A replica moves from one data directory of a broker to another while a producer writes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.client.admin.configs import BROKER, alter_configs
from ottla.client.admin.replicas import Replica, ReplicaDirectory, move_replicas, replica_directories
from ottla.client.cluster import ClusterClient
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import BrokerProcess
from ottla.wire.errors import LogDirNotFound


def test_a_replica_moves_under_load(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with BrokerProcess(data_dir=f"{one},{two}") as broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1})
        sent = 0

        def write(count: int) -> None:
            nonlocal sent
            for number in range(sent, sent + count):
                producer.produce("orders", str(number).encode() + bytes(2000), partition=0)
            sent += count
            assert producer.flush(30) == 0

        write(5000)
        home = one if (one / "orders-0").exists() else two
        target = two if home is one else one
        replica = Replica(1, "orders", 0)

        async def move() -> None:
            async with ClusterClient(AsyncioNetwork(), servers) as cluster:
                refused = await move_replicas(cluster, {replica: str(tmp_path / "other")})
                assert isinstance(refused[replica], LogDirNotFound)
                assert await move_replicas(cluster, {replica: str(target)}) == {}
                deadline = time.monotonic() + 30
                while True:
                    await asyncio.to_thread(write, 50)
                    found = await replica_directories(cluster, [replica])
                    if found[replica] == ReplicaDirectory(str(target), None):
                        return
                    assert found[replica] == ReplicaDirectory(str(home), str(target))
                    assert time.monotonic() < deadline

        asyncio.run(move())
        write(100)
        assert (target / "orders-0").is_dir()
        assert not (home / "orders-0").exists()

        def check() -> None:
            consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
            consumer.assign([TopicPartition("orders", 0, 0)])
            values = []
            while len(values) < sent:
                message = consumer.poll(20)
                assert message is not None and message.error() is None
                values.append(int(message.value()[:-2000]))
            consumer.close()
            assert values == list(range(sent))

        check()
        broker.stop()
        broker.start()
        servers = broker.bootstrap_servers
        check()


def test_a_replica_moves_no_faster_than_it_may(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    rate_key = "replica.alter.log.dirs.io.max.bytes.per.second"
    rate, size = 3_000_000, 12_000_000
    with BrokerProcess(data_dir=f"{one},{two}") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        for _ in range(size // 50_000):
            producer.produce("orders", bytes(50_000), partition=0)
        assert producer.flush(30) == 0
        home = one if (one / "orders-0").exists() else two
        target = two if home is one else one
        replica = Replica(1, "orders", 0)

        async def move() -> None:
            async with ClusterClient(AsyncioNetwork(), broker.bootstrap_servers) as cluster:

                async def moved(place: Path) -> float:
                    """After how many seconds."""
                    began = time.monotonic()
                    while await replica_directories(cluster, [replica]) != {
                        replica: ReplicaDirectory(str(place), None)
                    }:
                        assert time.monotonic() < began + 60
                        await asyncio.sleep(0.05)
                    return time.monotonic() - began

                await alter_configs(cluster, BROKER, "1", {rate_key: str(rate)})
                assert await move_replicas(cluster, {replica: str(target)}) == {}
                # The first and the last megabyte go at once.
                assert await moved(target) >= 0.7 * size / rate
                # A megabyte each time that it is forgotten how fast the last one was: two minutes in all.
                await alter_configs(cluster, BROKER, "1", {rate_key: "1"})
                assert await move_replicas(cluster, {replica: str(home)}) == {}
                await alter_configs(cluster, BROKER, "1", {}, [rate_key])
                await moved(home)

        asyncio.run(move())
