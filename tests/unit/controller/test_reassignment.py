"""Reassignments: begun, changed, cancelled, and completed by the ISR."""

from __future__ import annotations

import pytest
from small_cluster import Cluster, directory, topic_id

from ottla.controller.alter_partition import InSync, IsrChange, alter_partitions
from ottla.controller.elections import TopicPartitions
from ottla.controller.heartbeats import fence_broker
from ottla.controller.reassignment import Reassignment, alter_reassignments, list_reassignments
from ottla.metadata.image import PartitionImage
from ottla.wire.errors import ErrorCode


def reassign(
    cluster: Cluster, *replicas: int, partition: int = 0, keep_factor: bool = False
) -> ErrorCode | None:
    return ask(cluster, Reassignment("t", partition, replicas), keep_factor=keep_factor)


def ask(cluster: Cluster, reassignment: Reassignment, *, keep_factor: bool = False) -> ErrorCode | None:
    [outcome] = cluster.run(
        alter_reassignments(cluster.image, cluster.config, [reassignment], may_change_factor=not keep_factor)
    )
    return outcome.error and outcome.error.code


def cancel(cluster: Cluster) -> ErrorCode | None:
    return ask(cluster, Reassignment("t", 0, None))


def in_sync(cluster: Cluster, *isr: int) -> ErrorCode | None:
    """The leader of t-0 says so."""
    state = cluster.partition()
    change = IsrChange(
        topic_id("t"), 0, state.leader_epoch, state.partition_epoch, tuple(InSync(member) for member in isr)
    )
    epoch = cluster.image.brokers[state.leader].epoch
    [outcome] = cluster.run(alter_partitions(cluster.image, cluster.config, state.leader, epoch, [change]))
    return outcome.error and outcome.error.code


def state(cluster: Cluster) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    partition: PartitionImage = cluster.partition()
    return partition.replicas, partition.isr, partition.adding_replicas, partition.removing_replicas


def small_cluster() -> Cluster:
    cluster = Cluster(1, 2, 3, 4, 5)
    cluster.topic("t", (1, 2), (2, 3))
    return cluster


def test_new_replicas_come_first_and_old_ones_go_when_all_new_ones_are_in_sync() -> None:
    cluster = small_cluster()
    assert reassign(cluster, 3, 4) is None
    assert state(cluster) == ((3, 4, 1, 2), (1, 2), (3, 4), (1, 2))
    assert cluster.partition().directories == tuple(directory(replica) for replica in (3, 4, 1, 2))
    assert cluster.partition().leader_epoch == 0
    assert in_sync(cluster, 1, 2, 3) is None
    assert state(cluster) == ((3, 4, 1, 2), (1, 2, 3), (3, 4), (1, 2))
    assert in_sync(cluster, 1, 2, 3, 4) is ErrorCode.new_leader_elected
    assert state(cluster) == ((3, 4), (3, 4), (), ())
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (3, 1)
    assert cluster.partition().directories == (directory(3), directory(4))


def test_another_order_of_the_same_replicas_is_there_at_once() -> None:
    cluster = small_cluster()
    assert reassign(cluster, 2, 1) is None
    assert state(cluster) == ((2, 1), (1, 2), (), ())
    assert cluster.partition().leader == 1


def test_a_replica_less_is_there_at_once_if_the_others_are_in_sync() -> None:
    cluster = small_cluster()
    assert reassign(cluster, 2) is None
    assert state(cluster) == ((2,), (2,), (), ())
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, 1)


def test_where_nothing_changes_nothing_is_written() -> None:
    cluster = small_cluster()
    before = cluster.image
    assert reassign(cluster, 1, 2) is None
    assert cluster.image is before


def test_one_that_is_changed_midway_waits_for_all_that_are_new() -> None:
    cluster = small_cluster()
    reassign(cluster, 3, 4)
    assert reassign(cluster, 3, 5) is None
    assert state(cluster) == ((3, 5, 1, 2, 4), (1, 2), (3, 5), (1, 2, 4))
    in_sync(cluster, 1, 2, 5)
    assert cluster.partition().is_reassigned
    in_sync(cluster, 1, 2, 5, 3)
    assert state(cluster) == ((3, 5), (5, 3), (), ())


