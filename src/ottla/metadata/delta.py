"""A batch of metadata records on its way to become the next image.

Each mapping that the batch touches is copied once, however many records touch it; the rest is shared with the
image before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, ResourceType, TopicImage
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
    from collections.abc import Mapping

    from ottla.metadata.foreign_records import (
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        FenceBrokerRecord,
        RegisterControllerRecord,
        UnfenceBrokerRecord,
        UnregisterBrokerRecord,
        UnregisterControllerRecord,
    )


class MetadataDelta:
    """One batch of records on top of an image: mappings are copied when a record first touches them."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topic_names = image.topic_names
        self._removed_topics: set[str] = set()
        self._partitions: dict[UUID, list[PartitionImage]] = {}
        """Of the topics touched; the image's tuples are only rebuilt once, at the end."""
        self._brokers = image.brokers
        self._controllers = image.controllers
        self._configs = image.configs
        self._touched_configs: set[tuple[int, str]] = set()
        self._features = image.features
        self._next_producer_id = image.next_producer_id

    def apply(self, record: MetadataRecord) -> None:
        """Raises MetadataRecordError for a record that does not fit what is before it."""
        handler = _HANDLERS.get(record.API_KEY)
        if handler is not None:
            handler(self, record)
        elif record.API_KEY in UNSUPPORTED:
            raise MetadataRecordError(
                f"metadata record {record.API_KEY.name} (type {int(record.API_KEY)}) "
                "is not supported by this version"
            )

    def build(self, offset: int, epoch: int) -> MetadataImage:
        image = self._image
        topics = image.topics
        if self._partitions or self._removed_topics:
            copy = dict(topics)
            for name in self._removed_topics:
                copy.pop(name, None)
            for topic_id, partitions in self._partitions.items():
                name = self._topic_names[topic_id]
                copy[name] = TopicImage(name, topic_id, tuple(partitions))
            topics = copy
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=topics,
            topic_names=self._topic_names,
            brokers=self._brokers,
            controllers=self._controllers,
            configs=self._configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
        )

    def topic(self, record: TopicRecord) -> None:
        names = self._names()
        if record.topic_id in names:
            raise _unfit(record, f"the id already belongs to topic {names[record.topic_id]}")
        names[record.topic_id] = record.name
        self._partitions[record.topic_id] = []

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self._names().pop(record.topic_id, None)
        if name is None:
            raise _unfit(record, "there is no topic with this id")
        self._partitions.pop(record.topic_id, None)
        self._removed_topics.add(name)
        key = (int(ResourceType.TOPIC), name)
        if key in self._configs:
            del self._config_map()[key]
            self._touched_configs.discard(key)

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
        replicas = old.replicas if record.replicas is None else record.replicas
        directories = old.directories if record.directories is None else record.directories
        elected = record.leader != LEADER_UNCHANGED
        partitions[record.partition_id] = PartitionImage(
            replicas=replicas,
            isr=old.isr if record.isr is None else record.isr,
            leader=record.leader if elected else old.leader,
            leader_epoch=old.leader_epoch + elected,
            partition_epoch=old.partition_epoch + 1,
            directories=_directories(directories, len(replicas)),
            removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
            adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
            leader_recovery_state=(
                old.leader_recovery_state
                if record.leader_recovery_state < 0
                else record.leader_recovery_state
            ),
            eligible_leader_replicas=_changed(old.eligible_leader_replicas, record.eligible_leader_replicas),
            last_known_elr=_changed(old.last_known_elr, record.last_known_elr),
        )

    def clear_elr(self, record: ClearElrRecord) -> None:
        for topic_id, name in self._topic_names.items():
            if record.topic_name in ("", name):
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
        configs = self._config_map()
        values = configs.get(key, {})
        if key not in self._touched_configs:
            values = dict(values)
            self._touched_configs.add(key)
        assert isinstance(values, dict)
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            configs[key] = values
        else:
            configs.pop(key, None)
            self._touched_configs.discard(key)

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

    def _names(self) -> dict[UUID, str]:
        if self._topic_names is self._image.topic_names:
            self._topic_names = dict(self._topic_names)
        assert isinstance(self._topic_names, dict)
        return self._topic_names

    def _partitions_of(self, record: PartitionRecord | PartitionChangeRecord) -> list[PartitionImage]:
        if record.topic_id not in self._topic_names:
            raise _unfit(record, "there is no topic with this id")
        return self._touched_partitions(record.topic_id)

    def _touched_partitions(self, topic_id: UUID) -> list[PartitionImage]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = list(self._image.topics[self._topic_names[topic_id]].partitions)
            self._partitions[topic_id] = partitions
        return partitions

    def _config_map(self) -> dict[tuple[int, str], Mapping[str, str]]:
        if self._configs is self._image.configs:
            self._configs = dict(self._configs)
        assert isinstance(self._configs, dict)
        return self._configs

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


# Who leaves out one of these serves a cluster whose owner believes it is protected.
UNSUPPORTED = {
    RecordType.ACCESS_CONTROL_ENTRY,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY,
    RecordType.CLIENT_QUOTA,
    RecordType.USER_SCRAM_CREDENTIAL,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL,
    RecordType.DELEGATION_TOKEN,
    RecordType.REMOVE_DELEGATION_TOKEN,
}

# Records that are in neither change nothing: the no-op, the state of a migration that is long over, and the
# brackets of transactions, which `transactions.settle` resolves before an image sees what is between them.
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
}


def _changed(old: tuple[int, ...], new: tuple[int, ...] | None) -> tuple[int, ...]:
    return old if new is None else new


def _directories(directories: tuple[UUID | None, ...], replica_count: int) -> tuple[UUID, ...]:
    if len(directories) != replica_count:
        return (DIRECTORY_MIGRATING,) * replica_count
    return tuple(directory or DIRECTORY_MIGRATING for directory in directories)


def _unfit(record: MetadataRecord, reason: str) -> MetadataRecordError:
    return MetadataRecordError(f"{record} does not fit the metadata before it: {reason}")
