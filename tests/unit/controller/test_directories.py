"""AssignReplicasToDirs: where replicas are, and what it means when that directory has failed."""

from __future__ import annotations

from uuid import UUID

import pytest
from small_cluster import Cluster, directory, registration, topic_id

from ottla.controller.directories import DirectoryAssignment, assign_directories
from ottla.controller.elections import ElectionType, TopicPartitions, elect_leaders
from ottla.metadata.records import NO_LEADER
from ottla.wire.errors import ErrorCode, StaleBrokerEpoch


def small_cluster() -> Cluster:
    cluster = Cluster(2)
    cluster.start(1, directories=3)
    cluster.topic("t", (1, 2), (2,), (1,))
    return cluster


def assign(cluster: Cluster, *assignments: DirectoryAssignment) -> list[ErrorCode | None]:
    epoch = cluster.image.brokers[1].epoch
    outcomes = cluster.run(assign_directories(cluster.image, cluster.config, 1, epoch, assignments))
    return [outcome.error and outcome.error.code for outcome in outcomes]


def to(number: int, partition: int, topic: UUID | None = None) -> DirectoryAssignment:
    return DirectoryAssignment(directory(1, number), topic or topic_id("t"), partition)


def test_the_directory_of_a_replica_is_known_and_nothing_else_changes() -> None:
    cluster = small_cluster()
    assert assign(cluster, to(1, 0)) == [None]
    partition = cluster.partition()
    assert partition.directories == (directory(1, 1), directory(2))
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 1)
    before = cluster.image
    assert assign(cluster, to(1, 0)) == [None]
    assert cluster.image is before


def test_what_does_not_fit_is_answered_for_itself() -> None:
    cluster = small_cluster()
    assert assign(cluster, to(1, 0), to(2, 0), to(1, 1), to(1, 9), to(1, 0, UUID(int=77))) == [
        None,
        ErrorCode.invalid_request,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    ]
    with pytest.raises(StaleBrokerEpoch):
        cluster.run(assign_directories(cluster.image, cluster.config, 1, 0, [to(1, 0)]))


def test_a_replica_found_in_a_failed_directory_loses_its_leadership() -> None:
    cluster = small_cluster()
    cluster.heartbeat(1, offline=(directory(1, 2),))
    assert assign(cluster, to(2, 0), to(2, 2)) == [None, None]
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    assert (cluster.partition(index=2).leader, cluster.partition(index=2).isr) == (NO_LEADER, (1,))


def test_a_replica_that_moves_to_a_good_directory_may_lead_again() -> None:
    cluster = small_cluster()
    cluster.heartbeat(1, offline=(directory(1),))
    assert cluster.partition(index=2).leader == NO_LEADER
    assert assign(cluster, to(1, 2)) == [None]
    assert cluster.partition(index=2).leader == 1


def test_a_replica_whose_directory_is_gone_is_not_eligible_once_another_has_it() -> None:
    cluster = Cluster(1, 2, 3, eligible=True)
    cluster.topic("t", (1, 2, 3), min_insync_replicas="2")
    epoch = cluster.image.brokers[1].epoch
    for broker_id in (3, 1):
        cluster.heartbeat(broker_id, fence=True)
    assert (cluster.partition().leader, cluster.partition().eligible_leader_replicas) == (2, (1,))
    back = registration(1, life=1, previous_epoch=epoch)
    cluster.register(back._replace(directories=(directory(1, 1),)))
    cluster.heartbeat(1)
    assert cluster.partition().eligible_leader_replicas == (1,)
    assert assign(cluster, to(1, 0)) == [None]
    assert cluster.partition().eligible_leader_replicas == ()
    cluster.heartbeat(2, fence=True)
    assert cluster.partition().leader == NO_LEADER


def test_who_lives_without_the_directory_of_its_log_is_not_said_to_be_dead() -> None:
    cluster = small_cluster()
    cluster.heartbeat(1, offline=(directory(1),))
    (outcome,) = cluster.run(
        elect_leaders(cluster.image, cluster.config, ElectionType.UNCLEAN, [TopicPartitions("t", (2,))])
    )
    assert "broker 1 is alive, but without the data directory" in str(outcome.error)
    cluster.heartbeat(1, fence=True)
    (outcome,) = cluster.run(
        elect_leaders(cluster.image, cluster.config, ElectionType.UNCLEAN, [TopicPartitions("t", (2,))])
    )
    assert str(outcome.error) == "None of the replicas of t-2 is alive"
