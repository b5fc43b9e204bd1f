"""Leaders and replicas of a running cluster: moved, elected, and replaced when a broker dies or stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.cluster.steps import ask, create, partitions, produce, wait

from ottla.client.admin.replicas import elect_leaders, list_reassignments, reassign
from ottla.client.admin.topics import Partition
from ottla.controller.elections import ElectionType
from ottla.testing import BrokerCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster() as running:
        yield running


def test_replicas_move_and_the_preferred_one_leads(cluster: BrokerCluster) -> None:
    create(cluster, "moves", [1, 2])
    assert produce(cluster, "moves", 0, 500) == 500
    moved = Partition("moves", 0)
    assert ask(cluster, lambda client: reassign(client, {moved: [3, 2]})) == {}
    wait(lambda: partitions(cluster, "moves")[0] == (3, [3, 2], [2, 3]))
    assert ask(cluster, list_reassignments) == {}
    assert produce(cluster, "moves", 0, 500) == 500
    # Another order of the same: nothing moves until the preferred leader is asked for.
    assert ask(cluster, lambda client: reassign(client, {moved: [2, 3]})) == {}
    wait(lambda: partitions(cluster, "moves")[0] == (3, [2, 3], [2, 3]))
    elected = ask(cluster, lambda client: elect_leaders(client, ElectionType.PREFERRED, [moved]))
    assert elected == {moved: None}
    wait(lambda: partitions(cluster, "moves")[0] == (2, [2, 3], [2, 3]))


def test_a_leader_that_dies_is_replaced_and_comes_back_into_the_isr(cluster: BrokerCluster) -> None:
    create(cluster, "survives", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    assert produce(cluster, "survives", 1, 300) == 300
    cluster[2].kill9()
    wait(
        lambda: all(
            leader != 2 and isr == [1, 3] for leader, _, isr in partitions(cluster, "survives").values()
        )
    )
    assert produce(cluster, "survives", 1, 300) == 300
    cluster.start()
    wait(lambda: all(isr == [1, 2, 3] for _, _, isr in partitions(cluster, "survives").values()))


def test_a_broker_that_stops_hands_its_leaderships_over_first(cluster: BrokerCluster) -> None:
    create(cluster, "handed-over", [3, 1, 2], [3, 2, 1])
    assert produce(cluster, "handed-over", 0, 100) == 100
    assert cluster[3].stop() == 0
    # It waited for that, so there is nothing to wait for.
    assert [leader for leader, _, _ in partitions(cluster, "handed-over").values()] == [1, 2]
    assert produce(cluster, "handed-over", 0, 100) == 100
    cluster.start()
    wait(lambda: all(isr == [1, 2, 3] for _, _, isr in partitions(cluster, "handed-over").values()))
