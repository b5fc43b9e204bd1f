"""The partitions of this broker, kept in step with the cluster's metadata."""

from __future__ import annotations

import logging

from ottla.config import BrokerConfig, resolve_topic
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage, ResourceType, TopicImage
from ottla.replication.partition import Partition
from ottla.replication.preparation import Preparations
from ottla.replication.turns import ProducerTurns
from ottla.wire.errors import UnknownTopicOrPartition

log = logging.getLogger(__name__)


class ReplicaManager:
    def __init__(self, node_id: int, config: BrokerConfig, logs: LogManager) -> None:
        self.logs = logs
        self.turns = ProducerTurns()
        self.preparations = Preparations()
        self._node_id = node_id
        self._config = config
        # Keyed as the wire has them, so that the hot path looks up without decoding.
        self.by_name: dict[bytes, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}

    def partition(self, topic: str, index: int) -> Partition:
        found = self.by_name.get(topic.encode(), {}).get(index)
        if found is None:
            raise UnknownTopicOrPartition(f"This broker has no partition {topic}-{index}.")
        return found

    def apply(self, change: MetadataChange) -> None:
        """Create, drop and reconfigure partitions so that they are what the metadata now says."""
        for topic in change.topics:
            if topic.removed is not None:
                self._remove_topic(topic.removed)
        for topic in change.topics:
            if topic.after is not None:
                self._host_topic(topic.after, change.after)
        for resource_type, name in change.configs:
            if resource_type == ResourceType.TOPIC:
                self._reconfigure(name, change.after)

    def set_strays_aside(self) -> None:
        """At start: logs that metadata does not know. Most likely their topics were deleted shortly before a
        crash; but should metadata be the one that is wrong, the records must still be there."""
        for partition_log in tuple(self.logs.all_logs):
            tp = partition_log.topic_partition
            if tp.partition not in self.by_name.get(tp.topic.encode(), {}):
                self._set_aside(tp, "the cluster's metadata has no such partition")

    def _set_aside(self, tp: TopicPartition, reason: str) -> None:
        kept = self.logs.set_aside(tp)
        log.warning("%s: %s; its log is set aside as %s and not used", tp, reason, kept)

    def update_config(self, config: BrokerConfig, image: MetadataImage) -> None:
        """Broker-wide defaults changed: every topic that does not override them follows."""
        self._config = config
        for name in self.by_name:
            self._reconfigure(name.decode(), image)

    def _host_topic(self, topic: TopicImage, image: MetadataImage) -> None:
        config = resolve_topic(self._config, image.configs.get((ResourceType.TOPIC, topic.name), {}))
        hosted = self.by_id.setdefault(topic.id.bytes, {})
        self.by_name[topic.name.encode()] = hosted
        for index, state in enumerate(topic.partitions):
            if self._node_id not in state.replicas:
                continue
            partition = hosted.get(index)
            if partition is None:
                tp = TopicPartition(topic.name, index)
                partition_log = self.logs.get(tp)
                if partition_log is not None and partition_log.topic_id != topic.id:
                    self._set_aside(tp, f"its log is of topic id {partition_log.topic_id}, not {topic.id}")
                    partition_log = None
                if partition_log is None:
                    partition_log = self.logs.create(topic.name, index, topic.id, config)
                else:
                    partition_log.update_config(config)
                hosted[index] = Partition(partition_log, topic.id, state.leader_epoch, state.replicas)
            else:
                partition.leader_epoch = state.leader_epoch
                partition.replicas = state.replicas
                partition.isr = state.isr

    def _remove_topic(self, topic: TopicImage) -> None:
        self.by_name.pop(topic.name.encode(), None)
        for partition in self.by_id.pop(topic.id.bytes, {}).values():
            partition.remove()
            self.logs.delete(partition.topic_partition)

    def _reconfigure(self, name: str, image: MetadataImage) -> None:
        partitions = self.by_name.get(name.encode())
        if partitions:
            config = resolve_topic(self._config, image.configs.get((ResourceType.TOPIC, name), {}))
            for partition in partitions.values():
                partition.log.update_config(config)
