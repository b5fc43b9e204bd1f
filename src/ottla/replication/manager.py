"""The partitions of this broker, kept in step with the cluster's metadata."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ottla.config import BrokerConfig, resolve_topic
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.names import PARTITION_METADATA_FILE
from ottla.log.types import TopicPartition
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import MetadataImage, PartitionImage, ResourceType, TopicImage
from ottla.metadata.records import NO_LEADER
from ottla.metadata.uuids import uuid_text
from ottla.replication.in_sync import InSync
from ottla.replication.leadership import IsrState
from ottla.replication.log_work import Creation, LogWork
from ottla.replication.partition import Partition
from ottla.replication.preparation import Preparations
from ottla.replication.throttles import Throttles
from ottla.replication.turns import ProducerTurns
from ottla.runtime import Offload
from ottla.wire.errors import KafkaError, NotLeaderOrFollower, StorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from ottla.replication.fetching import Followed

log = logging.getLogger(__name__)

# Each has a thread, of which there are few, and may hold a batch and what it inflates to.
LOOK_UPS_AT_ONCE_MAX = 2


class HostedTopic(dict[int, Partition]):
    """The partitions of a topic that are at work here, by their index. Those whose log is still being made
    are not there yet, those of other brokers never."""

    __slots__ = ("elsewhere", "id", "offline")

    def __init__(self, topic_id: UUID) -> None:
        super().__init__()
        self.id = topic_id
        self.offline: dict[int, str] = {}
        """Why those cannot work that should."""
        self.elsewhere: set[int] = set()
        """Those that only other brokers have."""

    def why_missing(self, index: int, named: str = "the partition") -> KafkaError:
        """What to tell somebody who asks for a partition that is not at work here."""
        if (reason := self.offline.get(index)) is not None:
            return StorageError(f"{named} is offline: {reason}")
        if index in self.elsewhere:
            return NotLeaderOrFollower(
                f"this broker has no replica of {named}; refresh metadata to find its leader"
            )
        return UnknownTopicOrPartition(f"This broker has no partition {index} of the topic, or not yet.")


class Following(Protocol):
    """Who fetches for the partitions that other brokers lead."""

    def follow(self, partition: Partition, leader: int) -> None:
        """From where its log ends, in its leader epoch. Again with the same: it goes on."""
        ...

    def unfollow(self, partition: Partition) -> None: ...

    def __iter__(self) -> Iterator[tuple[int, Followed]]:
        """What is followed, each with the broker that leads it."""
        ...


class ReplicaManager:
    def __init__(self, node_id: int, config: BrokerConfig, logs: LogManager, offload: Offload) -> None:
        self.logs = logs
        self.in_sync = InSync(node_id, logs.clock, config.integer("replica.lag.time.max.ms") / 1000)
        self.throttles = Throttles(node_id, logs.clock, config)
        self.following: Following | None = None
        self.on_place: Callable[[UUID, int, str], None] = lambda topic_id, index, directory: None
        """Told of each replica in which data directory it is: when it is there, moves, or goes offline."""
        self.on_lost: Callable[[UUID, int], None] = lambda topic_id, index: None
        """Told of each replica whose files are gone although this broker has their directory."""
        self._led: dict[Partition, None] = {}
        """Those that have followers."""
        self.turns = ProducerTurns()
        self.preparations = Preparations()
        self.look_ups = asyncio.Semaphore(LOOK_UPS_AT_ONCE_MAX)
        """Of offsets by time."""
        self._node_id = node_id
        self._config = config
        self._image = MetadataImage()
        self._work = LogWork(logs, offload, self._made, self._not_made, self._why_lost)
        logs.on_offline = self._went_offline
        logs.on_moved = self._moved
        # Keyed as the wire has them, so that the hot path looks up without decoding.
        self.by_name: dict[bytes, HostedTopic] = {}
        self.by_id: dict[bytes, HostedTopic] = {}

    def partition(self, topic: str, index: int) -> Partition:
        """A replica that is here, whatever its role."""
        hosted = self.by_name.get(topic.encode())
        if hosted is None:
            raise UnknownTopicOrPartition(f"This cluster has no topic {topic!r}.")
        found = hosted.get(index)
        if found is None:
            raise hosted.why_missing(index, f"{topic}-{index}")
        return found

    def leading(self, topic: str, index: int, leader_epoch: int = -1) -> Partition:
        """One that this broker leads, in the epoch that the client knows of."""
        found = self.partition(topic, index)
        found.check_leader_epoch(leader_epoch)
        found.check_leads()
        return found

    def find(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_name.get(topic.encode())
        return None if hosted is None else hosted.get(index)

    # Runs inside the commit of metadata: notes what is to be done, and touches nothing but memory.

    def apply(self, change: MetadataChange) -> None:
        """Create, drop and reconfigure partitions so that they are what the metadata now says."""
        self.in_sync.image = change.after
        for topic in change.topics:
            if topic.removed is not None:
                self._remove_topic(topic.removed)
        for topic in change.topics:
            if topic.after is not None:
                self._host_topic(topic.after, change.after)
        for resource_type, name in change.configs:
            if resource_type == ResourceType.TOPIC:
                self._reconfigure(name, change.after)
        self._image = change.after
        if change.after.brokers is not change.before.brokers:
            for partition in self._led:
                partition.expand_isr()

    def update_config(self, config: BrokerConfig, image: MetadataImage) -> None:
        """Broker-wide defaults changed: every topic that does not override them follows."""
        self._config = config
        self.throttles.configure(config)
        self.in_sync.lag_seconds_max = config.integer("replica.lag.time.max.ms") / 1000
        for name in self.by_name:
            self._reconfigure(name.decode(), image)

    def _host_topic(self, topic: TopicImage, image: MetadataImage) -> None:
        config = resolve_topic(self._config, image.configs.get((ResourceType.TOPIC, topic.name), {}))
        hosted = self.by_id.get(topic.id.bytes)
        if hosted is None:
            hosted = self.by_id[topic.id.bytes] = HostedTopic(topic.id)
        self.by_name[topic.name.encode()] = hosted
        hosted.elsewhere.clear()
        for index, state in enumerate(topic.partitions):
            if self._node_id not in state.replicas:
                hosted.elsewhere.add(index)
                self._give_up(hosted, TopicPartition(topic.name, index))
                continue
            partition = hosted.get(index)
            if partition is not None:
                self._assign(partition, state)
                continue
            tp = TopicPartition(topic.name, index)
            if index in hosted.offline or self._work.is_wanted(tp):
                continue
            partition_log = self.logs.get(tp)
            if partition_log is not None and partition_log.topic_id != topic.id:
                self._work.put_away(
                    tp,
                    f"its log is of topic id {partition_log.topic_id}, not {topic.id} (should it be the "
                    f"right one, stop the broker, put it in the place of the new {tp}, without the file "
                    f"{PARTITION_METADATA_FILE} in it, and start again)",
                )
                partition_log = None
            if partition_log is None:
                self._work.create(tp, topic.id, config)
            else:
                partition_log.update_config(config)
                hosted[index] = self._partition_of(partition_log, topic.id, state)

    def _partition_of(self, partition_log: PartitionLog, topic_id: UUID, state: PartitionImage) -> Partition:
        partition = Partition(partition_log, topic_id, state.leader_epoch, state.replicas)
        if len(state.replicas) > 1:
            # The end of the log may be of a leader whose records nobody else has.
            partition.high_watermark = self.logs.checkpointed_high_watermark(partition.topic_partition)
        self._assign(partition, state)
        self._tell_place(partition)
        return partition

    def _tell_place(self, partition: Partition) -> None:
        directory = partition.log.dir.rpartition("/")[0]
        self.on_place(partition.topic_id, partition.topic_partition.partition, directory)

    def _assign(self, partition: Partition, state: PartitionImage) -> None:
        agreed = IsrState(state.leader_epoch, state.partition_epoch, state.isr)
        if state.leader == self._node_id:
            self._unfollow(partition)
            partition.lead(self.in_sync, agreed, state.replicas)
        else:
            partition.follow(agreed, state.replicas)
            if state.leader < 0:
                self._unfollow(partition)
            elif self.following is not None:
                self.following.follow(partition, state.leader)
        if partition.leadership is not None:
            self._led[partition] = None
        else:
            self._led.pop(partition, None)

    def _unfollow(self, partition: Partition) -> None:
        if self.following is not None:
            self.following.unfollow(partition)

    def _take_offline(self, partition: Partition) -> None:
        partition.go_offline()
        self._unfollow(partition)
        self._led.pop(partition, None)

    def _give_up(self, hosted: HostedTopic, tp: TopicPartition) -> None:
        """The replica has moved to other brokers."""
        hosted.offline.pop(tp.partition, None)
        self._work.forget(tp)
        self.logs.miss_no_more(tp)
        partition = hosted.pop(tp.partition, None)
        if partition is not None:
            self._take_offline(partition)
            self._work.put_away(tp)

    def _remove_topic(self, topic: TopicImage) -> None:
        self.by_name.pop(topic.name.encode(), None)
        for partition in self.by_id.pop(topic.id.bytes, {}).values():
            self._take_offline(partition)
            self._work.put_away(partition.topic_partition)
        for index in range(len(topic.partitions)):
            self._work.forget(TopicPartition(topic.name, index))
            self.logs.miss_no_more(TopicPartition(topic.name, index))

    def _reconfigure(self, name: str, image: MetadataImage) -> None:
        hosted = self.by_name.get(name.encode())
        if hosted is not None:
            config = resolve_topic(self._config, image.configs.get((ResourceType.TOPIC, name), {}))
            for partition in hosted.values():
                partition.log.update_config(config)
            for index in range(len(image.topics[name].partitions)) if name in image.topics else ():
                self._work.configure(TopicPartition(name, index), config)

    # The work that was noted.

    def set_strays_aside(self) -> None:
        """At start: logs that metadata does not know. Most likely their topics were deleted shortly before a
        crash; but should metadata be the one that is wrong, the records must still be there."""
        for partition_log in tuple(self.logs.all_logs):
            tp = partition_log.topic_partition
            if self.find(*tp) is None:
                self._work.put_away(tp, "the cluster's metadata has no such partition")
        for tp in self.logs.all_missing:
            topic = self._image.topics.get(tp.topic)
            if topic is None or topic.partition(tp.partition) is None:
                self.logs.miss_no_more(tp)

    async def catch_up(self) -> None:
        """At start, before anybody is served: have the logs that there should be, as far as possible."""
        await self._work.catch_up()

    async def run(self) -> None:
        await self._work.run()

    async def watch_followers(self) -> None:
        """Those that fall behind are found in time, twice as often as they may."""
        while True:
            await asyncio.sleep(self.in_sync.lag_seconds_max / 2)
            for partition in tuple(self._led):
                partition.shrink_isr()
                partition.expand_isr()

    async def wait_made(self, topics: Iterable[str]) -> None:
        """Until the logs of topics just created are there, or could not be made: then nobody need retry."""
        await self._work.wait_tried(topics)

    def _made(self, creation: Creation, partition_log: PartitionLog) -> None:
        topic, index = creation.partition
        hosted = self.by_id[creation.topic_id.bytes]
        state = self._image.topics[topic].partitions[index]
        hosted.offline.pop(index, None)
        hosted[index] = self._partition_of(partition_log, creation.topic_id, state)

    def _not_made(self, creation: Creation, reason: str) -> None:
        self.by_id[creation.topic_id.bytes].offline[creation.partition.partition] = reason

    def _why_lost(self, tp: TopicPartition) -> str | None:
        """Of a log that was in a directory which this broker does not have any more, or whose files have been
        removed: it comes back from whoever leads. Where nobody does, an empty one could lead, and the others
        would cut theirs."""
        topic = self._image.topics.get(tp.topic)
        state = None if topic is None else topic.partition(tp.partition)
        broker = self._image.brokers.get(self._node_id)
        if topic is None or state is None or broker is None or len(state.replicas) == 1:
            return None
        directory = state.directory(self._node_id)
        path = self.logs.missing_from(tp)
        if broker.has_online(directory):
            if path is None:
                return None
            # In sync it would be elected, or counted on, for what it does not have any more.
            self.on_lost(topic.id, tp.partition)
            return f"its files in {path} are gone, and the controller has not heard of it yet"
        if state.leader not in (NO_LEADER, self._node_id):
            return None
        if path is not None:
            return f"its files in {path} are gone, and no other broker leads it"
        return (
            f"its log was in a directory (directory.id={uuid_text(directory)}) that this broker does not "
            "have now, and no other broker leads it"
        )

    def _moved(self, moved: PartitionLog) -> None:
        """To another directory: a log with the same records has taken the place of the one that was."""
        partition = self.find(*moved.topic_partition)
        if partition is not None:
            partition.log = moved
            self._tell_place(partition)

    def _went_offline(self, tp: TopicPartition, reason: str) -> None:
        hosted = self.by_name.get(tp.topic.encode())
        if hosted is not None and (partition := hosted.pop(tp.partition, None)) is not None:
            hosted.offline[tp.partition] = reason
            self._take_offline(partition)
            self._tell_place(partition)
