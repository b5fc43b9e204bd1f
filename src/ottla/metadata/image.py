"""The state of the cluster as one immutable value: what replaying the metadata log adds up to.

Readers keep the image they started with for as long as they need it; `delta` makes the next one. What there
can be many of is in persistent maps: the next image shares with this one all that did not change, so that
making it costs as much as the change does. Such maps have no order; where it matters, sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING
from uuid import UUID

from immutables import Map

from ottla.metadata.acls import Acls
from ottla.metadata.carried import Carried
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.quotas import Quotas
from ottla.metadata.records import Endpoint, MetadataRecord, PartitionRecord, SupportedFeature
from ottla.metadata.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

if TYPE_CHECKING:
    from ottla.metadata.change import MetadataChange
    from ottla.metadata.cluster_records import RegisterControllerRecord


class ResourceType(IntEnum):
    """What a config belongs to; the numbers of the protocol and of ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class PartitionImage:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """-1 without one."""
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...]
    """One per replica, in the order of `replicas`."""
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    """Who led last, while nobody does and eligible leader replicas are kept."""

    def directory(self, broker_id: int) -> UUID:
        """Of the broker's replica; unassigned where it has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return DIRECTORY_UNASSIGNED

    @property
    def is_reassigned(self) -> bool:
        """Its replicas are being replaced."""
        return bool(self.adding_replicas or self.removing_replicas)

    def to_record(self, topic_id: UUID, partition_id: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=partition_id,
            topic_id=topic_id,
            replicas=self.replicas,
            isr=self.isr,
            removing_replicas=self.removing_replicas,
            adding_replicas=self.adding_replicas,
            leader=self.leader,
            leader_recovery_state=self.leader_recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=self.directories,
            eligible_leader_replicas=self.eligible_leader_replicas or None,
            last_known_elr=self.last_known_elr or None,
        )


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: UUID
    partitions: tuple[PartitionImage, ...]

    def partition(self, index: int) -> PartitionImage | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[UUID, ...]

    @property
    def active(self) -> bool:
        """May lead and be in the ISR of new partitions."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: UUID) -> bool:
        """What is not assigned to a directory yet is online; so is all of a broker that names none."""
        if directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED):
            return True
        return directory != DIRECTORY_LOST and (not self.directories or directory in self.directories)

    @property
    def directory_for_new(self) -> UUID:
        """Of a replica that is new; a broker with several directories picks one itself."""
        match self.directories:
            case ():
                return DIRECTORY_MIGRATING
            case (only,):
                return only
            case _:
                return DIRECTORY_UNASSIGNED


@dataclass(frozen=True, slots=True)
class MetadataImage:
    offset: int = -1
    """Of the last record in it."""
    epoch: int = 0
    """Of the leader that wrote that record."""
    topics: Map[str, TopicImage] = field(default_factory=Map)
    topic_names: Map[UUID, str] = field(default_factory=Map)
    topics_on: Map[int, Map[UUID, None]] = field(default_factory=Map)
    """By broker: ids of the topics with a replica there. What becomes of a broker concerns these alone."""
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=dict)
    configs: Map[tuple[int, str], Mapping[str, str]] = field(default_factory=Map)
    """By resource type and name; a broker resource without a name is the default of all brokers."""
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Acls = field(default_factory=Acls)
    quotas: Quotas = field(default_factory=Map)
    carried: Carried = field(default_factory=Map)
    """What is kept for others and not served."""

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    @property
    def keeps_eligible_replicas(self) -> bool:
        """Who leaves an ISR that is too small stays eligible to lead (KIP-966)."""
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    def topics_with_replicas_on(self, broker_id: int) -> Iterator[TopicImage]:
        """In the order of names."""
        names = sorted(self.topic_names[topic_id] for topic_id in self.topics_on.get(broker_id, ()))
        return (self.topics[name] for name in names)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})

    def apply_all(self, records: Iterable[MetadataRecord], offset: int, epoch: int) -> MetadataImage:
        """The image after `records`, the last of which has this offset.

        Raises MetadataRecordError for a record that does not fit the image.
        """
        return self.change(records, offset, epoch).after

    def change(self, records: Iterable[MetadataRecord], offset: int, epoch: int) -> MetadataChange:
        """As `apply_all`, with what the records changed."""
        # Late, because a delta is made of images.
        from ottla.metadata.delta import MetadataDelta

        delta = MetadataDelta(self)
        for record in records:
            delta.apply(record)
        return delta.build(offset, epoch)
