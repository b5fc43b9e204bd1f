"""The life of a broker between registration and stop, one heartbeat at a time.

    is / wants    | nothing                | to be fenced | to shut down
    fenced        | unfenced, if caught up | fenced       | stops
    unfenced      | unfenced               | fenced       | shuts down; stops if it leads nothing
    shuts down    | stops, once it leads nothing and all others know; until then it shuts down

Whoever stops is fenced, and so is who is not heard of for a session's time.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from ottla.config import BrokerConfig
from ottla.controller.brokers import check_broker_epoch
from ottla.controller.command import Deciding, Result
from ottla.controller.leadership import leads_any, with_broker, without_broker, without_directories
from ottla.controller.sessions import BrokerSessions
from ottla.metadata.cluster_records import BrokerRegistrationChangeRecord
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import MetadataRecord

_FENCE = 1
_UNFENCE = -1


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    SHUTTING_DOWN = "shutting down"
    STOPPING = "stopping"


class BrokerHeartbeat(NamedTuple):
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """Of the last record the broker has followed."""
    wants_fence: bool = False
    wants_shutdown: bool = False
    offline_directories: tuple[UUID, ...] = ()


class HeartbeatReply(NamedTuple):
    is_caught_up: bool
    state: BrokerState
    begins_shutdown: bool = False
    """With this heartbeat: the offset of its last record is what others have to know of."""

    @property
    def is_fenced(self) -> bool:
        return self.state in (BrokerState.FENCED, BrokerState.STOPPING)

    @property
    def should_shut_down(self) -> bool:
        return self.state is BrokerState.STOPPING


def process_heartbeat(
    image: MetadataImage, config: BrokerConfig, sessions: BrokerSessions, heartbeat: BrokerHeartbeat
) -> Deciding[HeartbeatReply]:
    """Raises StaleBrokerEpoch for a broker that is not registered, or not with this epoch."""
    check_broker_epoch(image, heartbeat.broker_id, heartbeat.broker_epoch)
    broker = image.brokers[heartbeat.broker_id]
    is_caught_up = heartbeat.metadata_offset >= broker.epoch
    state = _state(broker)
    after = _next_state(image, sessions, heartbeat, state)
    records: list[MetadataRecord] = []
    if after is not state:
        records += yield from _transition(image, config, broker, after)
    if heartbeat.offline_directories:
        if records:
            image = image.apply_all(records, image.offset + len(records), image.epoch)
        records += yield from _fail_directories(image, config, heartbeat)
    begins_shutdown = after is BrokerState.SHUTTING_DOWN and after is not state
    return Result(records, HeartbeatReply(is_caught_up, after, begins_shutdown))


def fence_broker(image: MetadataImage, config: BrokerConfig, broker_id: int, epoch: int) -> Deciding[None]:
    """Of a broker whose session is over. Nothing, if it has registered anew or is fenced already."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch or broker.fenced:
        return Result([], None)
    return Result((yield from _transition(image, config, broker, BrokerState.FENCED)), None)


def _state(broker: BrokerImage) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.SHUTTING_DOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def _next_state(
    image: MetadataImage, sessions: BrokerSessions, heartbeat: BrokerHeartbeat, state: BrokerState
) -> BrokerState:
    broker_id = heartbeat.broker_id
    match state:
        case BrokerState.FENCED:
            if heartbeat.wants_shutdown:
                return BrokerState.STOPPING
            broker = image.brokers[broker_id]
            # Whoever has begun to shut down has no way back but to register anew.
            may_serve = heartbeat.metadata_offset >= broker.epoch and not broker.in_controlled_shutdown
            return BrokerState.UNFENCED if may_serve and not heartbeat.wants_fence else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if heartbeat.wants_fence:
                return BrokerState.STOPPING if heartbeat.wants_shutdown else BrokerState.FENCED
            if heartbeat.wants_shutdown:
                return BrokerState.SHUTTING_DOWN if leads_any(image, broker_id) else BrokerState.STOPPING
            return BrokerState.UNFENCED
        case _:
            if not sessions.others_know_of_shutdown(image, broker_id) or leads_any(image, broker_id):
                return BrokerState.SHUTTING_DOWN
            return BrokerState.STOPPING


def _transition(
    image: MetadataImage, config: BrokerConfig, broker: BrokerImage, after: BrokerState
) -> Generator[None, None, list[MetadataRecord]]:
    # In an order in which each record stands for itself: they may come in several batches.
    match after:
        case BrokerState.UNFENCED:
            elections = yield from with_broker(image, config, broker.id)
            return [_change(broker, fenced=_UNFENCE), *elections]
        case BrokerState.SHUTTING_DOWN:
            moved = yield from without_broker(image, config, broker.id)
            return [_change(broker, in_controlled_shutdown=1), *moved]
        case BrokerState.FENCED | BrokerState.STOPPING:
            if broker.fenced:
                return []
            moved = yield from without_broker(image, config, broker.id)
            return [*moved, _change(broker, fenced=_FENCE)]


def _fail_directories(
    image: MetadataImage, config: BrokerConfig, heartbeat: BrokerHeartbeat
) -> Generator[None, None, list[MetadataRecord]]:
    broker = image.brokers[heartbeat.broker_id]
    failed = {*heartbeat.offline_directories} & {*broker.directories}
    if not failed:
        return []
    records = yield from without_directories(image, config, broker.id, failed)
    online = tuple(directory for directory in broker.directories if directory not in failed)
    if online:  # A registration cannot say that there is none left; such a broker stops, and is fenced then.
        records.append(_change(broker, directories=online))
    return records


def _change(
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    directories: tuple[UUID, ...] = (),
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=directories,
    )
