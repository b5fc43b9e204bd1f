"""What a batch of records says it changed: all of it, and nothing else."""

from __future__ import annotations

from uuid import UUID

from ottla.metadata.change import TopicChange, between
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def topic(number: int, name: str = "") -> list[MetadataRecord]:
    topic_id = UUID(int=1000 + number)
    return [
        TopicRecord(name=name or f"t{number}", topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=(UUID(int=200),),
        ),
    ]


def config(name: str, value: str | None, *, kind: int = TOPIC, key: str = "retention.ms") -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


BEFORE = MetadataImage().apply_all(
    [*(record for number in range(50) for record in topic(number)), config("t1", "1"), config("t2", "1")],
    99,
    1,
)


def changed(*records: MetadataRecord) -> list[TopicChange]:
    change = BEFORE.change(records, 110, 1)
    assert change.before is BEFORE
    assert set(between(BEFORE, change.after).topics) == set(change.topics)
    return list(change.topics)


def test_what_touches_no_topic_changes_none() -> None:
    change = BEFORE.change([ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=9)], 110, 1)
    assert (list(change.topics), list(change.configs)) == ([], [])
    assert change.after.next_producer_id == 9


def test_only_what_changed_is_told() -> None:
    (elected,) = changed(PartitionChangeRecord(partition_id=0, topic_id=UUID(int=1007), leader=1))
    assert (elected.name, elected.removed) == ("t7", None)
    assert elected.before is BEFORE.topics["t7"]
    assert elected.after is not None
    assert elected.after.partitions[0].leader_epoch == 1


def test_topics_come_and_go() -> None:
    came, went = changed(*topic(60), RemoveTopicRecord(topic_id=UUID(int=1003)))
    assert (came.name, came.before, came.removed) == ("t60", None, None)
    assert (went.name, went.after, went.removed) == ("t3", None, BEFORE.topics["t3"])


def test_a_topic_deleted_and_created_anew_is_told_once_with_both() -> None:
    (change,) = changed(RemoveTopicRecord(topic_id=UUID(int=1003)), *topic(70, "t3"))
    assert change.removed is BEFORE.topics["t3"]
    assert change.after is not None and change.after.id == UUID(int=1070)


def test_a_topic_that_comes_and_goes_at_once_is_not_told() -> None:
    assert changed(*topic(60), RemoveTopicRecord(topic_id=UUID(int=1060))) == []


def test_settings_that_changed_are_told_by_resource() -> None:
    def configs(*records: MetadataRecord) -> list[tuple[int, str]]:
        change = BEFORE.change(records, 110, 1)
        assert sorted(between(BEFORE, change.after).configs) == sorted(change.configs)
        return list(change.configs)

    assert configs(config("t1", "2"), config("t3", "1")) == [(TOPIC, "t1"), (TOPIC, "t3")]
    assert configs(config("t1", "1"), config("t2", None)) == [(TOPIC, "t2")]
    assert configs(RemoveTopicRecord(topic_id=UUID(int=1001))) == [(TOPIC, "t1")]
    assert BEFORE.change([config("", "1", kind=BROKER)], 110, 1).changes_broker_configs
    assert not BEFORE.change([config("t1", "2")], 110, 1).changes_broker_configs
