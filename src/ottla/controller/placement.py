"""Where the replicas of new partitions go: striped over the brokers, leaders evenly among those alive.

Each partition starts one broker further than the one before, so its leader and its followers move on
together. The first broker is drawn at random, or every small topic would be led by the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from ottla.metadata.image import BrokerImage
from ottla.wire.errors import InvalidReplicationFactor


def place(
    brokers: Mapping[int, BrokerImage], partition_count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """Replicas of each partition, the preferred leader first. Fenced brokers come last and never lead."""
    alive = sorted(broker.id for broker in brokers.values() if broker.active)
    fenced = sorted(broker.id for broker in brokers.values() if not broker.active)
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor "
            f"of {replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered."
        )
    if not alive:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): "
            "All brokers are currently fenced."
        )
    start = random.randrange(len(alive))
    placements = []
    for partition in range(partition_count):
        turn = (start + partition) % len(alive)
        ordered = alive[turn:] + alive[:turn] + fenced
        placements.append(tuple(ordered[:replication_factor]))
    return placements
