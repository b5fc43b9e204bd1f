"""Brokers that join a cluster of several: who is let in, with which epoch, what their last life leaves."""

from __future__ import annotations

from uuid import UUID

import pytest
from small_cluster import SESSION_MS, Cluster, directory, registration

from ottla.controller.registration import unregister_broker
from ottla.metadata.cluster_records import UnregisterBrokerRecord
from ottla.metadata.records import NO_LEADER, FeatureLevelRecord, RegisterBrokerRecord, SupportedFeature
from ottla.wire.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRegistration,
    KafkaError,
    UnsupportedVersion,
)


def test_a_broker_joins_fenced_with_the_offset_of_its_record_as_epoch() -> None:
    cluster = Cluster(1)
    epoch = cluster.register(registration(2, rack="r"))
    broker = cluster.image.brokers[2]
    assert (broker.epoch, epoch, broker.rack) == (cluster.image.offset, cluster.image.offset, "r")
    assert broker.fenced and not broker.in_controlled_shutdown
    assert broker.directories == (directory(2),)
    assert broker.features == registration(2).features


def test_asking_again_gives_the_same_epoch_and_writes_nothing() -> None:
    cluster = Cluster(1, 2)
    before = cluster.image
    assert cluster.register(registration(2)) == before.brokers[2].epoch
    assert cluster.image is before


def test_a_broker_may_amend_its_registration_in_the_same_life() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    assert cluster.register(registration(1, directories=2)) == epoch
    broker = cluster.image.brokers[1]
    assert (broker.directories, broker.fenced) == ((directory(1), directory(1, 1)), False)


def test_another_broker_of_the_same_id_is_refused_until_the_session_is_over() -> None:
    cluster = Cluster(1)
    cluster.now_ms = SESSION_MS
    with pytest.raises(DuplicateBrokerRegistration, match="id 1"):
        cluster.register(registration(1, life=1))
    cluster.now_ms = SESSION_MS + 1
    old = cluster.image.brokers[1].epoch
    assert cluster.register(registration(1, life=1)) > old
    assert cluster.image.brokers[1].fenced


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"directories": ()}, InvalidRegistration, "no log directories"),
        ({"directories": (UUID(int=1),)}, InvalidRegistration, "reserved"),
        ({"directories": (directory(2), directory(2))}, InvalidRegistration, "more than once"),
        ({"directories": (directory(1),)}, InvalidRegistration, "Broker 1 is already registered"),
        ({"features": ()}, InvalidRegistration, "metadata.version"),
        (
            {"features": (SupportedFeature(
                name="metadata.version", min_supported_version=28, max_supported_version=30),)},
            UnsupportedVersion,
            "finalized version 27 of metadata.version. The broker wants a version between 28 and 30",
        ),
    ],
)  # fmt: skip
def test_a_registration_that_does_not_fit_is_refused(
    change: dict[str, object], error: type[KafkaError], text: str
) -> None:
    cluster = Cluster(1)
    with pytest.raises(error, match=text):
        cluster.register(registration(2)._replace(**change))  # type: ignore[arg-type]


def test_a_broker_must_support_what_the_cluster_has_turned_on() -> None:
    cluster = Cluster(1)
    cluster.apply([FeatureLevelRecord(name="share.version", feature_level=2)])
    with pytest.raises(UnsupportedVersion, match=r"version 2 of share\.version"):
        cluster.register(registration(2))


def test_a_broker_that_comes_back_in_a_new_life_is_in_no_isr_that_others_are_in() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (2, 1), (1,))
    cluster.now_ms = SESSION_MS + 1
    cluster.register(registration(1, life=1))
    partitions = cluster.image.topics["t"].partitions
    assert [partition.isr for partition in partitions] == [(2,), (2,), (1,)]
    assert [partition.leader for partition in partitions] == [2, 2, NO_LEADER]
    assert [partition.leader_epoch for partition in partitions] == [1, 0, 1]
    cluster.heartbeat(1)
    assert [partition.leader for partition in cluster.image.topics["t"].partitions] == [2, 2, 1]


def test_its_registration_is_the_last_record_and_names_its_own_offset() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (2, 1))
    cluster.now_ms = SESSION_MS + 1
    epoch = cluster.register(registration(1, life=1))
    assert epoch == cluster.image.offset == cluster.image.brokers[1].epoch


def test_a_broker_that_is_heard_of_keeps_its_id() -> None:
    cluster = Cluster(1, 2)
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(registration(1, life=1))


def test_who_stopped_in_order_need_not_wait_for_its_former_life() -> None:
    cluster = Cluster(1, 2)
    last = cluster.image.brokers[1].epoch
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(registration(1, life=1, previous_epoch=last - 1))
    assert cluster.register(registration(1, life=1, previous_epoch=last)) > last


def test_after_a_stop_of_the_whole_cluster_nobody_waits_for_former_lives() -> None:
    cluster = Cluster(1, 2)
    # Another controller, which has heard of nobody yet.
    cluster.sessions.begin(cluster.image, cluster.now_ms)
    elsewhere = registration(2)._replace(
        broker_id=1, incarnation_id=UUID(int=7), directories=(UUID(int=999),)
    )
    with pytest.raises(DuplicateBrokerRegistration):
        # It does not hold the directories that the broker has.
        cluster.register(elsewhere)
    assert cluster.register(registration(1, life=1)) == cluster.image.brokers[1].epoch
    cluster.heartbeat(2)
    with pytest.raises(DuplicateBrokerRegistration):
        cluster.register(registration(2, life=1))


@pytest.mark.parametrize(("in_order", "eligible"), [(True, (1,)), (False, ())])
def test_who_stopped_in_order_stays_eligible(in_order: bool, eligible: tuple[int, ...]) -> None:
    cluster = Cluster(1, 2, eligible=True)
    cluster.topic("t", (1, 2), min_insync_replicas="2")
    cluster.heartbeat(1, fence=True, shutdown=True)
    assert cluster.partition().eligible_leader_replicas == (1,)
    cluster.now_ms = SESSION_MS + 1
    last = cluster.image.brokers[1].epoch
    cluster.register(registration(1, life=1, previous_epoch=last if in_order else -1))
    assert cluster.partition().eligible_leader_replicas == eligible


def test_a_broker_that_is_unregistered_leaves_nothing_behind() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2, 3), (2, 3, 1), (2, 3))
    before = cluster.image
    cluster.run(unregister_broker(cluster.image, cluster.config, 1))
    assert 1 not in cluster.image.brokers
    partitions = cluster.image.topics["t"].partitions
    assert [partition.isr for partition in partitions] == [(2, 3), (2, 3), (2, 3)]
    assert [partition.leader for partition in partitions] == [2, 2, 2]
    assert partitions[2] is before.topics["t"].partitions[2]
    with pytest.raises(BrokerIdNotRegistered, match="Broker ID 1"):
        cluster.run(unregister_broker(cluster.image, cluster.config, 1))


def test_records_of_registration_and_departure_are_kafkas() -> None:
    cluster = Cluster(1)
    epoch = cluster.image.brokers[1].epoch
    records = cluster.image.apply_all(
        [UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)], cluster.image.offset + 1, 1
    )
    assert records.brokers == {}
    assert RegisterBrokerRecord.API_KEY == 0
