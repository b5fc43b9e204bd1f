"""What becomes of partitions when a broker does: it leaves, comes back, or lost the end of its logs.

Records of partitions only; what they say of the broker itself is up to the command. Each partition stands for
itself, so they need not be in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from uuid import UUID

from ottla.config import TOPIC_KEYS, BrokerConfig, ConfigError
from ottla.controller.configs import effective_config
from ottla.controller.partition_change import Election, PartitionTarget, Surroundings, change_partition
from ottla.metadata.image import MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.metadata.records import NO_LEADER, MetadataRecord, PartitionChangeRecord
from ottla.metadata.uuids import DIRECTORY_UNASSIGNED

Changing = Generator[None, None, list[MetadataRecord]]
"""Records, found in turns with everybody else."""

RECORDS_PER_STEP = 10
"""Of one topic, which may have very many partitions."""


class Leadership:
    """The rules of elections as an image and the settings have them. Made for one command."""

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        *,
        joining: int | None = None,
        leaving: int | None = None,
    ) -> None:
        """`joining` may lead already though the image still has it fenced; `leaving` may not any more."""
        self._image = image
        self._config = effective_config(config, image)
        self._active = {broker.id for broker in image.brokers.values() if broker.active} - {leaving}
        if joining is not None:
            self._active.add(joining)
        self._keeps_eligible = image.keeps_eligible_replicas

    def change(self, topic: TopicImage, index: int, target: PartitionTarget) -> PartitionChangeRecord | None:
        partition = topic.partitions[index]

        def may_lead(broker_id: int) -> bool:
            if broker_id not in self._active:
                return False
            directory = target.directories.get(broker_id) or partition.directory(broker_id)
            return self._image.brokers[broker_id].has_online(directory)

        isr_min = self._isr_min(topic) if self._keeps_eligible else 0
        surroundings = Surroundings(may_lead, self._directory_for_new, isr_min, self._keeps_eligible)
        return change_partition(topic.id, index, partition, target, surroundings)

    def election(self, topic: TopicImage) -> Election:
        return Election.UNCLEAN if self.unclean_allowed(topic) else Election.ONLINE

    def unclean_allowed(self, topic: TopicImage) -> bool:
        return bool(self._setting(topic, "unclean.leader.election.enable"))

    def _directory_for_new(self, broker_id: int) -> UUID:
        broker = self._image.brokers.get(broker_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.directory_for_new

    def _isr_min(self, topic: TopicImage) -> int:
        setting = self._setting(topic, "min.insync.replicas")
        assert isinstance(setting, int)
        return min(setting, len(topic.partitions[0].replicas))

    def _setting(self, topic: TopicImage, name: str) -> object:
        own = self._image.config(ResourceType.TOPIC, topic.name).get(name)
        if own is not None:
            try:
                return TOPIC_KEYS[name].parse(own)
            except ConfigError:
                pass  # As everywhere: what is stored and cannot be understood has no effect.
        return self._config.topic_value(name)


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    # In no order: asked again and again while a broker shuts down.
    return any(
        partition.leader == broker_id
        for topic_id in image.topics_on.get(broker_id, ())
        for partition in image.topics[image.topic_names[topic_id]].partitions
    )


def without_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Changing:
    """It is in no ISR any more and leads nothing, except that the last in sync stays known as such."""

    def concerns(partition: PartitionImage) -> bool:
        return broker_id in partition.isr

    return _leave(image, config, broker_id, concerns)


def without_lost_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Changing:
    """As `without_broker`, for one that will not have all that its logs had."""

    def concerns(partition: PartitionImage) -> bool:
        return broker_id in partition.isr or broker_id in partition.eligible_leader_replicas

    return _leave(image, config, broker_id, concerns, lost=True)


def without_directories(
    image: MetadataImage, config: BrokerConfig, broker_id: int, directories: Collection[UUID]
) -> Changing:
    """As `without_broker`, for the replicas in some of its directories."""

    def concerns(partition: PartitionImage) -> bool:
        return broker_id in partition.isr and partition.directory(broker_id) in directories

    return _leave(image, config, broker_id, concerns)


def with_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Changing:
    """It leads what had no leader and may be led by it."""
    leadership = Leadership(image, config, joining=broker_id)

    def target(partition: PartitionImage, election: Election) -> PartitionTarget | None:
        if partition.leader != NO_LEADER or broker_id not in partition.replicas:
            return None
        return PartitionTarget(election=election)

    return _changes(leadership, image.topics_with_replicas_on(broker_id), target)


def _leave(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    concerns: Callable[[PartitionImage], bool],
    *,
    lost: bool = False,
) -> Changing:
    leadership = Leadership(image, config, leaving=broker_id)

    def target(partition: PartitionImage, election: Election) -> PartitionTarget | None:
        if not concerns(partition):
            return None
        return PartitionTarget(
            isr=tuple(replica for replica in partition.isr if replica != broker_id),
            election=election,
            lost=broker_id if lost else None,
        )

    return _changes(leadership, image.topics_with_replicas_on(broker_id), target)


def _changes(
    leadership: Leadership,
    topics: Iterable[TopicImage],
    target: Callable[[PartitionImage, Election], PartitionTarget | None],
) -> Changing:
    records: list[MetadataRecord] = []
    for topic in topics:
        yield
        election = leadership.election(topic)
        for index, partition in enumerate(topic.partitions):
            wanted = target(partition, election)
            if wanted is not None:
                record = leadership.change(topic, index, wanted)
                if record is not None:
                    records.append(record)
                    if len(records) % RECORDS_PER_STEP == 0:
                        yield
    return records
