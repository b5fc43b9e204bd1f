"""Administration of a mixed cluster: whichever kind is asked, and whichever kind decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.clusters import NodeCluster
from bench.kafka_peer import KafkaDistribution
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from mixed_cluster import QUIET, create, mixed_cluster, produce, read, wait_same_bytes, wait_until
from tests.integration.tools.kafka_cluster import CLASSES, TOOL_TIMEOUT_S

pytestmark = [pytest.mark.maven, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((1, 2), id="decided-by-kafka", marks=pytest.mark.xdist_group("decided-by-kafka")),
        pytest.param((2, 3), id="decided-by-ottla", marks=pytest.mark.xdist_group("decided-by-ottla")),
    ],
)
def cluster(request: pytest.FixtureRequest, distribution: KafkaDistribution) -> Iterator[NodeCluster]:
    """Node 1 votes, the others are brokers alone. The parameter has the ids of those of Apache Kafka."""
    with mixed_cluster(distribution, request.param, voters=(1,)) as running:
        yield running


def asked(cluster: NodeCluster, is_kafka: bool) -> str:
    """The address of a node of the kind that is not the controller, where there is one."""
    ids = [node_id for node_id in cluster.brokers if cluster.is_kafka(node_id) is is_kafka]
    return cluster[max(ids)].bootstrap_servers


def config(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in found.items()}


@pytest.mark.parametrize("is_kafka", [True, False], ids=["asking-kafka", "asking-ottla"])
def test_topics_and_their_settings(cluster: NodeCluster, is_kafka: bool) -> None:
    servers = asked(cluster, is_kafka)
    topic = f"topic-{is_kafka}"
    create(servers, topic, 2)
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    change = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(30)
    for node in cluster.brokers.values():
        other = AdminClient({"bootstrap.servers": node.bootstrap_servers, **QUIET})
        wait_until(lambda other=other: config(other, topic)["retention.ms"] == "123456", "known to all")  # type: ignore[misc]
    produce(cluster.bootstrap_servers, topic, [str(number) for number in range(30)])
    wait_same_bytes(cluster, topic)
    admin.delete_topics([topic])[topic].result(30)
    for node in cluster.brokers.values():
        wait_until(
            lambda node=node: not list(Path(node.data_dir).glob(f"{topic}-[0-9]")),  # type: ignore[misc]
            f"deleted on {node.id}",
        )


@pytest.mark.parametrize("is_kafka", [True, False], ids=["asking-kafka", "asking-ottla"])
def test_replicas_move_between_kinds(
    cluster: NodeCluster, distribution: KafkaDistribution, is_kafka: bool, tmp_path: Path
) -> None:
    def tool(name: str, *arguments: str) -> str:
        place = ("--bootstrap-server", asked(cluster, is_kafka))
        done = distribution.run_tool(CLASSES[name], *place, *arguments, timeout_s=TOOL_TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    servers = cluster.bootstrap_servers
    topic = f"moving-{is_kafka}"
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    settings = {"min.insync.replicas": "1"}
    # Each replica is alone on one kind, and goes to the other.
    before, after = ([1, 2], [3]) if is_kafka else ([3, 1], [2])
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[before], config=settings)])[topic].result(30)
    values = [f"value-{number}" for number in range(200)]
    produce(servers, topic, values, 1)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": after}]})
    )
    chosen = ("--reassignment-json-file", str(plan))
    tool("reassign-partitions", *chosen, "--execute", "--throttle", "50000000")
    done = f"Reassignment of partition {topic}-0 is completed."
    wait_until(lambda: done in tool("reassign-partitions", *chosen, "--verify"), "moved")
    assert cluster.in_sync(topic) == {*after}
    assert cluster.leader(topic).id == after[0]
    assert read(servers, topic, 200, 1) == [values]


def test_leaders_are_elected_by_tool(cluster: NodeCluster, distribution: KafkaDistribution) -> None:
    topic = "elected"
    create(cluster.bootstrap_servers, topic)
    preferred = {partition: cluster.leader(topic, partition).id for partition in range(3)}
    # The one that is neither controller nor of the controller's kind alone.
    moved = next(node_id for node_id in (3, 2) if cluster.is_kafka(node_id) is not cluster.is_kafka(1))
    cluster[moved].stop(60)
    wait_until(
        lambda: moved not in {cluster.leader(topic, partition).id for partition in range(3)}, "led by others"
    )
    cluster[moved].start()
    for partition in range(3):
        cluster.wait_in_sync(topic, 3, partition)
    place = ("--bootstrap-server", cluster.bootstrap_servers)
    done = distribution.run_tool(
        CLASSES["leader-election"],
        *place,
        "--election-type",
        "preferred",
        "--all-topic-partitions",
        timeout_s=TOOL_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(
        lambda: preferred == {partition: cluster.leader(topic, partition).id for partition in range(3)},
        "led by those that are preferred",
    )
