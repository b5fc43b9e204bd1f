"""Brokers joining the cluster: their registration, its epoch, and the partitions they lead from then on."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ottla.controller.command import Result
from ottla.metadata.features import supported_features
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import (
    NO_LEADER,
    Endpoint,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    SupportedFeature,
)
from ottla.wire.errors import StaleBrokerEpoch


class BrokerRegistration(NamedTuple):
    broker_id: int
    incarnation_id: UUID
    """Drawn anew each time the process starts."""
    endpoints: tuple[Endpoint, ...]
    directories: tuple[UUID, ...]
    rack: str | None = None
    clean_shutdown: bool = False
    """The logs end where they did when the broker last stopped."""
    features: tuple[SupportedFeature, ...] = supported_features()
    previous_epoch: int = -1
    """Of the broker's last registration, where it stopped in order; -1 where it did not, or does not know."""
    beside_controller: bool = True
    """In the process of the active controller, and not asking over the network."""


def register_broker(image: MetadataImage, registration: BrokerRegistration, next_offset: int) -> Result[int]:
    """The response is the broker's epoch: the offset of the record that registers it.

    A broker in the same process as the controller has all metadata when it registers, so it is never fenced.
    """
    epoch = next_offset
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=registration.broker_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            end_points=registration.endpoints,
            features=registration.features,
            rack=registration.rack,
            fenced=False,
            log_dirs=registration.directories,
        )
    ]
    records += _elections(image, registration)
    return Result(records, epoch)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> None:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise StaleBrokerEpoch(f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise StaleBrokerEpoch(f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}")


def _elections(image: MetadataImage, registration: BrokerRegistration) -> list[PartitionChangeRecord]:
    """Partitions the broker now leads in a new epoch.

    Those without a leader that it may lead; and after a crash all it led before, because their logs may have
    lost their ends: the new epoch is how consumers notice that offsets they know were written again.
    """
    broker_id = registration.broker_id
    records = []
    for _, topic in sorted(image.topics.items()):
        for index, partition in enumerate(topic.partitions):
            if partition.leader == broker_id and not registration.clean_shutdown:
                records.append(PartitionChangeRecord(partition_id=index, topic_id=topic.id, leader=broker_id))
            elif partition.leader == NO_LEADER:
                election = _election(topic.id, index, partition, broker_id)
                if election is not None:
                    records.append(election)
    return records


def _election(
    topic_id: UUID, index: int, partition: PartitionImage, broker_id: int
) -> PartitionChangeRecord | None:
    if broker_id in partition.isr:
        return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker_id)
    if broker_id not in partition.eligible_leader_replicas:
        return None
    # Apache Kafka moves the last of the ISR here when it stops: it has everything that was committed.
    eligible = tuple(other for other in partition.eligible_leader_replicas if other != broker_id)
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_id,
        leader=broker_id,
        isr=(broker_id,),
        eligible_leader_replicas=eligible,
        last_known_elr=(),
    )
