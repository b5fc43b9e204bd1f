"""New partitions from a placement: the broker's choice, or one the client asked for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ottla.controller.placement import place
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.wire.errors import InvalidReplicaAssignment


def placed_partitions(
    image: MetadataImage, count: int, replication_factor: int, random: Random
) -> list[PartitionImage]:
    return [
        _new_partition(image, replicas, _active(image, replicas))
        for replicas in place(image.brokers, count, replication_factor, random)
    ]


def assigned_partitions(
    image: MetadataImage,
    assignments: Sequence[tuple[int, ...]],
    *,
    first_index: int = 0,
    replication_factor: int | None = None,
) -> list[PartitionImage]:
    """Without a replication factor, the first assignment sets it."""
    partitions = []
    for index, replicas in enumerate(assignments, first_index):
        check_assignment(image, replicas, replication_factor)
        replication_factor = len(replicas)
        isr = _active(image, replicas)
        if not isr:
            raise InvalidReplicaAssignment(
                "All brokers specified in the manual partition assignment for partition "
                f"{index} are fenced or in controlled shutdown."
            )
        partitions.append(_new_partition(image, replicas, isr))
    return partitions


def check_assignment(
    image: MetadataImage, replicas: tuple[int, ...], replication_factor: int | None = None
) -> None:
    """Raises InvalidReplicaAssignment."""
    if not replicas:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker_id}, "
                "but no such broker is registered."
            )
        if broker_id == previous:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this "
            f"is not consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def _active(image: MetadataImage, replicas: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in replicas if image.brokers[broker_id].active)


def _new_partition(image: MetadataImage, replicas: tuple[int, ...], isr: tuple[int, ...]) -> PartitionImage:
    return PartitionImage(
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(image.brokers[broker_id].directory_for_new for broker_id in replicas),
    )
