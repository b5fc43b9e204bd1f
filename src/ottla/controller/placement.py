"""Where the replicas of new partitions go: striped over the racks, and over the brokers of each rack.

    racks A, B, C with two brokers each     partition 0: A0 B0 C0
                                            partition 1: B1 C1 A1
                                            partition 2: C0 A0 B0
                                            partition 3: A1 B1 C1

All brokers that are alive lead in turns, which go from rack to rack. Followers come from the other racks
first, from each the broker with the fewest replicas yet; where there are more replicas than racks, it goes
round again. So leaders and followers spread, and no two replicas share a rack unless they must. The order is
drawn at random, or every small topic would be led by the same broker; and drawn again after each round of all
brokers, or the same ones would always follow each other. Without racks, all brokers are in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from random import Random

from ottla.metadata.image import BrokerImage
from ottla.wire.errors import InvalidReplicationFactor


class _Rack:
    def __init__(self, brokers: list[BrokerImage]) -> None:
        self.alive = sorted(broker.id for broker in brokers if not broker.fenced)
        self.fenced = sorted(broker.id for broker in brokers if broker.fenced)

    def shuffle(self, random: Random) -> None:
        random.shuffle(self.alive)
        random.shuffle(self.fenced)


def place(
    brokers: Mapping[int, BrokerImage], partition_count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Replicas of each partition, the preferred leader first. A fenced broker never is that.

    Brokers that are shutting down get nothing.
    """
    usable = [broker for broker in brokers.values() if not broker.in_controlled_shutdown]
    if replication_factor > len(usable):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor "
            f"of {replication_factor} cannot be reached because only {len(usable)} broker(s) are registered."
        )
    alive_count = sum(not broker.fenced for broker in usable)
    if alive_count == 0:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): "
            "All brokers are currently fenced."
        )
    first = random.randrange(alive_count)
    if len(usable) == 1:
        return [(usable[0].id,)] * partition_count
    by_rack: dict[str, list[BrokerImage]] = {}
    for broker in usable:
        by_rack.setdefault(broker.rack or "", []).append(broker)
    racks = [_Rack(members) for _, members in sorted(by_rack.items())]
    given: Counter[int] = Counter()
    placements = []
    for partition in range(partition_count):
        if partition % alive_count == 0:
            random.shuffle(racks)
            for rack in racks:
                rack.shuffle(random)
            leaders = [*_leaders(racks)]
        turn = first + partition
        leader, leading = leaders[turn % alive_count]
        first_rack = turn % len(racks)
        followers = _followers([*racks[first_rack:], *racks[:first_rack]], leading, leader, given)
        replicas = (leader, *islice(followers, replication_factor - 1))
        given.update(replicas)
        placements.append(replicas)
    return placements


def _leaders(racks: list[_Rack]) -> Iterator[tuple[int, _Rack]]:
    """All that are alive, in an order that goes from rack to rack."""
    for one_of_each in zip_longest(*(rack.alive for rack in racks)):
        for rack, broker_id in zip(racks, one_of_each, strict=True):
            if broker_id is not None:
                yield broker_id, rack


def _followers(racks: list[_Rack], leading: _Rack, leader: int, given: Mapping[int, int]) -> Iterator[int]:
    """One of each rack and again, `leading` last. `given` is how many replicas each broker has got so far."""

    def in_order(rack: _Rack) -> list[int]:
        ordered = [*sorted(rack.alive, key=given.__getitem__), *sorted(rack.fenced, key=given.__getitem__)]
        return [broker_id for broker_id in ordered if broker_id != leader]

    others = [rack for rack in racks if rack is not leading]
    rounds = zip_longest(*(in_order(rack) for rack in others))
    yield from _present(next(rounds, ()))
    # From the second round on, the leader's rack takes part.
    for one_of_each in zip_longest(in_order(leading), rounds):
        from_leading, from_others = one_of_each
        yield from _present([*(from_others or ()), from_leading])


def _present(broker_ids: Iterable[int | None]) -> Iterator[int]:
    return (broker_id for broker_id in broker_ids if broker_id is not None)
