"""What read_committed leaves out, from Ottla and from Apache Kafka, with transactions of a C client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka
from bench.maven import PeerUnavailable
from confluent_kafka import Producer
from tests.spark.topics import TIMEOUT_S, Cluster

from ottla.testing import InProcessBroker


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.maven)])
def cluster(
    request: pytest.FixtureRequest,
    ottla_broker_session: InProcessBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    if request.param == "ottla":
        yield Cluster(ottla_broker_session.bootstrap_servers)
        return
    try:
        distribution = kafka_peer.fetch()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    home = tmp_path_factory.mktemp("kafka")
    with started(ApacheKafka(distribution), str(home / "data"), home / "kafka.out") as kafka:
        yield Cluster(f"127.0.0.1:{kafka.port}")


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
