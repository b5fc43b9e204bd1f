"""Ottla and Apache Kafka in one cluster: leaders, followers, voters and coordinators of either kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.clusters import NodeCluster
from bench.kafka_peer import KafkaDistribution
from confluent_kafka import Consumer, Producer, TopicPartition
from mixed_cluster import QUIET, WAIT_S, create, key_on, mixed_cluster, produce, read, wait_same_bytes
from tests.integration.tools.kafka_cluster import CLASSES

from ottla.client.cluster import GROUP, TRANSACTION

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(600)]

NODES = (1, 2, 3)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1, 2), id="ottla-among-kafka", marks=pytest.mark.xdist_group("ottla-among-kafka")),
        pytest.param((3,), id="kafka-among-ottla", marks=pytest.mark.xdist_group("kafka-among-ottla")),
    ],
)
def cluster(request: pytest.FixtureRequest, distribution: KafkaDistribution) -> Iterator[NodeCluster]:
    """All three vote. The parameter has the ids of those that are Apache Kafka's."""
    with mixed_cluster(distribution, request.param) as running:
        yield running


def test_replicas_have_the_same_bytes_whoever_was_killed(cluster: NodeCluster) -> None:
    servers = cluster.bootstrap_servers
    create(servers, "killed")
    assert {cluster.leader("killed", partition).id for partition in range(3)} == {*NODES}
    written = [f"first-{number}" for number in range(300)]
    produce(servers, "killed", written)
    for node_id in NODES:
        cluster[node_id].kill9()
        values = [f"without-{node_id}-{number}" for number in range(300)]
        produce(servers, "killed", values)
        written += values
        cluster[node_id].start()
        for partition in range(3):
            cluster.wait_in_sync("killed", 3, partition, WAIT_S)
    found = read(servers, "killed", len(written))
    assert found == [written[partition::3] for partition in range(3)]
    wait_same_bytes(cluster, "killed")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("node_id", NODES)
def test_groups_are_coordinated_by_either(cluster: NodeCluster, node_id: int, protocol: str) -> None:
    servers = cluster.bootstrap_servers
    topic = f"groups-{node_id}-{protocol}"
    create(servers, topic)
    produce(servers, topic, [str(number) for number in range(30)])
    group = key_on(cluster, GROUP, node_id, f"group-{protocol}")
    found: set[str] = set()
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **QUIET,
    }
    for share in (15, 30):
        # The second consumer goes on where the first one has committed.
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        try:
            while len(found) < share:
                message = consumer.poll(WAIT_S)
                assert message is not None and message.error() is None
                assert message.value().decode() not in found
                found.add(message.value().decode())
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()


@pytest.mark.parametrize("node_id", NODES)
def test_transactions_are_coordinated_by_either(cluster: NodeCluster, node_id: int) -> None:
    servers = cluster.bootstrap_servers
    topic = f"transactions-{node_id}"
    create(servers, topic)
    transactional_id = key_on(cluster, TRANSACTION, node_id, "writer")
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    for group_node in NODES:
        group = key_on(cluster, GROUP, group_node, f"sources-{node_id}")
        source = Consumer({"bootstrap.servers": servers, "group.id": group, **QUIET})
        for verdict in ("commit", "abort"):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce(topic, f"{verdict}-{group_node}", partition=partition)
            offset = TopicPartition(topic, 0, 10 if verdict == "commit" else 20)
            producer.send_offsets_to_transaction([offset], source.consumer_group_metadata(), WAIT_S)
            if verdict == "commit":
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        (committed,) = source.committed([TopicPartition(topic, 0)], WAIT_S)
        assert committed.offset == 10
        source.close()
    wanted = [f"commit-{group_node}" for group_node in NODES]
    assert read(servers, topic, 9) == [wanted, wanted, wanted]
    wait_same_bytes(cluster, topic)


@pytest.mark.parametrize("is_kafka", [True, False], ids=["by-kafka", "by-ottla"])
def test_leaders_of_either_ask_the_coordinator_of_a_java_producer(
    cluster: NodeCluster, distribution: KafkaDistribution, is_kafka: bool
) -> None:
    """It leaves it to the leaders to add partitions to its transactions (KIP-890)."""
    servers = cluster.bootstrap_servers
    topic = f"java-{is_kafka}"
    create(servers, topic)
    node_id = next(each for each in NODES if cluster.is_kafka(each) is is_kafka)
    done = distribution.run_tool(
        CLASSES["producer-perf-test"],
        *("--bootstrap-server", servers, "--topic", topic, "--record-size", "10"),
        *("--num-records", "600", "--throughput", "2000", "--transaction-duration-ms", "50"),
        *("--transactional-id", key_on(cluster, TRANSACTION, node_id, "java")),
        *("--command-property", "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner"),
        timeout_s=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(servers, topic, 600)
    assert sum(map(len, found)) == 600
    assert all(found), "each of them was written to"
    wait_same_bytes(cluster, topic)
