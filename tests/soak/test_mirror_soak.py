"""Ottla → Apache Kafka → Ottla under load, while mirrors and brokers are killed and paused: each record once.

OTTLA_SOAK_KILLS=20 make soak PYTEST_ARGS=tests/soak/test_mirror_soak.py
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import kafka_peer
from bench.brokers import running
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.integration.mirror.mirrors import consume_rows, create, read, values_of, wait_until

from ottla.testing import BrokerProcess

KILLS = int(os.environ.get("OTTLA_SOAK_KILLS", "20"))
SEED = int(os.environ.get("OTTLA_SOAK_SEED", "1"))
PARTITIONS = 4
PAUSE_S = 12.0

pytestmark = [pytest.mark.soak, pytest.mark.maven, pytest.mark.timeout(300 + 40 * KILLS)]


class MirrorProcess:
    """`ottla mirror`, started again whenever it has died."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file = file
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", "ottla.cli.main", "mirror", str(self._file)]
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(40)
        finally:
            self.kill()


class Load(threading.Thread):
    """Numbered records, plain and in transactions of which some are aborted, until told to end."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self.ending = threading.Event()
        self.sent = 0

    def run(self) -> None:
        settings = {"bootstrap.servers": self._servers, "log_level": 0, "linger.ms": 5}
        plain = Producer(
            {**settings, "enable.idempotence": True, "message.timeout.ms": 0, "compression.type": "lz4"}
        )
        chance = random.Random(SEED)
        transactional: Producer | None = None
        while not self.ending.is_set():
            for _ in range(200):
                number = self.sent
                self.sent += 1
                self._produce(plain, f"plain {number}", number % PARTITIONS)
            plain.poll(0)
            try:
                if transactional is None:
                    transactional = Producer({**settings, "transactional.id": "load"})
                    transactional.init_transactions(60)
                transactional.begin_transaction()
                commits = chance.random() < 0.7
                for _ in range(20):
                    self._produce(
                        transactional, "committed" if commits else "aborted", chance.randrange(PARTITIONS)
                    )
                end = transactional.commit_transaction if commits else transactional.abort_transaction
                end(60)
            except KafkaException:
                # Of a broker that was killed; what became of the transaction the source itself will tell.
                transactional = None
            self.ending.wait(0.05)
        assert plain.flush(120) == 0

    def _produce(self, producer: Producer, value: str, partition: int) -> None:
        while True:
            try:
                headers: list[tuple[str, str | bytes | None]] = [("of", b"load")]
                producer.produce("load", value, partition=partition, key=str(partition), headers=headers)
                return
            except BufferError:
                producer.poll(0.1)


@contextlib.contextmanager
def mirrors(file: Path, log: Path) -> Iterator[list[MirrorProcess]]:
    found = [MirrorProcess(file, log.with_suffix(f".{number}")) for number in range(2)]
    try:
        yield found
    finally:
        for each in found:
            each.resume()
            each.stop()


def test_each_record_once_whatever_dies(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    chance = random.Random(SEED)
    try:
        kafka = ApacheKafka(kafka_peer.fetch())
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with BrokerProcess() as first, running(kafka) as middle, BrokerProcess() as last:
        here, there = first.bootstrap_servers, last.bootstrap_servers
        between = f"127.0.0.1:{middle.port}"
        create(here, "load", PARTITIONS)
        file = tmp_path / "mm2.properties"
        file.write_text(f"""
            clusters = a, k, b
            a.bootstrap.servers = {here}
            k.bootstrap.servers = {between}
            b.bootstrap.servers = {there}
            a->k.enabled = true
            k->b.enabled = true
            topics = .*load
            groups = team
            refresh.topics.interval.seconds = 2
            emit.checkpoints.interval.seconds = 1
            sync.group.offsets.interval.seconds = 1
            sync.group.offsets.enabled = true
            session.timeout.ms = 6000
        """)
        load = Load(here)
        load.start()
        with mirrors(file, tmp_path / "mirror") as processes:
            for number in range(KILLS):
                time.sleep(chance.uniform(1, 5))
                what = chance.choice(["mirror", "mirror", "mirror", "paused mirror", "source", "target"])
                say(f"{number + 1}: {what}, {load.sent} sent")
                mirror = chance.choice(processes)
                if what == "mirror":
                    mirror.kill()
                    mirror.start()
                elif what == "paused mirror":
                    # So long that its part is another's when it wakes up.
                    mirror.pause()
                    time.sleep(PAUSE_S)
                    mirror.resume()
                else:
                    broker = first if what == "source" else last
                    broker.kill9()
                    time.sleep(chance.uniform(0, 2))
                    broker.start()
            load.ending.set()
            load.join(180)
            assert not load.is_alive()
            sent = read(here, "load", 10**9, PARTITIONS, wait_s=15)
            count = sum(map(len, sent))
            assert sum("plain" in value for values in values_of(sent) for value in values) == load.sent
            read(there, "k.a.load", count, PARTITIONS, wait_s=120)
            seen = consume_rows(here, "load", "team", count // 2)
            read_partitions = {partition for partition, _ in seen}
            wait_until(lambda: moved_partitions(between) >= read_partitions, "a group that has moved on")
            # The newest checkpoints may be a moment behind.
            time.sleep(5)
        found = read(there, "k.a.load", count + 1, PARTITIONS, wait_s=5)
        say(f"{load.sent} sent, {count} committed, {sum(map(len, found))} found")
        assert values_of(found) == values_of(sent)
        assert found == sent
        moved = consume_rows(between, "a.load", "team", 10**9, wait_s=15)
        again = len(seen) + len(moved) - count
        for number, values in enumerate(values_of(sent)):
            before = [value for partition, value in seen if partition == number]
            after = [value for partition, value in moved if partition == number]
            repeated = len(before) + len(after) - len(values)
            assert repeated >= 0
            assert before[: len(before) - repeated] + after == values
        say(f"the group has read {len(seen)} of {count} before, and {again} again afterwards")


def moved_partitions(servers: str) -> set[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "team", "log_level": 0})
    places = [TopicPartition("a.load", number) for number in range(PARTITIONS)]
    found = {place.partition for place in consumer.committed(places, 30) if place.offset >= 0}
    consumer.close()
    return found
