"""Elections that are asked for, and those that are due from time to time."""

from __future__ import annotations

import pytest
from deciding import decided
from small_cluster import Cluster

from ottla.controller import elections
from ottla.controller.elections import (
    ElectionOutcome,
    ElectionType,
    TopicPartitions,
    balance_leaders,
    elect_leaders,
    elect_unclean_leaders,
)
from ottla.controller.heartbeats import fence_broker
from ottla.metadata.records import NO_LEADER
from ottla.wire.errors import ErrorCode, InvalidRequest


def without(cluster: Cluster, broker_id: int) -> None:
    epoch = cluster.image.brokers[broker_id].epoch
    cluster.run(fence_broker(cluster.image, cluster.config, broker_id, epoch))


def back_in_sync(cluster: Cluster, broker_id: int) -> None:
    """Unfenced, and in the ISR of all it replicates."""
    from ottla.metadata.records import PartitionChangeRecord

    cluster.heartbeat(broker_id)
    cluster.apply(
        PartitionChangeRecord(partition_id=index, topic_id=topic.id, isr=partition.replicas)
        for topic in cluster.image.topics_with_replicas_on(broker_id)
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas and broker_id not in partition.isr
    )


def elect(cluster: Cluster, kind: int, *asked: TopicPartitions) -> list[tuple[str, int, ErrorCode | None]]:
    outcomes: list[ElectionOutcome] = cluster.run(
        elect_leaders(cluster.image, cluster.config, kind, asked or None)
    )
    return [
        (outcome.topic, outcome.partition, outcome.error.code if outcome.error else None)
        for outcome in outcomes
    ]


def leaders(cluster: Cluster) -> list[int]:
    return [partition.leader for partition in cluster.image.topics["t"].partitions]


def test_the_preferred_leader_is_elected_where_it_is_in_sync() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", (1, 2), (2, 3), (1, 3))
    without(cluster, 1)
    cluster.heartbeat(1)
    asked = TopicPartitions("t", (0, 1, 2, 7))
    unknown = TopicPartitions("u", (0,))
    assert elect(cluster, ElectionType.PREFERRED, asked, unknown) == [
        ("t", 0, ErrorCode.preferred_leader_not_available),
        ("t", 1, ErrorCode.election_not_needed),
        ("t", 2, ErrorCode.preferred_leader_not_available),
        ("t", 7, ErrorCode.unknown_topic_or_partition),
        ("u", 0, ErrorCode.unknown_topic_or_partition),
    ]
    back_in_sync(cluster, 1)
    assert elect(cluster, ElectionType.PREFERRED, asked._replace(partitions=(0,))) == [("t", 0, None)]
    assert leaders(cluster) == [1, 2, 3]


def test_of_all_partitions_only_those_that_need_it_are_answered() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (2, 1))
    without(cluster, 1)
    back_in_sync(cluster, 1)
    assert elect(cluster, ElectionType.PREFERRED) == [("t", 0, None)]
    assert leaders(cluster) == [1, 2]


def test_unclean_elections_take_whoever_lives_when_asked_for() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), (2, 1))
    without(cluster, 2)
    without(cluster, 1)
    cluster.heartbeat(2)
    assert leaders(cluster) == [NO_LEADER, NO_LEADER]
    assert elect(cluster, ElectionType.UNCLEAN, TopicPartitions("t", (0, 1))) == [
        ("t", 0, None),
        ("t", 1, None),
    ]
    assert leaders(cluster) == [2, 2]
    assert cluster.partition().isr == (2,)
    assert elect(cluster, ElectionType.UNCLEAN, TopicPartitions("t", (0,))) == [
        ("t", 0, ErrorCode.election_not_needed)
    ]


def test_an_unclean_election_needs_somebody_alive() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1,))
    without(cluster, 1)
    assert elect(cluster, ElectionType.UNCLEAN, TopicPartitions("t", (0,))) == [
        ("t", 0, ErrorCode.eligible_leaders_not_available)
    ]


def test_a_partition_asked_for_twice_is_elected_once() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    without(cluster, 1)
    back_in_sync(cluster, 1)
    elect(cluster, ElectionType.PREFERRED, TopicPartitions("t", (0, 0)))
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (1, 2)


def test_an_unknown_type_of_election_is_refused() -> None:
    cluster = Cluster(1)
    with pytest.raises(InvalidRequest, match="election type 5"):
        elect(cluster, 5)


def test_leaders_are_balanced_a_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "ELECTIONS_MAX", 3)
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", *((1, 2),) * 5, (2, 1), (1, 3))
    without(cluster, 1)
    back_in_sync(cluster, 1)
    without(cluster, 3)
    assert cluster.run(balance_leaders(cluster.image, cluster.config))
    assert leaders(cluster).count(1) == 4  # and one that 1 took over from 3
    assert not cluster.run(balance_leaders(cluster.image, cluster.config))
    assert leaders(cluster) == [1, 1, 1, 1, 1, 2, 1]
    assert decided(balance_leaders(cluster.image, cluster.config)).records == []


def test_nobody_out_of_sync_leads_unless_the_topic_allows_it() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2))
    without(cluster, 2)
    without(cluster, 1)
    cluster.heartbeat(2)
    assert decided(elect_unclean_leaders(cluster.image, cluster.config)).records == []
    cluster.set_config("t", "unclean.leader.election.enable", "true")
    assert not cluster.run(elect_unclean_leaders(cluster.image, cluster.config))
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    cluster.heartbeat(1)
    assert cluster.partition().leader == 2


def test_where_the_topic_allows_it_fencing_elects_who_is_left() -> None:
    cluster = Cluster(1, 2)
    cluster.topic("t", (1, 2), unclean_leader_election_enable="true")
    without(cluster, 2)
    cluster.heartbeat(2)
    without(cluster, 1)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_the_brokers_default_allows_it_for_topics_that_say_nothing() -> None:
    cluster = Cluster(1, 2, settings={"unclean.leader.election.enable": "true"})
    cluster.topic("t", (1, 2))
    cluster.topic("strict", (1, 2), unclean_leader_election_enable="false")
    without(cluster, 2)
    cluster.heartbeat(2)
    without(cluster, 1)
    assert (cluster.partition("t").leader, cluster.partition("strict").leader) == (2, NO_LEADER)
