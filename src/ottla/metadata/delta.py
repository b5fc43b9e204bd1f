"""A batch of metadata records on its way to become the next image.

It costs as much as it changes: topics and configs are in persistent maps, and the few brokers, controllers
and features are copied when a record touches them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from immutables import Map, MapMutation

from ottla.metadata.acls import AclsInTheMaking
from ottla.metadata.carried import CARRIED_TYPES, carry
from ottla.metadata.change import MetadataChange, TopicChange
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.metadata.quotas import with_record
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RecordType,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.uuids import DIRECTORY_MIGRATING

if TYPE_CHECKING:
    from ottla.metadata.access_records import (
        AccessControlEntryRecord,
        ClientQuotaRecord,
        RemoveAccessControlEntryRecord,
    )
    from ottla.metadata.cluster_records import (
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        RegisterControllerRecord,
        UnregisterBrokerRecord,
    )
    from ottla.metadata.foreign_records import (
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        UnregisterControllerRecord,
    )


class MetadataDelta:
    """One batch of records on top of an image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topic_names = image.topic_names.mutate()
        self._touched_topics: dict[str, None] = {}
        """Names, in the order of the records; those of removed topics too."""
        self._removed_topics: set[str] = set()
        self._partitions: dict[UUID, list[PartitionImage]] = {}
        """Of the topics touched; the image's tuples are only rebuilt once, at the end."""
        self._placed: set[UUID] = set()
        """Topics that came, went, or have replicas elsewhere than before."""
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs = image.configs.mutate()
        self._touched_configs: dict[tuple[int, str], dict[str, str]] = {}
        """What the resources then have, nothing for those that have nothing left."""
        self._features = image.features
        self._next_producer_id = image.next_producer_id
        self._acls: AclsInTheMaking | None = None
        self._quotas = image.quotas
        self._carried = image.carried

    def apply(self, record: MetadataRecord) -> None:
        """Raises MetadataRecordError for a record that does not fit what is before it."""
        handler = _HANDLERS.get(record.API_KEY)
        if handler is not None:
            handler(self, record)
        elif record.API_KEY in CARRIED_TYPES:
            self._carried = carry(self._carried, record)

    def build(self, offset: int, epoch: int) -> MetadataChange:
        image = self._image
        topic_names = self._topic_names.finish()
        topics = image.topics.mutate()
        for name in self._removed_topics:
            topics.pop(name, None)
        for topic_id, partitions in self._partitions.items():
            name = topic_names[topic_id]
            topics[name] = TopicImage(name, topic_id, tuple(partitions))
        for key, values in self._touched_configs.items():
            if values:
                self._configs[key] = values
            else:
                self._configs.pop(key, None)
        after = MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=topics.finish(),
            topic_names=topic_names,
            topics_on=self._topics_on(),
            brokers=self._brokers,
            controllers=self._controllers,
            configs=self._configs.finish(),
            features=self._features,
            next_producer_id=self._next_producer_id,
            acls=image.acls if self._acls is None else self._acls.finish(),
            quotas=self._quotas,
            carried=self._carried,
        )
        changed_topics = [
            TopicChange(name, image.topics.get(name), after.topics.get(name))
            for name in self._touched_topics
            if name in image.topics or name in after.topics
        ]
        changed_configs = [key for key in self._touched_configs if image.config(*key) != after.config(*key)]
        return MetadataChange(image, after, changed_topics, changed_configs)

    def topic(self, record: TopicRecord) -> None:
        names = self._topic_names
        if record.topic_id in names:
            raise _unfit(record, f"the id already belongs to topic {names[record.topic_id]}")
        names[record.topic_id] = record.name
        self._partitions[record.topic_id] = []
        self._placed.add(record.topic_id)
        self._touched_topics[record.name] = None

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._topic_names.pop(record.topic_id, None)
        if name is None:
            raise _unfit(record, "there is no topic with this id")
        self._partitions.pop(record.topic_id, None)
        self._placed.add(record.topic_id)
        self._removed_topics.add(name)
        self._touched_topics[name] = None
        key = (int(ResourceType.TOPIC), name)
        if key in self._configs or key in self._touched_configs:
            self._touched_configs[key] = {}

    def partition(self, record: PartitionRecord) -> None:
        partitions = self._partitions_of(record)
        image = PartitionImage(
            replicas=record.replicas,
            isr=record.isr,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=_directories(record.directories, len(record.replicas)),
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
        )
        self._placed.add(record.topic_id)
        if record.partition_id == len(partitions):
            partitions.append(image)
        elif 0 <= record.partition_id < len(partitions):
            partitions[record.partition_id] = image
        else:
            raise _unfit(record, f"the topic has {len(partitions)} partitions so far")

    def partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record)
        if not 0 <= record.partition_id < len(partitions):
            raise _unfit(record, f"the topic has {len(partitions)} partitions")
        old = partitions[record.partition_id]
        if record.replicas is not None:
            self._placed.add(record.topic_id)
        partitions[record.partition_id] = after_change(old, record)

    def clear_elr(self, record: ClearElrRecord) -> None:
        for topic_id in {**self._image.topic_names, **self._partitions}:
            name = self._topic_names.get(topic_id)
            if name is not None and record.topic_name in ("", name):
                partitions = self._touched_partitions(topic_id)
                for index, partition in enumerate(partitions):
                    if partition.eligible_leader_replicas or partition.last_known_elr:
                        partitions[index] = replace(
                            partition,
                            partition_epoch=partition.partition_epoch + 1,
                            eligible_leader_replicas=(),
                            last_known_elr=(),
                        )

    def config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self._touched_configs.get(key)
        if values is None:
            values = self._touched_configs[key] = dict(self._image.config(*key))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self._broker_map()[record.broker_id] = BrokerImage(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=record.end_points,
            features=record.features,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=record.log_dirs,
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record, record.broker_id, record.broker_epoch)
        del self._broker_map()[record.broker_id]

    def fence_broker(self, record: FenceBrokerRecord) -> None:
        broker = self._broker(record, record.id, record.epoch)
        self._broker_map()[record.id] = replace(broker, fenced=True)

    def unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        broker = self._broker(record, record.id, record.epoch)
        self._broker_map()[record.id] = replace(broker, fenced=False)

    def broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record, record.broker_id, record.broker_epoch)
        self._broker_map()[record.broker_id] = replace(
            broker,
            fenced=record.fenced > 0 if record.fenced else broker.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0 or broker.in_controlled_shutdown,
            directories=record.log_dirs or broker.directories,
        )

    def register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers = {**self._controllers, record.controller_id: record}

    def unregister_controller(self, record: UnregisterControllerRecord) -> None:
        self._controllers = {
            number: controller
            for number, controller in self._controllers.items()
            if number != record.controller_id
        }

    def feature_level(self, record: FeatureLevelRecord) -> None:
        features = {**self._features, record.name: record.feature_level}
        if record.feature_level == 0:
            del features[record.name]
        self._features = features

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise _unfit(record, f"ids up to {self._next_producer_id} are already given out")
        self._next_producer_id = record.next_producer_id

    def access_control_entry(self, record: AccessControlEntryRecord) -> None:
        self._next_acls().add(record)

    def remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self._next_acls().remove(record.id)

    def client_quota(self, record: ClientQuotaRecord) -> None:
        self._quotas = with_record(self._quotas, record)

    def _next_acls(self) -> AclsInTheMaking:
        if self._acls is None:
            self._acls = AclsInTheMaking(self._image.acls)
        return self._acls

    def _partitions_of(self, record: PartitionRecord | PartitionChangeRecord) -> list[PartitionImage]:
        if record.topic_id not in self._topic_names:
            raise _unfit(record, "there is no topic with this id")
        return self._touched_partitions(record.topic_id)

    def _touched_partitions(self, topic_id: UUID) -> list[PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = list(self._image.topics[self._topic_names[topic_id]].partitions)
            self._partitions[topic_id] = partitions
            self._touched_topics[self._topic_names[topic_id]] = None
        return partitions

    def _topics_on(self) -> Map[int, Map[UUID, None]]:
        if not self._placed:
            return self._image.topics_on
        changed: dict[int, MapMutation[UUID, None]] = {}
        for topic_id in self._placed:
            known = self._image.topic_by_id(topic_id)
            before = set() if known is None else _hosts(known.partitions)
            after = _hosts(self._partitions.get(topic_id, ()))
            for broker_id in before ^ after:
                if broker_id not in changed:
                    changed[broker_id] = self._image.topics_on.get(broker_id, Map()).mutate()
                if broker_id in after:
                    changed[broker_id][topic_id] = None
                else:
                    del changed[broker_id][topic_id]
        topics_on = self._image.topics_on.mutate()
        for broker_id, mutation in changed.items():
            topics_on[broker_id] = mutation.finish()
            if not topics_on[broker_id]:
                del topics_on[broker_id]
        return topics_on.finish()

    def _broker_map(self) -> dict[int, BrokerImage]:
        if self._brokers is self._image.brokers:
            self._brokers = dict(self._brokers)
        assert isinstance(self._brokers, dict)
        return self._brokers

    def _broker(self, record: MetadataRecord, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise _unfit(record, f"broker {broker_id} is not registered with epoch {epoch}")
        return broker


# Records that are neither here nor carried change nothing: the no-op, the state of a migration that is long
# over, and the brackets of transactions, which `transactions` resolves before an image sees what is
# between them.
_HANDLERS: dict[RecordType, Callable[[MetadataDelta, Any], None]] = {
    RecordType.TOPIC: MetadataDelta.topic,
    RecordType.REMOVE_TOPIC: MetadataDelta.remove_topic,
    RecordType.PARTITION: MetadataDelta.partition,
    RecordType.PARTITION_CHANGE: MetadataDelta.partition_change,
    RecordType.CLEAR_ELR: MetadataDelta.clear_elr,
    RecordType.CONFIG: MetadataDelta.config,
    RecordType.REGISTER_BROKER: MetadataDelta.register_broker,
    RecordType.UNREGISTER_BROKER: MetadataDelta.unregister_broker,
    RecordType.FENCE_BROKER: MetadataDelta.fence_broker,
    RecordType.UNFENCE_BROKER: MetadataDelta.unfence_broker,
    RecordType.BROKER_REGISTRATION_CHANGE: MetadataDelta.broker_registration_change,
    RecordType.REGISTER_CONTROLLER: MetadataDelta.register_controller,
    RecordType.UNREGISTER_CONTROLLER: MetadataDelta.unregister_controller,
    RecordType.FEATURE_LEVEL: MetadataDelta.feature_level,
    RecordType.PRODUCER_IDS: MetadataDelta.producer_ids,
    RecordType.ACCESS_CONTROL_ENTRY: MetadataDelta.access_control_entry,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: MetadataDelta.remove_access_control_entry,
    RecordType.CLIENT_QUOTA: MetadataDelta.client_quota,
}


def after_change(old: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    replicas = old.replicas if record.replicas is None else record.replicas
    directories = old.directories if record.directories is None else record.directories
    elected = record.leader != LEADER_UNCHANGED
    return PartitionImage(
        replicas=replicas,
        isr=old.isr if record.isr is None else record.isr,
        leader=record.leader if elected else old.leader,
        leader_epoch=old.leader_epoch + elected,
        partition_epoch=old.partition_epoch + 1,
        directories=_directories(directories, len(replicas)),
        removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
        adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
        leader_recovery_state=(
            old.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state
        ),
        eligible_leader_replicas=_changed(old.eligible_leader_replicas, record.eligible_leader_replicas),
        last_known_elr=_changed(old.last_known_elr, record.last_known_elr),
    )


def _hosts(partitions: Sequence[PartitionImage]) -> set[int]:
    return {broker_id for partition in partitions for broker_id in partition.replicas}


def _changed(old: tuple[int, ...], new: tuple[int, ...] | None) -> tuple[int, ...]:
    return old if new is None else new


def _directories(directories: tuple[UUID | None, ...], replica_count: int) -> tuple[UUID, ...]:
    if len(directories) != replica_count:
        return (DIRECTORY_MIGRATING,) * replica_count
    return tuple(directory or DIRECTORY_MIGRATING for directory in directories)


def _unfit(record: MetadataRecord, reason: str) -> MetadataRecordError:
    return MetadataRecordError(f"{record} does not fit the metadata before it: {reason}")
