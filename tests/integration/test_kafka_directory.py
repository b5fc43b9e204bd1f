"""A whole directory carries across: formatted and used by Apache Kafka, by Ottla, by Apache Kafka again."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import kafka_peer
from bench.brokers import started
from bench.kafka_peer import ApacheKafka, KafkaDistribution
from bench.maven import PeerUnavailable
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.testing import BrokerProcess

# Fetching the jars for the first time is part of the test.
pytestmark = [pytest.mark.maven, pytest.mark.timeout(600)]

TOOL_TIMEOUT_S = 60
SETTINGS = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""
RULE = (ResourceType.TOPIC, "private", ResourcePatternType.LITERAL, "User:ann", "*")
THROTTLED = "leader.replication.throttled.replicas"


@pytest.fixture(scope="module")
def distribution() -> KafkaDistribution:
    try:
        return kafka_peer.fetch()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def configs_tool(kafka: KafkaDistribution, address: str, *arguments: str) -> str:
    done = kafka.run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", address, *arguments, timeout_s=TOOL_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def produce(address: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    errors: list[object] = []
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]


def values(address: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes] = []
    while len(found) < count and (messages := consumer.consume(count, timeout=20)):
        found += [message.value() for message in messages]
    consumer.close()
    return found


def protection(kafka: KafkaDistribution, address: str) -> tuple[int, list[str], str, str]:
    """What Apache Kafka knows of rules, credentials, quotas and the topic's settings."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    anything = (AclOperation.ANY, AclPermissionType.ANY)
    wanted = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, *anything)
    rules = admin.describe_acls(wanted).result(30)
    scram = admin.describe_user_scram_credentials(["ann"])["ann"].result(30)
    mechanisms = [f"{info.mechanism} {info.iterations}" for info in scram.scram_credential_infos]
    quotas = configs_tool(kafka, address, "--describe", "--entity-type", "clients")
    topic = configs_tool(kafka, address, "--describe", "--entity-type", "topics", "--entity-name", "orders")
    return len(rules), mechanisms, quotas, topic


def test_a_directory_goes_from_kafka_to_ottla_and_back(
    distribution: KafkaDistribution, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    kafka = ApacheKafka(
        distribution,
        settings=SETTINGS,
        format_flags=("--add-scram", "SCRAM-SHA-256=[name=ann,password=secret]"),
    )
    with started(kafka, str(data), tmp_path / "first") as broker:
        address = f"127.0.0.1:{broker.port}"
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic("orders", 1, 1, config={"segment.ms": "99999999"})])["orders"].result(
            30
        )
        rule = AclBinding(*RULE, AclOperation.READ, AclPermissionType.ALLOW)
        for created in admin.create_acls([rule]).values():
            created.result(30)
        quota = ("--entity-type", "clients", "--entity-name", "slow", "--add-config")
        configs_tool(distribution, address, "--alter", *quota, "producer_byte_rate=12345")
        throttled = ("--entity-type", "topics", "--entity-name", "orders", "--add-config")
        configs_tool(distribution, address, "--alter", *throttled, f"{THROTTLED}=0:1")
        produce(address, b"by Kafka")
        known = protection(distribution, address)
    assert known[0] == 1
    assert "producer_byte_rate=12345" in known[2]
    assert THROTTLED in known[3]

    # Few bytes between snapshots, so that Kafka goes on from one that Ottla wrote.
    settings = {"metadata.log.max.record.bytes.between.snapshots": "500"}
    with BrokerProcess(settings, data_dir=str(data)) as ottla:
        assert values(ottla.bootstrap_servers, 1) == [b"by Kafka"]
        produce(ottla.bootstrap_servers, b"by Ottla")
        admin = AdminClient({"bootstrap.servers": ottla.bootstrap_servers})
        for number in range(5):
            name = f"new-{number}"
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")]).values()
        assert {"segment.ms", THROTTLED} <= described.result(30).keys()
        assert ottla.stop() == 0
        ottla.start()
        assert values(ottla.bootstrap_servers, 2) == [b"by Kafka", b"by Ottla"]
        assert ottla.stop() == 0
    metadata = data / "__cluster_metadata-0"
    assert len(list(metadata.glob("*.checkpoint"))) > 1

    with started(kafka, str(data), tmp_path / "second") as broker:
        address = f"127.0.0.1:{broker.port}"
        assert protection(distribution, address) == known
        assert values(address, 2) == [b"by Kafka", b"by Ottla"]
