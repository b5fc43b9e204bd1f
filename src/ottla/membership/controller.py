"""`broker.controller` of a node in a cluster: what a broker itself wants of the controller, wherever that is.

Requests of clients are handed on as they are (`server/dispatch.py`), so that commands which only they lead to
are run where the active controller is; those that a broker gives on its own account are asked for here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import error_for, raise_for_code
from ottla.config import BrokerConfig
from ottla.controller.active import ActiveController
from ottla.controller.alter_partition import IsrChange, IsrOutcome
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.controller import LocalController
from ottla.controller.directories import DirectoryAssignment, DirectoryOutcome
from ottla.controller.heartbeats import BrokerHeartbeat, BrokerState, HeartbeatReply
from ottla.controller.producer_ids import ProducerIdBlock
from ottla.controller.topics import NewTopic, TopicOutcome
from ottla.membership.channel import ControllerChannel
from ottla.metadata.cluster_records import RegisterControllerRecord
from ottla.metadata.image import PartitionImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import Endpoint, SupportedFeature
from ottla.raft.driver import RaftDriver
from ottla.runtime import Runtime
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, NotController

if TYPE_CHECKING:
    from ottla.controller.supervision import Supervision


class Channels(NamedTuple):
    """Apart, so that a broker that waits for a long answer is not taken for dead."""

    life: ControllerChannel
    """Registration and heartbeats."""
    work: ControllerChannel


class ClusterController(LocalController):
    """As the local controller while that is active. Others must not be given this one: it would ask on."""

    def __init__(
        self,
        local: LocalController,
        runtime: Runtime,
        config: BrokerConfig,
        quorum: RaftDriver,
        publisher: MetadataPublisher,
        cluster_id: str,
        channels: Channels,
    ) -> None:
        super().__init__(runtime, config, quorum, publisher)
        self._local = local
        self._cluster_id = cluster_id
        self._life, self._work = channels

    @property
    def is_active(self) -> bool:
        return self._local.is_active

    @property
    def active(self) -> ActiveController:
        return self._local.active

    def _supervise(self) -> Supervision:
        return self._local._supervise()

    @property
    def is_in_touch(self) -> bool:
        return self.is_active or self._life.is_in_touch

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        if self.is_active:
            # What a client looks for may have to be made, too: it need not know of controllers.
            with contextlib.suppress(NotController):
                return await super().create_topics(topics, validate_only=validate_only)
        values = {
            "topics": [_creatable(topic) for topic in topics],
            "timeout": self._work.timeout_ms,
            "validate_only": validate_only,
        }
        answer = await self._work.ask(ApiKey.CREATE_TOPICS, values)
        return [_outcome(result) for result in answer.topics]

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        if self.is_active:
            return await super().allocate_producer_ids(broker_id, broker_epoch)
        answer = await self._work.ask(
            ApiKey.ALLOCATE_PRODUCER_IDS, {"broker_id": broker_id, "broker_epoch": broker_epoch}
        )
        raise_for_code(answer.error_code, None, f"broker {broker_id}")
        return ProducerIdBlock(answer.producer_id_start, answer.producer_id_len)

    async def register_broker(self, registration: BrokerRegistration) -> int:
        # Also where the controller is in this process: it is to be fenced until it is ready.
        if self.is_active:
            return await super().register_broker(registration._replace(beside_controller=False))
        answer = await self._life.ask(
            ApiKey.BROKER_REGISTRATION,
            {
                "broker_id": registration.broker_id,
                "cluster_id": self._cluster_id,
                "incarnation_id": registration.incarnation_id,
                "listeners": _listeners(registration.endpoints),
                "features": _features(registration.features),
                "rack": registration.rack,
                "log_dirs": registration.directories,
                "previous_broker_epoch": registration.previous_epoch,
            },
        )
        raise_for_code(answer.error_code, None, f"broker {registration.broker_id}")
        epoch: int = answer.broker_epoch
        return epoch

    async def register_controller(self, registration: RegisterControllerRecord) -> None:
        if self.is_active:
            await super().register_controller(registration)
            return
        answer = await self._work.ask(
            ApiKey.CONTROLLER_REGISTRATION,
            {
                "controller_id": registration.controller_id,
                "incarnation_id": registration.incarnation_id,
                "zk_migration_ready": False,
                "listeners": _listeners(registration.end_points),
                "features": _features(registration.features),
            },
        )
        raise_for_code(answer.error_code, answer.error_message, f"controller {registration.controller_id}")

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> HeartbeatReply:
        if self.is_active:
            return await super().heartbeat(heartbeat)
        answer = await self._life.ask(
            ApiKey.BROKER_HEARTBEAT,
            {
                "broker_id": heartbeat.broker_id,
                "broker_epoch": heartbeat.broker_epoch,
                "current_metadata_offset": heartbeat.metadata_offset,
                "want_fence": heartbeat.wants_fence,
                "want_shut_down": heartbeat.wants_shutdown,
                "offline_log_dirs": heartbeat.offline_directories,
            },
        )
        raise_for_code(answer.error_code, None, f"broker {heartbeat.broker_id}")
        if answer.should_shut_down:
            state = BrokerState.STOPPING
        elif answer.is_fenced:
            state = BrokerState.FENCED
        else:
            state = BrokerState.SHUTTING_DOWN if heartbeat.wants_shutdown else BrokerState.UNFENCED
        return HeartbeatReply(answer.is_caught_up, state)

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrOutcome]:
        if self.is_active:
            return await super().alter_partitions(broker_id, broker_epoch, changes)
        by_topic = groupby(sorted(changes, key=_topic_of), key=_topic_of)
        answer = await self._work.ask(
            ApiKey.ALTER_PARTITION,
            {
                "broker_id": broker_id,
                "broker_epoch": broker_epoch,
                "topics": [
                    {"topic_id": topic_id, "partitions": [_isr_wanted(change) for change in of_topic]}
                    for topic_id, of_topic in by_topic
                ],
            },
        )
        raise_for_code(answer.error_code, None, f"broker {broker_id}")
        return [
            _isr_outcome(topic.topic_id, partition)
            for topic in answer.topics
            for partition in topic.partitions
        ]

    async def assign_directories(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[DirectoryOutcome]:
        if self.is_active:
            return await super().assign_directories(broker_id, broker_epoch, assignments)
        answer = await self._work.ask(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            {
                "broker_id": broker_id,
                "broker_epoch": broker_epoch,
                "directories": [
                    {
                        "id_": directory,
                        "topics": [
                            {
                                "topic_id": topic_id,
                                "partitions": [{"partition_index": each.partition} for each in of_topic],
                            }
                            for topic_id, of_topic in groupby(there, key=_topic_of)
                        ],
                    }
                    for directory, there in groupby(sorted(assignments), key=lambda each: each.directory)
                ],
            },
        )
        raise_for_code(answer.error_code, None, f"broker {broker_id}")
        return [
            DirectoryOutcome(
                DirectoryAssignment(directory.id_, topic.topic_id, partition.partition_index),
                _error(partition.error_code, None, f"partition {partition.partition_index}"),
            )
            for directory in answer.directories
            for topic in directory.topics
            for partition in topic.partitions
        ]


def _listeners(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "host": each.host, "port": each.port, "security_protocol": each.security_protocol}
        for each in endpoints
    ]


def _features(features: Sequence[SupportedFeature]) -> list[dict[str, Any]]:
    return [
        {
            "name": feature.name,
            "min_supported_version": feature.min_supported_version,
            "max_supported_version": feature.max_supported_version,
        }
        for feature in features
    ]


def _topic_of(change: IsrChange | DirectoryAssignment) -> Any:
    return change.topic_id


def _creatable(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "assignments": [
            {"partition_index": partition, "broker_ids": broker_ids}
            for partition, broker_ids in topic.assignments
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs],
    }


def _outcome(result: Any) -> TopicOutcome:
    return TopicOutcome(
        result.name,
        result.topic_id,
        _error(result.error_code, result.error_message, result.name),
        result.num_partitions,
        result.replication_factor,
    )


def _isr_wanted(change: IsrChange) -> dict[str, Any]:
    members = [{"broker_id": each.broker_id, "broker_epoch": each.broker_epoch} for each in change.isr]
    return {
        "partition_index": change.partition,
        "leader_epoch": change.leader_epoch,
        "new_isr": [each.broker_id for each in change.isr],
        "new_isr_with_epochs": members,
        "leader_recovery_state": change.recovery_state,
        "partition_epoch": change.partition_epoch,
    }


def _isr_outcome(topic_id: Any, partition: Any) -> IsrOutcome:
    about = f"partition {partition.partition_index}"
    if (error := _error(partition.error_code, None, about)) is not None:
        return IsrOutcome(topic_id, partition.partition_index, error=error)
    # The answer does not say who has replicas and where; that did not change.
    state = PartitionImage(
        replicas=(),
        isr=tuple(partition.isr),
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=(),
        leader_recovery_state=partition.leader_recovery_state,
    )
    return IsrOutcome(topic_id, partition.partition_index, state)


def _error(code: ErrorCode, message: str | None, about: str) -> KafkaError | None:
    return None if code == ErrorCode.none else error_for(code, message, about)
