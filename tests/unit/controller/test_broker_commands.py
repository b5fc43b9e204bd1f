"""Registration, the elections it brings, and blocks of producer ids."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.controller.brokers import BrokerRegistration, register_broker
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    NO_LEADER,
    Endpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.wire.errors import StaleBrokerEpoch

TOPIC = UUID(int=300)
ENDPOINT = Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)


def registration(*, clean_shutdown: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=1,
        incarnation_id=UUID(int=900),
        endpoints=(ENDPOINT,),
        directories=(UUID(int=200),),
        rack="r",
        clean_shutdown=clean_shutdown,
    )


def registered() -> MetadataImage:
    result = register_broker(MetadataImage(), registration(), next_offset=5)
    return MetadataImage().apply_all(result.records, 5, 1)


def with_partitions(*leader_and_isr: tuple[int, tuple[int, ...]]) -> MetadataImage:
    partitions = [
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC,
            replicas=(1, 2),
            isr=isr,
            leader=leader,
            leader_epoch=4,
            partition_epoch=0,
            directories=(None, None),
        )
        for index, (leader, isr) in enumerate(leader_and_isr)
    ]
    return registered().apply_all([TopicRecord(name="t", topic_id=TOPIC), *partitions], 10, 1)


def test_a_broker_is_registered_with_the_offset_of_its_record_as_epoch() -> None:
    result = register_broker(MetadataImage(), registration(), next_offset=5)
    [record] = result.records
    assert isinstance(record, RegisterBrokerRecord)
    assert (result.response, record.broker_epoch) == (5, 5)
    broker = registered().brokers[1]
    assert broker.active
    assert (broker.endpoints, broker.directories, broker.rack) == ((ENDPOINT,), (UUID(int=200),), "r")
    assert [feature.name for feature in broker.features] == [
        "metadata.version",
        "group.version",
        "transaction.version",
        "share.version",
        "eligible.leader.replicas.version",
        "kraft.version",
        "streams.version",
    ]


def test_partitions_without_a_leader_get_one_from_their_isr() -> None:
    image = with_partitions((NO_LEADER, (1,)), (NO_LEADER, (2,)), (2, (1, 2)), (1, (1,)))
    result = register_broker(image, registration(clean_shutdown=True), next_offset=11)
    assert result.records[1:] == [PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1)]


def test_an_eligible_replica_leads_where_the_isr_is_empty() -> None:
    image = with_partitions((NO_LEADER, ()), (NO_LEADER, ()))
    eligible = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC, eligible_leader_replicas=(2, 1), last_known_elr=(1,)
    )
    image = image.apply_all([eligible], 11, 1)
    result = register_broker(image, registration(clean_shutdown=True), next_offset=12)
    elected, leaderless = image.apply_all(result.records, 13, 1).topics["t"].partitions
    assert (elected.leader, elected.isr, elected.leader_epoch) == (1, (1,), 5)
    assert (elected.eligible_leader_replicas, elected.last_known_elr) == ((2,), ())
    assert leaderless.leader == NO_LEADER


def test_after_a_crash_all_it_led_is_led_in_a_new_epoch() -> None:
    image = with_partitions((NO_LEADER, (1,)), (2, (1, 2)), (1, (1,)))
    result = register_broker(image, registration(clean_shutdown=False), next_offset=11)
    after = image.apply_all(result.records, 20, 1).topics["t"].partitions
    assert [(partition.leader, partition.leader_epoch) for partition in after] == [(1, 5), (2, 4), (1, 5)]


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    image = registered()
    first = allocate_producer_ids(image, 1, 5)
    assert first.response == (0, 1000)
    image = image.apply_all(first.records, 6, 1)
    assert allocate_producer_ids(image, 1, 5).response == (1000, 1000)


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 4), (2, 5)])
def test_a_stale_broker_gets_no_ids(broker_id: int, epoch: int) -> None:
    with pytest.raises(StaleBrokerEpoch):
        allocate_producer_ids(registered(), broker_id, epoch)
