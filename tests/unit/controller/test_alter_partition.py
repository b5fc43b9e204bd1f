"""AlterPartition: what the leader of a partition may say about who is in sync."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from small_cluster import Cluster, registration, topic_id

from ottla.controller.alter_partition import InSync, IsrChange, IsrOutcome, alter_partitions
from ottla.controller.partition_change import RECOVERING
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import PartitionChangeRecord
from ottla.wire.errors import ErrorCode, KafkaError, StaleBrokerEpoch


def change(cluster: Cluster, *isr: int | InSync, partition: int = 0) -> IsrChange:
    """As the partition's leader would send it."""
    state = cluster.partition(index=partition)
    members = tuple(
        InSync(member, cluster.image.brokers[member].epoch) if isinstance(member, int) else member
        for member in isr
    )
    return IsrChange(topic_id("t"), partition, state.leader_epoch, state.partition_epoch, members)


def alter(cluster: Cluster, *changes: IsrChange, broker_id: int = 1) -> list[IsrOutcome]:
    epoch = cluster.image.brokers[broker_id].epoch
    return cluster.run(alter_partitions(cluster.image, cluster.config, broker_id, epoch, changes))


def small_cluster() -> Cluster:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2, 3), (1, 2))
    return cluster


def code(outcome: IsrOutcome) -> ErrorCode:
    assert isinstance(outcome.error, KafkaError)
    return outcome.error.code


def test_the_isr_shrinks_and_grows_in_the_same_leader_epoch() -> None:
    cluster = small_cluster()
    [outcome] = alter(cluster, change(cluster, 1, 2))
    assert outcome.error is None
    assert outcome.state == cluster.partition()
    state = cluster.partition()
    assert (state.isr, state.leader, state.leader_epoch, state.partition_epoch) == ((1, 2), 1, 0, 1)
    alter(cluster, change(cluster, 1, 2, 3))
    state = cluster.partition()
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1, 2, 3), 0, 2)


def test_what_is_so_already_is_answered_and_not_written() -> None:
    cluster = small_cluster()
    before = cluster.image
    [outcome] = alter(cluster, change(cluster, 1, 2, 3))
    assert outcome.state == cluster.partition()
    assert cluster.image is before


def test_each_partition_is_answered_for_itself() -> None:
    cluster = small_cluster()
    stale = change(cluster, 1, partition=1)._replace(partition_epoch=-1)
    first, second = alter(cluster, change(cluster, 1), stale)
    assert (first.error, code(second)) == (None, ErrorCode.invalid_update_version)


def test_a_partition_twice_in_a_request_is_changed_once() -> None:
    cluster = small_cluster()
    first, second = alter(cluster, change(cluster, 1), change(cluster, 1, 2))
    assert (first.error, code(second)) == (None, ErrorCode.invalid_request)
    assert cluster.partition().isr == (1,)


BAD: dict[str, tuple[Callable[[IsrChange], IsrChange], ErrorCode]] = {
    "unknown topic": (lambda c: c._replace(topic_id=UUID(int=77)), ErrorCode.unknown_topic_id),
    "unknown partition": (lambda c: c._replace(partition=9), ErrorCode.unknown_topic_or_partition),
    "negative partition": (lambda c: c._replace(partition=-1), ErrorCode.unknown_topic_or_partition),
    "later leader epoch": (lambda c: c._replace(leader_epoch=1), ErrorCode.not_controller),
    "later partition epoch": (lambda c: c._replace(partition_epoch=1), ErrorCode.not_controller),
    "old leader epoch": (lambda c: c._replace(leader_epoch=-1), ErrorCode.fenced_leader_epoch),
    "old partition epoch": (lambda c: c._replace(partition_epoch=-1), ErrorCode.invalid_update_version),
    "no replica": (lambda c: c._replace(isr=(InSync(1), InSync(4))), ErrorCode.invalid_request),
    "one twice": (lambda c: c._replace(isr=(InSync(1), InSync(1))), ErrorCode.invalid_request),
    "without the leader": (lambda c: c._replace(isr=(InSync(2),)), ErrorCode.invalid_request),
    "empty": (lambda c: c._replace(isr=()), ErrorCode.invalid_request),
    "recovering with others": (lambda c: c._replace(recovery_state=RECOVERING), ErrorCode.invalid_request),
    "recovering again": (
        lambda c: c._replace(recovery_state=RECOVERING, isr=(InSync(1),)),
        ErrorCode.invalid_request,
    ),
    "unknown state": (lambda c: c._replace(recovery_state=7), ErrorCode.invalid_request),
    "another life of a follower": (
        lambda c: c._replace(isr=(InSync(1), InSync(2, 0))),
        ErrorCode.ineligible_replica,
    ),
}


@pytest.mark.parametrize(("spoil", "expected"), BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_refused(spoil: Callable[[IsrChange], IsrChange], expected: ErrorCode) -> None:
    cluster = small_cluster()
    before = cluster.image
    [outcome] = alter(cluster, spoil(change(cluster, 1, 2)))
    assert code(outcome) == expected
    assert cluster.image is before


def test_only_the_leader_is_listened_to() -> None:
    cluster = small_cluster()
    [outcome] = alter(cluster, change(cluster, 1, 2), broker_id=2)
    assert code(outcome) == ErrorCode.invalid_request


def test_a_leader_of_a_former_life_is_not_listened_to() -> None:
    cluster = small_cluster()
    with pytest.raises(StaleBrokerEpoch):
        cluster.run(alter_partitions(cluster.image, cluster.config, 1, 0, [change(cluster, 1)]))


def unregistered(cluster: Cluster) -> None:
    del cluster.image.brokers[2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda cluster: cluster.heartbeat(2, fence=True),
        lambda cluster: cluster.register(registration(2, life=1)),
        unregistered,
    ],
    ids=["fenced", "registered anew", "not registered"],
)
def test_who_is_not_fully_there_does_not_join_the_isr(spoil: Callable[[Cluster], object]) -> None:
    cluster = small_cluster()
    alter(cluster, change(cluster, 1))
    asked = change(cluster, 1, InSync(2, cluster.image.brokers[2].epoch))
    cluster.sessions.forget(2)
    spoil(cluster)
    [outcome] = alter(cluster, asked)
    assert code(outcome) == ErrorCode.ineligible_replica


def test_who_is_shutting_down_does_not_join_the_isr() -> None:
    cluster = small_cluster()
    alter(cluster, change(cluster, 1))
    cluster.topic("led-by-2", (2, 3))
    cluster.heartbeat(2, shutdown=True)
    [outcome] = alter(cluster, change(cluster, 1, 2))
    assert code(outcome) == ErrorCode.ineligible_replica


def test_a_leader_that_a_reassignment_leaves_out_is_told_to_look_again() -> None:
    cluster = small_cluster()
    cluster.apply(
        [
            PartitionChangeRecord(
                partition_id=1,
                topic_id=topic_id("t"),
                replicas=(3, 1, 2),
                isr=(1, 2),
                removing_replicas=(1, 2),
                adding_replicas=(3,),
            )
        ]
    )
    [outcome] = alter(cluster, change(cluster, 1, 2, 3, partition=1))
    assert code(outcome) == ErrorCode.new_leader_elected
    state = cluster.partition(index=1)
    expected = PartitionImage(
        replicas=(3,),
        isr=(3,),
        leader=3,
        leader_epoch=1,
        partition_epoch=2,
        directories=state.directories,
    )
    assert state == replace(expected, directories=state.directories)
    assert len(state.directories) == 1
