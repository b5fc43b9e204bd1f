"""AlterPartition: the leader of a partition tells the controller who is in sync with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import check_broker_epoch
from ottla.controller.command import Deciding, Result
from ottla.controller.leadership import Leadership
from ottla.controller.partition_change import RECOVERED, RECOVERING, PartitionTarget
from ottla.metadata.delta import after_change
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import LEADER_UNCHANGED, MetadataRecord
from ottla.wire.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NewLeaderElected,
    NotController,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

EPOCH_UNCHECKED = -1


class InSync(NamedTuple):
    broker_id: int
    broker_epoch: int = EPOCH_UNCHECKED
    """In which the leader has heard of the replica: one that was restarted since may have lost records."""


class IsrChange(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    """Of the state that the leader wants to change."""
    isr: tuple[InSync, ...]
    recovery_state: int = RECOVERED


class IsrOutcome(NamedTuple):
    topic_id: UUID
    partition: int
    state: PartitionImage | None = None
    """What the partition then has."""
    error: KafkaError | None = None


def alter_partitions(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
) -> Deciding[list[IsrOutcome]]:
    """Raises StaleBrokerEpoch where the broker itself is not who it was."""
    check_broker_epoch(image, broker_id, broker_epoch)
    leadership = Leadership(image, config)
    records: list[MetadataRecord] = []
    outcomes = []
    seen: set[tuple[UUID, int]] = set()
    for change in changes:
        yield
        key = (change.topic_id, change.partition)
        try:
            if key in seen:
                raise InvalidRequest(f"Partition {change.partition} is named more than once.")
            seen.add(key)
            topic, partition = _find(image, change)
            _check_epochs(broker_id, topic, partition, change)
            _check_isr(image, topic, partition, change)
        except KafkaError as error:
            outcomes.append(IsrOutcome(*key, error=error))
            continue
        target = PartitionTarget(
            isr=tuple(member.broker_id for member in change.isr),
            recovery_state=change.recovery_state,
            election=leadership.election(topic),
        )
        record = leadership.change(topic, change.partition, target)
        if record is None:
            outcomes.append(IsrOutcome(*key, partition))
            continue
        records.append(record)
        if record.leader in (LEADER_UNCHANGED, broker_id):
            outcomes.append(IsrOutcome(*key, after_change(partition, record)))
        else:
            # The change has completed a reassignment that leaves the leader out: it is made, and yet the
            # leader has to look at the metadata before it does anything else.
            elected = NewLeaderElected(
                f"{topic.name}-{change.partition} is led by broker {record.leader} now"
            )
            outcomes.append(IsrOutcome(*key, error=elected))
    return Result(records, outcomes)


def _find(image: MetadataImage, change: IsrChange) -> tuple[TopicImage, PartitionImage]:
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        raise UnknownTopicId("This server does not host this topic ID.")
    partition = topic.partition(change.partition)
    if partition is None:
        raise UnknownTopicOrPartition(f"Topic {topic.name} has no partition {change.partition}")
    return topic, partition


def _check_epochs(broker_id: int, topic: TopicImage, partition: PartitionImage, change: IsrChange) -> None:
    name = f"{topic.name}-{change.partition}"
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        # The broker has seen more than this node: another one must be the controller by now.
        raise NotController(f"This controller has not heard of the epochs of {name} yet")
    if change.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"{name} is in leader epoch {partition.leader_epoch}")
    if broker_id != partition.leader:
        raise InvalidRequest(f"{name} is led by broker {partition.leader}")
    if change.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(f"{name} is in partition epoch {partition.partition_epoch}")


def _check_isr(image: MetadataImage, topic: TopicImage, partition: PartitionImage, change: IsrChange) -> None:
    name = f"{topic.name}-{change.partition}"
    isr = [member.broker_id for member in change.isr]
    if len({*isr}) < len(isr) or not {*isr} <= {*partition.replicas}:
        raise InvalidRequest(f"The ISR {isr} of {name} is not one of its replicas {[*partition.replicas]}")
    if partition.leader not in isr:
        raise InvalidRequest(f"The ISR {isr} of {name} does not have its leader {partition.leader}")
    if change.recovery_state not in (RECOVERED, RECOVERING):
        raise InvalidRequest(f"{change.recovery_state} is no state of recovery of {name}")
    if change.recovery_state == RECOVERING and len(isr) > 1:
        raise InvalidRequest(f"The ISR {isr} of {name} may have the leader alone while that is recovering")
    if change.recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise InvalidRequest(f"The leader of {name} has already recovered")
    for broker_id, broker_epoch in change.isr:
        broker = image.brokers.get(broker_id)
        if broker is None:
            reason = "not registered"
        elif broker.in_controlled_shutdown:
            reason = "shutting down"
        elif broker.fenced:
            reason = "fenced"
        elif broker_epoch not in (EPOCH_UNCHECKED, broker.epoch):
            reason = f"registered with epoch {broker.epoch}, not {broker_epoch}"
        else:
            continue
        raise IneligibleReplica(f"Broker {broker_id} may not join the ISR of {name}: it is {reason}")