def test_one_that_is_changed_to_fewer_completes() -> None:
    cluster = small_cluster()
    reassign(cluster, 3, 4)
    reassign(cluster, 3)
    assert state(cluster)[2:] == ((3,), (1, 2, 4))
    in_sync(cluster, 1, 2, 3)
    assert state(cluster) == ((3,), (3,), (), ())


def test_cancelling_goes_back_to_where_it_began() -> None:
    cluster = small_cluster()
    reassign(cluster, 3, 2)
    in_sync(cluster, 1, 2)
    assert cancel(cluster) is None
    assert sorted(cluster.partition().replicas) == [1, 2]
    assert state(cluster)[1:] == ((1, 2), (), ())
    assert cluster.partition().leader_epoch == 1
    assert cancel(cluster) is ErrorCode.no_reassignment_in_progress


@pytest.mark.parametrize("unclean", [False, True])
def test_cancelling_that_would_lose_records_needs_leave(unclean: bool) -> None:
    cluster = small_cluster()
    if unclean:
        cluster.set_config("t", "unclean.leader.election.enable", "true")
    reassign(cluster, 3, 4)
    in_sync(cluster, 1, 2, 3)
    for broker_id in (1, 2):
        epoch = cluster.image.brokers[broker_id].epoch
        cluster.run(fence_broker(cluster.image, cluster.config, broker_id, epoch))
    assert state(cluster)[1] == (3,)
    cluster.heartbeat(2)
    if not unclean:
        assert cancel(cluster) is ErrorCode.invalid_replica_assignment
        assert cluster.partition().is_reassigned
    else:
        assert cancel(cluster) is None
        assert (cluster.partition().replicas, cluster.partition().isr) == ((1, 2), (2,))
        assert cluster.partition().leader == 2


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ((), ErrorCode.invalid_replica_assignment),
        ((1, 1), ErrorCode.invalid_replica_assignment),
        ((1, 9), ErrorCode.invalid_replica_assignment),
    ],
)
def test_replicas_that_cannot_be_are_refused(replicas: tuple[int, ...], expected: ErrorCode) -> None:
    cluster = small_cluster()
    assert reassign(cluster, *replicas) is expected


def test_the_replication_factor_may_be_held_fast() -> None:
    cluster = small_cluster()
    assert reassign(cluster, 3, keep_factor=True) is ErrorCode.invalid_replication_factor
    assert reassign(cluster, 3, 4, keep_factor=True) is None
    assert reassign(cluster, 4, 5, keep_factor=True) is None


def test_what_is_not_there_is_not_reassigned() -> None:
    cluster = small_cluster()
    assert reassign(cluster, 1, partition=9) is ErrorCode.unknown_topic_or_partition
    assert ask(cluster, Reassignment("u", 0, (1,))) is ErrorCode.unknown_topic_or_partition


def test_a_partition_twice_in_a_request_is_reassigned_once() -> None:
    cluster = small_cluster()
    outcomes = cluster.run(
        alter_reassignments(
            cluster.image, cluster.config, [Reassignment("t", 0, (3, 4)), Reassignment("t", 0, (4, 5))]
        )
    )
    assert [outcome.error and outcome.error.code for outcome in outcomes] == [None, ErrorCode.invalid_request]
    assert state(cluster)[2] == (3, 4)


def test_those_under_way_are_listed() -> None:
    cluster = small_cluster()
    cluster.topic("u", (1, 2))
    reassign(cluster, 3, 4)

    def listed(*asked: TopicPartitions) -> list[tuple[str, int]]:
        found = cluster.run(list_reassignments(cluster.image, asked or None))
        return [(ongoing.topic, ongoing.partition) for ongoing in found]

    assert listed() == [("t", 0)]
    assert listed(
        TopicPartitions("u", (0,)), TopicPartitions("t", (0, 1, 9)), TopicPartitions("x", (0,))
    ) == [("t", 0)]
    assert listed(TopicPartitions("t", (1,))) == []
