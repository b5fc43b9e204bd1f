"""What administrators ask through kafka-python and confluent-kafka, beyond creating and deleting topics."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError, OffsetOutOfRangeError

from ottla.testing import InProcessBroker

TIMEOUT_S = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker({"log.retention.hours": 5}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: InProcessBroker) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture(scope="module")
def confluent(broker: InProcessBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def topic(broker: InProcessBroker, admin: KafkaAdminClient) -> str:
    """A topic with two partitions and five records in the first."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin.create_topics({name: {"num_partitions": 2, "configs": {"segment.bytes": "1048576"}}})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(5):
        producer.send(name, b"x" * 100, partition=0, timestamp_ms=1000 + number)
    producer.flush(TIMEOUT_S)
    producer.close()
    return name


def test_kafka_python_describes_topics_and_pages_through_partitions(
    admin: KafkaAdminClient, topic: str
) -> None:
    (described,) = admin.describe_topics([topic])
    assert [partition["leader_id"] for partition in described["partitions"]] == [1, 1]
    (by_id,) = admin.describe_topics([uuid.UUID(str(described["topic_id"]))])
    assert by_id["name"] == topic

    first = admin.describe_topic_partitions([topic], response_partition_limit=1)
    assert [p["partition_index"] for p in first["topics"][0]["partitions"]] == [0]
    second = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [p["partition_index"] for p in second["topics"][0]["partitions"]] == [1]
    assert second["next_cursor"] is None


def test_kafka_python_sees_where_settings_come_from(admin: KafkaAdminClient, topic: str) -> None:
    resources = [
        PythonResource(ConfigResourceType.TOPIC, topic),
        PythonResource(ConfigResourceType.BROKER, "1"),
    ]
    described = admin.describe_configs(resources, include_synonyms=True, config_filter="all")
    settings = described["topic"][topic]
    assert settings["segment.bytes"]["value"] == "1048576"
    assert settings["retention.ms"]["value"] == str(5 * 3600 * 1000)
    # It comes from log.retention.hours, which Kafka does not tell.
    assert settings["retention.ms"]["synonyms"] == []
    broker_settings = described["broker"]["1"]
    assert broker_settings["log.retention.hours"]["value"] == "5"
    assert broker_settings["node.id"]["read_only"]


def test_kafka_python_changes_and_resets_settings(admin: KafkaAdminClient, topic: str) -> None:
    def value(key: str) -> str:
        resource = PythonResource(ConfigResourceType.TOPIC, topic)
        return str(admin.describe_configs([resource], config_filter="all")["topic"][topic][key]["value"])

    changes = {"cleanup.policy": ("APPEND", "compact"), "retention.ms": ("SET", "77")}
    admin.alter_configs([PythonResource(ConfigResourceType.TOPIC, topic, changes)])
    assert (value("cleanup.policy"), value("retention.ms")) == ("delete,compact", "77")
    admin.reset_configs([PythonResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
    assert value("retention.ms") == str(5 * 3600 * 1000)
    assert value("segment.bytes") == "1048576"


def test_dynamic_broker_settings_apply_to_topics(admin: KafkaAdminClient, topic: str) -> None:
    admin.alter_configs([PythonResource(ConfigResourceType.BROKER, "1", {"log.retention.ms": "123456"})])
    try:
        resource = PythonResource(ConfigResourceType.TOPIC, topic)
        described = admin.describe_configs([resource], config_filter="all")["topic"][topic]
        assert described["retention.ms"]["value"] == "123456"
    finally:
        admin.reset_configs([PythonResource(ConfigResourceType.BROKER, "1", ["log.retention.ms"])])


def test_confluent_replaces_settings(confluent: AdminClient, topic: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "88"})
    confluent.alter_configs([resource])[resource].result(TIMEOUT_S)
    settings = confluent.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert settings["retention.ms"].value == "88"
    assert settings["segment.bytes"].is_default
    wrong = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "soon"})
    with pytest.raises(KafkaException, match=r"retention\.ms"):
        confluent.alter_configs([wrong])[wrong].result(TIMEOUT_S)


def test_kafka_python_deletes_records(admin: KafkaAdminClient, topic: str) -> None:
    partition = PythonPartition(topic, 0)

    def offset(spec: OffsetSpec | int) -> int:
        return int(admin.list_partition_offsets({partition: spec})[partition].offset)

    assert (offset(OffsetSpec.EARLIEST), offset(OffsetSpec.LATEST)) == (0, 5)
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 4
    assert offset(1002) == 2
    assert offset(2000) == -1
    deleted = admin.delete_records({partition: 3})
    assert deleted[partition]["low_watermark"] == 3
    assert offset(OffsetSpec.EARLIEST) == 3
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 6})
    admin.delete_records({partition: -1})
    assert offset(OffsetSpec.EARLIEST) == 5


def test_confluent_deletes_records(confluent: AdminClient, topic: str) -> None:
    asked = TopicPartition(topic, 0, 2)
    deleted = confluent.delete_records([asked])[asked].result(TIMEOUT_S)
    assert deleted.low_watermark == 2


