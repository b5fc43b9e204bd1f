"""Placement: everybody leads and follows as often, racks are kept apart, the fenced come last."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_cluster import Cluster

from ottla.controller.placement import place
from ottla.metadata.image import BrokerImage
from ottla.wire.errors import InvalidReplicationFactor

A_BROKER = Cluster(1).image.brokers[1]


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return replace(A_BROKER, id=broker_id, rack=rack, fenced=fenced)


def brokers(*members: BrokerImage) -> dict[int, BrokerImage]:
    return {member.id: member for member in members}


RACKS = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
).filter(lambda members: not all(fenced for _, fenced in members))


@given(RACKS, st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
def test_placements_are_sound(
    members: list[tuple[str | None, bool]], count: int, factor: int, seed: int
) -> None:
    cluster = brokers(*(broker(index, rack, fenced=fenced) for index, (rack, fenced) in enumerate(members)))
    factor = min(factor, len(cluster))
    placements = place(cluster, count, factor, Random(seed))
    assert len(placements) == count
    racks = {member.rack for member in cluster.values()}
    for replicas in placements:
        assert len({*replicas}) == len(replicas) == factor
        assert not cluster[replicas[0]].fenced
        per_rack = Counter(cluster[replica].rack for replica in replicas)
        assert len(per_rack) == min(factor, len(racks)), "as many racks as there are replicas"
    leading = Counter(replicas[0] for replicas in placements)
    alive = [member.id for member in cluster.values() if not member.fenced]
    assert max(leading.values()) - min(leading[broker_id] for broker_id in alive) <= 1


@pytest.mark.parametrize(
    "racks", [[None] * 6, ["a", "a", "b", "b", "c", "c"], ["a", "b", "a", "b", "a", "b"]]
)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_replicas_are_spread_over_equal_brokers(racks: list[str | None], factor: int) -> None:
    cluster = brokers(*(broker(index, rack) for index, rack in enumerate(racks)))
    for seed in range(20):
        placements = place(cluster, 60, factor, Random(seed))
        hosting = Counter(replica for replicas in placements for replica in replicas)
        assert all(abs(hosting[index] - 10 * factor) <= 2 for index in cluster), hosting


def test_followers_of_a_leader_differ() -> None:
    cluster = brokers(*(broker(index) for index in range(6)))
    placements = place(cluster, 60, 3, Random(1))
    assert len({frozenset(replicas) for replicas in placements}) > 10


def test_fenced_brokers_only_follow_and_only_where_nobody_else_is_left() -> None:
    cluster = brokers(broker(1), broker(2), broker(3, fenced=True))
    assert all(3 not in replicas for replicas in place(cluster, 10, 2, Random(1)))
    assert all(replicas[2] == 3 for replicas in place(cluster, 10, 3, Random(1)))


def test_brokers_that_shut_down_get_nothing() -> None:
    cluster = brokers(broker(1), replace(broker(2), in_controlled_shutdown=True))
    assert place(cluster, 2, 1, Random(1)) == [(1,), (1,)]
    with pytest.raises(InvalidReplicationFactor, match=r"only 1 broker\(s\)"):
        place(cluster, 1, 2, Random(1))


def test_where_all_are_fenced_nothing_is_placed() -> None:
    with pytest.raises(InvalidReplicationFactor, match="All brokers are currently fenced"):
        place(brokers(broker(1, fenced=True)), 1, 1, Random(1))


def test_one_broker_gets_everything() -> None:
    assert place(brokers(broker(7)), 3, 1, Random(1)) == [(7,)] * 3
