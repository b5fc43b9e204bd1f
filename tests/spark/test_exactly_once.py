"""A pipeline that is killed over and over writes what it would have written undisturbed.

Thirty kills, Apache Kafka and a Spark cluster: make soak
The seed of a run is printed; OTTLA_KILL_SEED repeats it.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.maven import PeerUnavailable
from bench.spark_cluster import spark_cluster
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.spark.processes import Broker, KafkaProcess, Pipeline, wait_until

import ottla.testing

PARTITIONS = 3
ROWS_PER_ROUND = 2000
ROWS_PER_BATCH = 500
LIVE_SECONDS = 420

KILLS = ("driver", "worker", "broker", "java")


@pytest.fixture
def ottla_broker() -> Iterator[Broker]:
    with ottla.testing.BrokerProcess() as broker:
        yield broker


@pytest.fixture
def kafka_broker(tmp_path: Path) -> Iterator[Broker]:
    try:
        broker = KafkaProcess(tmp_path)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    broker.start()
    yield broker
    broker.kill9()


@pytest.fixture
def dice() -> random.Random:
    seed = os.environ.get("OTTLA_KILL_SEED") or str(time.time_ns() % 1_000_000)
    print(f"OTTLA_KILL_SEED={seed}")
    return random.Random(seed)


class Trial:
    """Rows go in, things are killed, and at the end the rows that came out are counted."""

    def __init__(self, broker: Broker, work_dir: Path, master: str) -> None:
        self.broker = broker
        self.row_count = 0
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("source", "target")]
        for created in admin.create_topics(topics).values():
            created.result(30)
        arguments = {
            "bootstrap-server": broker.bootstrap_servers,
            "source": "source",
            "target": "target",
            "work-dir": str(work_dir),
            "application-id": "thirds",
            "master": master,
            "rows-per-batch": str(ROWS_PER_BATCH),
        }
        self.pipeline = Pipeline(arguments, work_dir)

    def feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(self.row_count, self.row_count + ROWS_PER_ROUND):
            producer.produce("source", str(number), key=str(number))
            producer.poll(0)
        assert producer.flush(60) == 0
        self.row_count += ROWS_PER_ROUND

    def work_a_little(self, dice: random.Random) -> None:
        """Returns at some moment after at least one more micro-batch."""
        if not self.pipeline.is_running:
            self.pipeline.start()
        before = self.pipeline.batches_done
        batches = dice.randint(1, 2)
        wait_until(
            lambda: self.pipeline.batches_done >= before + batches or not self.pipeline.is_running,
            LIVE_SECONDS,
            f"the pipeline does nothing:\n{self.pipeline.log[-3000:]}",
        )
        time.sleep(dice.random() * 0.8)

    def kill(self, what: str) -> None:
        match what:
            case "driver":
                self.pipeline.kill_driver()
            case "java":
                assert self.pipeline.kill_java() or not self.pipeline.is_running
            case "worker":
                assert self.pipeline.kill_worker() or not self.pipeline.is_running
            case "broker":
                self.broker.restart()

    def finish(self) -> None:
        """Until all rows are through; the group of the application tells."""
        ends = self._ends("source")

        def is_through() -> bool:
            if not self.pipeline.is_running:
                self.pipeline.start()
            return self._committed("source") == ends

        wait_until(is_through, LIVE_SECONDS, f"rows are left:\n{self.pipeline.log[-3000:]}")
        self.pipeline.end()

    def check(self) -> None:
        written = Counter(self._read_committed("target"))
        expected = Counter(str(number) for number in range(self.row_count) if number % 3)
        lost, surplus = expected - written, written - expected
        assert not lost and not surplus, f"{lost.total()} lost, {surplus.total()} too many"

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
            }
        )

    def _ends(self, topic: str) -> list[int]:
        consumer = self._consumer("reader")
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(PARTITIONS)
        ]
        consumer.close()
        return ends

    def _committed(self, topic: str) -> list[int]:
        consumer = self._consumer("thirds")
        places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        committed = [place.offset for place in consumer.committed(places, timeout=30)]
        consumer.close()
        return committed

    def _read_committed(self, topic: str) -> Iterator[str]:
        consumer = self._consumer("reader")
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        at_end: set[int] = set()
        while len(at_end) < PARTITIONS:
            message = consumer.poll(30)
            assert message is not None, "the end of the topic cannot be read: a transaction is open"
            if message.error():
                at_end.add(message.partition())
            else:
                yield message.value().decode()
        consumer.close()


def run(trial: Trial, kills: list[str], dice: random.Random, kill: Callable[[str], None]) -> None:
    try:
        for what in kills:
            trial.feed()
            trial.work_a_little(dice)
            kill(what)
        trial.finish()
        trial.check()
    finally:
        print(trial.pipeline.log[-2000:])
        trial.pipeline.end()


@pytest.mark.timeout(900)
def test_a_driver_a_worker_and_a_broker_are_killed(
    ottla_broker: Broker, tmp_path: Path, dice: random.Random
) -> None:
    trial = Trial(ottla_broker, tmp_path, "local[2]")
    kills = ["driver", "worker", "broker"]
    dice.shuffle(kills)
    run(trial, kills, dice, trial.kill)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thirty_kills(ottla_broker: Broker, tmp_path: Path, dice: random.Random) -> None:
    trial = Trial(ottla_broker, tmp_path, "local[2]")
    run(trial, [dice.choice(KILLS) for _ in range(30)], dice, trial.kill)


@pytest.mark.soak
@pytest.mark.maven
@pytest.mark.timeout(1800)
def test_kills_over_apache_kafka(kafka_broker: Broker, tmp_path: Path, dice: random.Random) -> None:
    trial = Trial(kafka_broker, tmp_path, "local[2]")
    run(trial, ["driver", "worker", "broker", "java"], dice, trial.kill)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_executors_of_a_spark_cluster_are_killed(
    ottla_broker: Broker, tmp_path: Path, dice: random.Random
) -> None:
    with spark_cluster(tmp_path, 2) as cluster:
        trial = Trial(ottla_broker, tmp_path, cluster.master)

        def kill(what: str) -> None:
            if what == "executor":
                assert cluster.kill_executor()
            else:
                trial.kill(what)

        run(trial, ["executor", "driver", "executor", "broker"], dice, kill)
