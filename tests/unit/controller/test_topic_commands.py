"""Creating and deleting topics, adding partitions: what is accepted, what refused, which records result."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import UUID

import pytest
from deciding import decided

from ottla.config import BrokerConfig
from ottla.controller.command import Result
from ottla.controller.topics import (
    NewPartitions,
    NewTopic,
    TopicDefaults,
    TopicOutcome,
    TopicRef,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.internal_topics import INTERNAL_TOPICS
from ottla.metadata.records import ConfigRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from ottla.wire.errors import ErrorCode

DIRECTORIES = {1: (UUID(int=201),), 2: (UUID(int=202), UUID(int=203)), 3: (UUID(int=204),)}
UNASSIGNED = UUID(int=1)
CONFIG = BrokerConfig.from_properties({"node.id": "1"})


def cluster(*broker_ids: int, fenced: tuple[int, ...] = ()) -> MetadataImage:
    return MetadataImage().apply_all(
        [
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=UUID(int=900 + broker_id),
                broker_epoch=1,
                end_points=(),
                features=(),
                fenced=broker_id in fenced,
                log_dirs=DIRECTORIES[broker_id],
            )
            for broker_id in broker_ids
        ],
        1,
        1,
    )


def create(
    image: MetadataImage, *topics: NewTopic, partitions: int = 1, replicas: int = 1
) -> Result[list[TopicOutcome]]:
    return decided(create_topics(image, topics, TopicDefaults(partitions, replicas, CONFIG), Random(7)))


def applied(image: MetadataImage, result: Result[list[TopicOutcome]]) -> MetadataImage:
    assert [outcome.error for outcome in result.response if outcome.error] == []
    return image.apply_all(result.records, image.offset + len(result.records), 1)


def with_topics(*names: str, image: MetadataImage | None = None) -> MetadataImage:
    image = image or cluster(1)
    return applied(image, create(image, *map(NewTopic, names)))


def error_of(outcome: TopicOutcome) -> tuple[ErrorCode, str]:
    assert outcome.error is not None
    return outcome.error.code, outcome.error.message


def test_a_topic_gets_an_id_its_configs_and_its_partitions_in_that_order() -> None:
    image = cluster(1)
    result = create(image, NewTopic("orders", 2, 1, configs=(("retention.ms", "1000"),)))
    [outcome] = result.response
    assert outcome.topic_id is not None and outcome.topic_id.version == 4
    assert result.records == [
        TopicRecord(name="orders", topic_id=outcome.topic_id),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=outcome.topic_id,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=DIRECTORIES[1],
            )
            for index in range(2)
        ),
    ]
    assert (outcome.partition_count, outcome.replication_factor) == (2, 1)
    assert outcome.configs == {"retention.ms": "1000"}
    assert applied(image, result).config(ResourceType.TOPIC, "orders") == {"retention.ms": "1000"}


def test_numbers_left_open_come_from_the_configuration() -> None:
    image = cluster(1, 2, 3)
    [topic] = applied(image, create(image, NewTopic("t"), partitions=4, replicas=2)).topics.values()
    assert len(topic.partitions) == 4
    assert {len(partition.replicas) for partition in topic.partitions} == {2}


def test_leaders_and_replicas_are_spread_evenly_and_never_on_one_broker_twice() -> None:
    image = cluster(1, 2, 3)
    [topic] = applied(image, create(image, NewTopic("t", 30, 2))).topics.values()
    leaders = Counter(partition.leader for partition in topic.partitions)
    replicas = Counter(replica for partition in topic.partitions for replica in partition.replicas)
    assert leaders == {1: 10, 2: 10, 3: 10}
    assert replicas == {1: 20, 2: 20, 3: 20}
    assert all(len(set(partition.replicas)) == 2 for partition in topic.partitions)
    assert all(partition.leader == partition.replicas[0] for partition in topic.partitions)


def test_a_broker_with_several_directories_chooses_itself() -> None:
    image = cluster(1, 2)
    [topic] = applied(image, create(image, NewTopic("t", assignments=((0, (2, 1)),)))).topics.values()
    assert topic.partitions[0].directories == (UNASSIGNED, DIRECTORIES[1][0])


def test_fenced_brokers_hold_replicas_but_neither_lead_nor_are_in_sync() -> None:
    image = cluster(1, 2, 3, fenced=(2,))
    [topic] = applied(image, create(image, NewTopic("t", 6, 3))).topics.values()
    for partition in topic.partitions:
        assert partition.replicas[-1] == 2
        assert 2 not in partition.isr
    code, message = error_of(create(cluster(1, fenced=(1,)), NewTopic("t")).response[0])
    assert code is ErrorCode.invalid_replication_factor and "currently fenced" in message


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a b", "characters other than ASCII alphanumerics"),
        ("größe", "characters other than ASCII alphanumerics"),
        ("a/b", "characters other than ASCII alphanumerics"),
        ("a\n", "characters other than ASCII alphanumerics"),
    ],
)
def test_names_that_cannot_be(name: str, reason: str) -> None:
    result = create(cluster(1), NewTopic(name))
    code, message = error_of(result.response[0])
    assert code is ErrorCode.invalid_topic_exception and reason in message
    assert result.records == []


@pytest.mark.parametrize("name", ["a", "a" * 249, "...", "a.b-c_d", "__consumer_offsets", "0"])
def test_names_that_can_be(name: str) -> None:
    assert create(cluster(1), NewTopic(name)).response[0].error is None


def test_names_that_would_be_one_metric_collide() -> None:
    image = with_topics("a.b")
    code, message = error_of(create(image, NewTopic("a_b")).response[0])
    assert code is ErrorCode.invalid_topic_exception
    assert message == "Topic 'a_b' collides with existing topic: a.b"
    assert create(image, NewTopic("a-b"), NewTopic("ab")).records
    both = create(cluster(1), NewTopic("x.y"), NewTopic("x_y")).response
    assert both[0].error is None and error_of(both[1])[0] is ErrorCode.invalid_topic_exception


def test_existing_duplicate_and_internal_names() -> None:
    image = with_topics("t.t")
    result = create(
        image, NewTopic("t.t"), NewTopic("u"), NewTopic("u"), NewTopic("__cluster_metadata"), NewTopic("v")
    )
    errors = [outcome.error and (outcome.error.code, outcome.error.message) for outcome in result.response]
    assert errors == [
        (ErrorCode.topic_already_exists, "Topic 't.t' already exists."),
        (ErrorCode.invalid_request, "Duplicate topic name."),
        (ErrorCode.invalid_request, "Duplicate topic name."),
        (ErrorCode.invalid_request, "Creation of internal topic __cluster_metadata is prohibited."),
        None,
    ]
    assert [record.name for record in result.records if isinstance(record, TopicRecord)] == ["v"]


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (NewTopic("t", 0), ErrorCode.invalid_partitions, "non-positive"),
        (NewTopic("t", -2), ErrorCode.invalid_partitions, "non-positive"),
        (NewTopic("t", 1, 0), ErrorCode.invalid_replication_factor, "larger than 0, or -1"),
        (NewTopic("t", 1, -2), ErrorCode.invalid_replication_factor, "larger than 0, or -1"),
        (NewTopic("t", 1, 3), ErrorCode.invalid_replication_factor, "only 2 broker(s) are registered"),
        (NewTopic("t", 10_001), ErrorCode.policy_violation, "large number of partitions"),
        (NewTopic("t", 2**31 - 1), ErrorCode.policy_violation, "large number of partitions"),
        (NewTopic("t", configs=(("retention.ms", "soon"),)), ErrorCode.invalid_config, "retention.ms"),
        (NewTopic("t", configs=(("retention.sm", "1"),)), ErrorCode.invalid_config, "retention.sm"),
        (NewTopic("t", configs=(("retention.ms", None),)), ErrorCode.invalid_config, "Null value"),
        (
            NewTopic("t", configs=(("retention.ms", "1"), ("retention.ms", "2"))),
            ErrorCode.invalid_request,
            "duplicate config keys",
        ),
        (NewTopic("t", 1, assignments=((0, (1,)),)), ErrorCode.invalid_request, "numPartitions"),
        (NewTopic("t", -1, 1, assignments=((0, (1,)),)), ErrorCode.invalid_request, "replication factor"),
        (
            NewTopic("t", assignments=((0, (1,)), (0, (2,)))),
            ErrorCode.invalid_replica_assignment,
            "multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=((1, (1,)),)),
            ErrorCode.invalid_replica_assignment,
            "consecutive 0-based",
        ),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.invalid_replica_assignment, "empty replica list"),
        (NewTopic("t", assignments=((0, (9,)),)), ErrorCode.invalid_replica_assignment, "no such broker"),
        (
            NewTopic("t", assignments=((0, (1, 1)),)),
            ErrorCode.invalid_replica_assignment,
            "the broker 1 more than once",
        ),
        (
            NewTopic("t", assignments=((0, (1, 2)), (1, (1,)))),
            ErrorCode.invalid_replica_assignment,
            "not consistent with previous partitions, which have 2",
        ),
    ],
)
def test_topics_that_cannot_be(topic: NewTopic, code: ErrorCode, words: str) -> None:
    result = create(cluster(1, 2), topic)
    found, message = error_of(result.response[0])
    assert (found, result.records) == (code, [])
    assert words in message


def test_all_brokers_of_an_assignment_fenced() -> None:
    image = cluster(1, 2, fenced=(2,))
    code, message = error_of(create(image, NewTopic("t", assignments=((0, (2,)),))).response[0])
    assert code is ErrorCode.invalid_replica_assignment and "partition 0 are fenced" in message


def test_an_assignment_is_taken_as_given() -> None:
    image = cluster(1, 2, 3)
    result = create(image, NewTopic("t", assignments=((1, (3, 1)), (0, (2, 3)))))
    [topic] = applied(image, result).topics.values()
    assert [partition.replicas for partition in topic.partitions] == [(2, 3), (3, 1)]
    assert (result.response[0].partition_count, result.response[0].replication_factor) == (2, 2)


def test_deleting_by_name_and_by_id() -> None:
    image = with_topics("a", "b", "c")
    id_b = image.topics["b"].id
    result = decided(delete_topics(image, [TopicRef("a"), TopicRef(topic_id=id_b)]))
    assert [(outcome.name, outcome.topic_id) for outcome in result.response] == [
        ("a", image.topics["a"].id),
        ("b", id_b),
    ]
    assert list(applied(image, result).topics) == ["c"]


def test_deletions_that_cannot_be() -> None:
    image = with_topics("a", "b")
    id_a, nobody = image.topics["a"].id, UUID(int=5)
    result = decided(
        delete_topics(
            image,
            [
                TopicRef(),
                TopicRef("a", id_a),
                TopicRef("b"),
                TopicRef("b"),
                TopicRef("nothing"),
                TopicRef(topic_id=nobody),
                TopicRef("a"),
            ],
        )
    )
    assert result.records == []
    assert [error_of(outcome)[0] for outcome in result.response] == [
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.invalid_request,
    ]


def test_partitions_are_added_behind_those_there_are() -> None:
    image = cluster(1, 2)
    image = applied(image, create(image, NewTopic("t", 2, 2)))
    result = decided(create_partitions(image, [NewPartitions("t", 5)], Random(1)))
    [topic] = applied(image, result).topics.values()
    assert len(topic.partitions) == 5
    assert topic.partitions[:2] == image.topics["t"].partitions
    assert {len(partition.replicas) for partition in topic.partitions} == {2}
    result = decided(create_partitions(image, [NewPartitions("t", 4, ((2, 1), (1, 2)))], Random(1)))
    [topic] = applied(image, result).topics.values()
    assert [partition.replicas for partition in topic.partitions[2:]] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (NewPartitions("u", 3), ErrorCode.unknown_topic_or_partition, ""),
        (NewPartitions("t", 2), ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (NewPartitions("t", 1), ErrorCode.invalid_partitions, "1 would not be an increase"),
        (NewPartitions("t", -1), ErrorCode.invalid_partitions, "-1 would not be an increase"),
        (NewPartitions("t", 20_000), ErrorCode.policy_violation, "large number"),
        (NewPartitions("t", 4, ((1,),)), ErrorCode.invalid_replica_assignment, "only 1 assignment(s)"),
        (NewPartitions("t", 3, ((1, 2),)), ErrorCode.invalid_replica_assignment, "not consistent"),
        (NewPartitions("t", 3, ((4,),)), ErrorCode.invalid_replica_assignment, "no such broker"),
    ],
)
def test_partitions_that_cannot_be_added(request_: NewPartitions, code: ErrorCode, words: str) -> None:
    image = cluster(1, 2)
    image = applied(image, create(image, NewTopic("t", 2, 1)))
    result = decided(create_partitions(image, [request_], Random(1)))
    found, message = error_of(result.response[0])
    assert (found, result.records) == (code, [])
    assert words in message


def test_topics_whose_number_of_partitions_says_what_is_where_do_not_grow() -> None:
    for name in INTERNAL_TOPICS:
        image = with_topics(name)
        result = decided(create_partitions(image, [NewPartitions(name, 5)], Random(1)))
        code, message = error_of(result.response[0])
        assert (code, result.records) == (ErrorCode.invalid_request, [])
        assert "offsets.topic.num.partitions" in message


def test_each_topic_of_a_request_is_on_its_own() -> None:
    image = with_topics("a", "b")
    requests = [NewPartitions("a", 2), NewPartitions("b", 1), NewPartitions("c", 2)]
    result = decided(create_partitions(image, requests, Random(1)))
    assert [outcome.error is None for outcome in result.response] == [True, False, False]
    assert len(result.records) == 1
    twice = decided(create_partitions(image, [NewPartitions("a", 2), NewPartitions("a", 3)], Random(1)))
    assert [error_of(outcome)[1] for outcome in twice.response] == ["Duplicate topic name."] * 2


def test_a_request_may_write_ten_thousand_records_and_no_more() -> None:
    image = with_topics("a", "b")
    enough = [NewPartitions("a", 5_001), NewPartitions("b", 5_001)]
    assert len(decided(create_partitions(image, enough, Random(1))).records) == 10_000
    result = decided(
        create_partitions(image, [NewPartitions("a", 5_001), NewPartitions("b", 5_002)], Random(1))
    )
    assert result.records == []
    assert {error_of(outcome)[0] for outcome in result.response} == {ErrorCode.policy_violation}
    # 10,000 partitions fit, but not the topic's own record with them.
    result = create(image, NewTopic("c", 10_000))
    assert error_of(result.response[0])[0] is ErrorCode.policy_violation
