"""What records do to an image, that the image before stays as it was, and what a snapshot keeps of it."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.metadata.cluster_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.foreign_records import (
    FenceBrokerRecord,
    NoOpRecord,
    UnfenceBrokerRecord,
)
from ottla.metadata.image import MetadataImage, PartitionImage, ResourceType
from ottla.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC = UUID(int=0xA1)
OTHER_TOPIC = UUID(int=0xA2)
DIRECTORY = UUID(int=0xD1)
INCARNATION = UUID(int=0x11)


def partition(index: int = 0, topic_id: UUID = TOPIC, **changes: object) -> PartitionRecord:
    values: dict[str, object] = {
        "partition_id": index,
        "topic_id": topic_id,
        "replicas": (1, 2),
        "isr": (1, 2),
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": (DIRECTORY, None),
    }
    return PartitionRecord(**{**values, **changes})  # type: ignore[arg-type]


def broker(broker_id: int = 1, epoch: int = 7, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=INCARNATION,
        broker_epoch=epoch,
        end_points=(Endpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
        features=(),
        rack="r",
        fenced=fenced,
        log_dirs=(DIRECTORY,),
    )


def config(name: str, value: str | None, topic: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)


def applied(*records: MetadataRecord, image: MetadataImage | None = None) -> MetadataImage:
    image = image or MetadataImage()
    return image.apply_all(records, image.offset + len(records), 3)


TWO_PARTITIONS = (TopicRecord(name="t", topic_id=TOPIC), config("a", "1"), partition(0), partition(1))


def test_a_topic_with_its_partitions_and_configs() -> None:
    image = applied(*TWO_PARTITIONS)
    assert (image.offset, image.epoch) == (3, 3)
    topic = image.topics["t"]
    assert (topic.name, topic.id, len(topic.partitions)) == ("t", TOPIC, 2)
    assert topic.partitions[0] == PartitionImage(
        replicas=(1, 2),
        isr=(1, 2),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(DIRECTORY, UUID(int=0)),
    )
    assert image.topic_by_id(TOPIC) is topic
    assert image.topic_by_id(OTHER_TOPIC) is None
    assert image.config(ResourceType.TOPIC, "t") == {"a": "1"}
    assert image.config(ResourceType.TOPIC, "u") == {}


def test_the_image_before_is_untouched_and_shares_what_did_not_change() -> None:
    before = applied(*TWO_PARTITIONS, broker())
    after = applied(partition(2), config("a", None), config("b", "2"), config("b", "3"), image=before)
    assert len(before.topics["t"].partitions) == 2
    assert before.config(ResourceType.TOPIC, "t") == {"a": "1"}
    assert len(after.topics["t"].partitions) == 3
    assert after.config(ResourceType.TOPIC, "t") == {"b": "3"}
    assert after.brokers is before.brokers


def test_removing_a_topic_removes_its_configs_and_frees_its_name() -> None:
    before = applied(*TWO_PARTITIONS, config("a", "1", topic="other"))
    removed = applied(RemoveTopicRecord(topic_id=TOPIC), image=before)
    assert not removed.topics and not removed.topic_names
    assert dict(removed.configs) == {(ResourceType.TOPIC, "other"): {"a": "1"}}
    again = applied(
        RemoveTopicRecord(topic_id=TOPIC),
        TopicRecord(name="t", topic_id=OTHER_TOPIC),
        config("b", "1"),
        partition(0, OTHER_TOPIC),
        image=before,
    )
    assert again.topics["t"].id == OTHER_TOPIC
    assert len(again.topics["t"].partitions) == 1
    assert again.config(ResourceType.TOPIC, "t") == {"b": "1"}
    assert len(before.topics["t"].partitions) == 2


def test_a_topic_that_comes_and_goes_in_one_batch_leaves_nothing() -> None:
    image = applied(*TWO_PARTITIONS, RemoveTopicRecord(topic_id=TOPIC))
    assert not image.topics and not image.topic_names and not image.configs


def test_the_last_config_of_a_resource_takes_the_resource_along() -> None:
    image = applied(config("a", None), image=applied(*TWO_PARTITIONS))
    assert not image.configs


def test_a_partition_change_only_moves_what_it_names() -> None:
    image = applied(*TWO_PARTITIONS)
    isr_only = applied(PartitionChangeRecord(partition_id=1, topic_id=TOPIC, isr=(1,)), image=image)
    changed = isr_only.topics["t"].partitions[1]
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1,), 1, 0, 1)
    assert isr_only.topics["t"].partitions[0] == image.topics["t"].partitions[0]
    elected = (
        applied(
            PartitionChangeRecord(
                partition_id=1,
                topic_id=TOPIC,
                leader=2,
                replicas=(2,),
                removing_replicas=(1,),
                adding_replicas=(3,),
                leader_recovery_state=1,
                eligible_leader_replicas=(5,),
                last_known_elr=(6,),
                directories=(DIRECTORY,),
            ),
            image=isr_only,
        )
        .topics["t"]
        .partitions[1]
    )
    assert elected == PartitionImage(
        replicas=(2,),
        isr=(1,),
        leader=2,
        leader_epoch=1,
        partition_epoch=2,
        directories=(DIRECTORY,),
        removing_replicas=(1,),
        adding_replicas=(3,),
        leader_recovery_state=1,
        eligible_leader_replicas=(5,),
        last_known_elr=(6,),
    )


def test_electing_the_same_leader_again_is_a_new_epoch() -> None:
    image = applied(*TWO_PARTITIONS, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1))
    assert image.topics["t"].partitions[0].leader_epoch == 1


@pytest.mark.parametrize(("name", "cleared"), [("", {"t", "u"}), ("t", {"t"})])
def test_eligible_leaders_are_cleared_for_one_topic_or_all(name: str, cleared: set[str]) -> None:
    image = applied(
        TopicRecord(name="t", topic_id=TOPIC),
        partition(0, eligible_leader_replicas=(3,), last_known_elr=(4,)),
        TopicRecord(name="u", topic_id=OTHER_TOPIC),
        partition(0, OTHER_TOPIC, eligible_leader_replicas=(3,)),
    )
    image = applied(ClearElrRecord(topic_name=name), image=image)
    for topic in ("t", "u"):
        state = image.topics[topic].partitions[0]
        assert (state.eligible_leader_replicas == ()) == (topic in cleared)
        assert state.partition_epoch == (topic in cleared)


def test_brokers_are_registered_fenced_and_forgotten() -> None:
    image = applied(broker())
    assert not image.brokers[1].active
    image = applied(UnfenceBrokerRecord(id=1, epoch=7), image=image)
    assert image.brokers[1].active
    image = applied(FenceBrokerRecord(id=1, epoch=7), image=image)
    assert image.brokers[1].fenced
    image = applied(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1, log_dirs=(INCARNATION,)),
        image=image,
    )
    assert image.brokers[1].active and image.brokers[1].directories == (INCARNATION,)
    image = applied(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1), image=image
    )
    assert not image.brokers[1].active and not image.brokers[1].fenced
    image = applied(UnregisterBrokerRecord(broker_id=1, broker_epoch=7), image=image)
    assert image.brokers == {}


def test_features_controllers_and_producer_ids() -> None:
    controller = RegisterControllerRecord(
        controller_id=1, incarnation_id=INCARNATION, end_points=(), features=()
    )
    image = applied(
        FeatureLevelRecord(name="a", feature_level=1),
        FeatureLevelRecord(name="b", feature_level=2),
        FeatureLevelRecord(name="a", feature_level=0),
        controller,
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000),
        NoOpRecord(),
    )
    assert image.features == {"b": 2}
    assert image.controllers == {1: controller}
    assert image.next_producer_id == 1000


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (TopicRecord(name="new", topic_id=TOPIC), "already belongs to topic t"),
        (RemoveTopicRecord(topic_id=OTHER_TOPIC), "no topic with this id"),
        (partition(0, OTHER_TOPIC), "no topic with this id"),
        (partition(3), "2 partitions so far"),
        (PartitionChangeRecord(partition_id=2, topic_id=TOPIC), "has 2 partitions"),
        (FenceBrokerRecord(id=1, epoch=8), "broker 1 is not registered with epoch 8"),
        (UnregisterBrokerRecord(broker_id=2, broker_epoch=7), "broker 2 is not registered"),
        (ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=999), "up to 1000"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(record: MetadataRecord, words: str) -> None:
    ids = ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=1000)
    image = applied(*TWO_PARTITIONS, broker(), ids)
    with pytest.raises(MetadataRecordError, match=words):
        applied(record, image=image)