def test_confluent_sees_what_it_may_do(confluent: AdminClient, topic: str) -> None:
    futures = confluent.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
    described = futures[topic].result(TIMEOUT_S)
    assert [partition.leader.id for partition in described.partitions] == [1, 1]
    operations = {operation.name for operation in described.authorized_operations}
    assert {"READ", "WRITE", "DELETE", "ALTER_CONFIGS"} <= operations
    cluster = confluent.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert "CLUSTER_ACTION" in {operation.name for operation in cluster.authorized_operations}


def test_kafka_python_looks_into_log_dirs(
    broker: InProcessBroker, admin: KafkaAdminClient, topic: str
) -> None:
    (described,) = admin.describe_log_dirs([topic])
    (directory,) = described["log_dirs"]
    assert os.path.samefile(directory["log_dir"], broker.data_dir)
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    (found,) = directory["topics"]
    sizes = {partition["partition_index"]: partition["partition_size"] for partition in found["partitions"]}
    assert found["name"] == topic
    assert sizes[0] > 500
    assert sizes[1] == 0


def test_kafka_python_describes_the_quorum(admin: KafkaAdminClient) -> None:
    quorum = admin.describe_metadata_quorum()
    (partition,) = quorum["topics"][0]["partitions"]
    assert (partition["error"], partition["leader_id"]) == (None, 1)
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [1]
    assert 0 < partition["high_watermark"] <= partition["current_voters"][0]["log_end_offset"]


def test_kafka_python_describes_producers(admin: KafkaAdminClient, topic: str) -> None:
    partition = PythonPartition(topic, 0)
    (producer,) = admin.describe_producers([partition])[partition].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 4)
    assert producer.last_timestamp == 1004


def test_kafka_python_lists_what_has_settings(admin: KafkaAdminClient, topic: str) -> None:
    resources = admin.list_config_resources()
    assert topic in resources["topic"]
    assert resources["broker"] == ["1"]


def test_kafka_python_sees_the_clusters_features(admin: KafkaAdminClient) -> None:
    feature = admin.describe_features()["metadata.version"]
    lowest, highest = feature["supported"]
    level, _ = feature["finalized"]
    assert lowest <= level <= highest
    assert feature["finalized_epoch"] >= 0


def test_adding_partitions(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_partitions({topic: {"count": 4, "assignments": [[1], [1]]}})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    with pytest.raises(KafkaError, match="4 partition"):
        admin.create_partitions({topic: 3})


def test_access_rules_without_an_authorizer(broker: InProcessBroker, confluent: AdminClient) -> None:
    """MirrorMaker asks at each interval, and takes this answer for "nothing to copy"."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
    )
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from raw_client import RawConnection

    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    rule = AclBinding(
        *(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    asked = [
        *confluent.create_acls([rule]).values(),
        *confluent.delete_acls([anything]).values(),
    ]
    for answer in asked:
        with pytest.raises(KafkaException) as refused:
            answer.result(timeout=TIMEOUT_S)
        assert refused.value.args[0].name() == "SECURITY_DISABLED"
    # librdkafka takes no notice of this error when it asks for rules.
    wanted = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = RawConnection(broker.bootstrap_servers).call(29, 3, wanted)
    assert (answer.error_code.name, answer.resources) == ("security_disabled", ())
    assert answer.error_message == "No Authorizer is configured."


def test_unknown_keys_of_a_broker_are_kept_and_hidden(confluent: AdminClient) -> None:
    """Plugins of Kafka read them; who set one must see that it is there, not what it is."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    entry = ConfigEntry("plugin.secret", "hush", incremental_operation=AlterConfigOpType.SET)
    changing = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    confluent.incremental_alter_configs([changing])[changing].result(timeout=TIMEOUT_S)
    resource = ConfigResource(ResourceType.BROKER, "1")
    described = confluent.describe_configs([resource])[resource].result(timeout=TIMEOUT_S)["plugin.secret"]
    assert (described.value, described.is_sensitive, described.source) == (None, True, 2)


def test_features_are_updated_with_the_oldest_request(broker: InProcessBroker) -> None:
    from kio.schema.update_features.v0 import request as v0
    from raw_client import RawConnection

    def update(level: int, *, allow_downgrade: bool) -> tuple[str, str | None]:
        wanted = v0.FeatureUpdateKey(
            feature="metadata.version", max_version_level=level, allow_downgrade=allow_downgrade
        )
        answer = RawConnection(broker.bootstrap_servers).call(
            57, 0, v0.UpdateFeaturesRequest(feature_updates=(wanted,))
        )
        if answer.error_code.name != "none":
            # Nothing was done to any of them.
            assert answer.results == ()
            return answer.error_code.name, answer.error_message
        [result] = answer.results
        assert result.feature == "metadata.version"
        return result.error_code.name, result.error_message

    code, told = update(1, allow_downgrade=False)
    assert code == "invalid_update_version"
    assert "1" in (told or "")
    code, told = update(30_000, allow_downgrade=True)
    assert code == "invalid_update_version"
    assert update(27, allow_downgrade=False) == ("none", None)


def test_who_deletes_an_internal_topic_is_logged(
    broker: InProcessBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "client.id": "careless"})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    client.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(timeout=TIMEOUT_S)
    [told] = [record.getMessage() for record in caplog.records if "__consumer_offsets" in record.getMessage()]
    assert told.startswith("internal topic __consumer_offsets was deleted by client careless at 127.0.0.1:")
