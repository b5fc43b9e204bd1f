"""A cluster as commands see it: brokers and topics with the fewest words, and commands that take effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from deciding import decided

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.command import Deciding
from ottla.controller.heartbeats import BrokerHeartbeat, HeartbeatReply, process_heartbeat
from ottla.controller.registration import join_cluster, may_live_elsewhere
from ottla.controller.sessions import BrokerEpoch, BrokerSessions
from ottla.metadata.features import METADATA_VERSION, supported_features
from ottla.metadata.image import MetadataImage, PartitionImage, ResourceType
from ottla.metadata.records import (
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
)

T = TypeVar("T")

SESSION_MS = 9000
HEARTBEAT_MS = 2000
ENDPOINT = Endpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)


def topic_id(name: str) -> UUID:
    return UUID(int=1000 + sum(256**index * byte for index, byte in enumerate(name.encode())))


def directory(broker_id: int, number: int = 0) -> UUID:
    return UUID(int=200 + 10 * broker_id + number)


def registration(
    broker_id: int,
    *,
    life: int = 0,
    directories: int = 1,
    rack: str | None = None,
    previous_epoch: int = -1,
) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=broker_id,
        incarnation_id=UUID(int=10_000 + 100 * broker_id + life),
        endpoints=(ENDPOINT,),
        directories=tuple(directory(broker_id, number) for number in range(directories)),
        rack=rack,
        features=supported_features(),
        previous_epoch=previous_epoch,
    )


class Cluster:
    def __init__(
        self, *brokers: int, eligible: bool = False, settings: Mapping[str, str] | None = None
    ) -> None:
        """All brokers are registered and unfenced."""
        self.config = BrokerConfig.from_properties(
            {"node.id": "99", "process.roles": "broker,controller", **(settings or {})}
        )
        self.sessions = BrokerSessions(99, SESSION_MS, HEARTBEAT_MS)
        self.now_ms = 0
        self.image = MetadataImage()
        self.apply([FeatureLevelRecord(name=METADATA_VERSION, feature_level=27)])
        if eligible:
            self.apply([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)])
        self.sessions.begin(self.image, self.now_ms)
        for broker_id in brokers:
            self.start(broker_id)

    @property
    def next_offset(self) -> int:
        return self.image.offset + 1

    def apply(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        records = list(records)
        if records:
            self.image = self.image.apply_all(records, self.image.offset + len(records), 1)
        return records

    def run(self, deciding: Deciding[T]) -> T:
        result = decided(deciding)
        self.apply(result.records)
        return result.response

    def register(self, broker: BrokerRegistration) -> int:
        has_session = may_live_elsewhere(
            self.image, broker._replace(beside_controller=False), self.sessions, self.now_ms
        )
        return self.run(
            join_cluster(self.image, self.config, broker, self.next_offset, has_session=has_session)
        )

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        fence: bool = False,
        shutdown: bool = False,
        offline: tuple[UUID, ...] = (),
    ) -> HeartbeatReply:
        """As the active controller does it."""
        epoch = self.image.brokers[broker_id].epoch
        offset = self.image.offset if offset is None else offset
        heartbeat = BrokerHeartbeat(broker_id, epoch, offset, fence, shutdown, offline)
        self.sessions.heard(BrokerEpoch(broker_id, epoch), offset, self.now_ms)
        reply = self.run(process_heartbeat(self.image, self.config, self.sessions, heartbeat))
        if reply.begins_shutdown:
            self.sessions.begin_shutdown(broker_id, self.image.offset)
        return reply

    def start(self, broker_id: int, *, directories: int = 1, rack: str | None = None, life: int = 0) -> None:
        self.register(registration(broker_id, directories=directories, rack=rack, life=life))
        self.heartbeat(broker_id)

    def topic(self, name: str, *partitions: tuple[int, ...], **configs: str) -> None:
        """Each partition by its replicas, all of them in sync, the first one leading."""
        self.apply([TopicRecord(name=name, topic_id=topic_id(name))])
        for key, value in configs.items():
            self.set_config(name, key.replace("_", "."), value)
        self.apply(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id(name),
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(directory(broker_id) for broker_id in replicas),
            )
            for index, replicas in enumerate(partitions)
        )

    def set_config(self, topic: str, key: str, value: str) -> None:
        self.apply(
            [ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=key, value=value)]
        )

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[index]
