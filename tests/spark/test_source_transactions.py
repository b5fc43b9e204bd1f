"""What read_committed leaves out, from Ottla and from Apache Kafka, with transactions of a C client."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from tests.spark.topics import TIMEOUT_S, Cluster


@pytest.fixture(scope="module")
def cluster(any_cluster: str) -> Cluster:
    return Cluster(any_cluster)


def transaction(producer: Any, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(TIMEOUT_S)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def test_only_committed_records_are_read_if_asked_for(spark: Any, cluster: Cluster) -> None:
    topic = "mixed"
    cluster.create(topic)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": "source-test",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    for n in range(3):
        transaction(producer, topic, [b"kept-%d-%d" % (n, m) for m in range(50)], commit=True)
        cluster.produce(topic, [b"plain-%d" % n])
        transaction(producer, topic, [b"dropped-%d-%d" % (n, m) for m in range(50)], commit=False)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIMEOUT_S)

    def read(isolation: str) -> list[bytes]:
        frame = spark.read.format("ottla").options(
            **{"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.isolation.level": isolation},
            subscribe=topic,
        )
        return [bytes(row.value) for row in frame.load().orderBy("offset").select("value").collect()]

    expected = []
    for n in range(3):
        expected += [b"kept-%d-%d" % (n, m) for m in range(50)] + [b"plain-%d" % n]
    assert read("read_committed") == expected
    everything = read("read_uncommitted")
    assert len(everything) == 3 * 101 + 1 and everything[-1] == b"open"
    producer.abort_transaction(TIMEOUT_S)
    assert read("read_committed") == expected
