"""Brokers that join a cluster: checked, registered as fenced; a heartbeat unfences them once they caught up.

`brokers.register_broker` is for one that has the whole cluster to itself.
"""

from __future__ import annotations

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration
from ottla.controller.command import Deciding, Result
from ottla.controller.leadership import Changing, without_broker, without_lost_broker
from ottla.controller.sessions import BrokerEpoch, BrokerSessions
from ottla.metadata.cluster_records import UnregisterBrokerRecord
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import MetadataRecord, RegisterBrokerRecord
from ottla.metadata.uuids import RESERVED_MAX, uuid_text
from ottla.wire.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRegistration,
    UnsupportedVersion,
)


def join_cluster(
    image: MetadataImage,
    config: BrokerConfig,
    registration: BrokerRegistration,
    next_offset: int,
    *,
    has_session: bool,
) -> Deciding[int]:
    """The response is the broker's epoch: the offset of the record that registers it.

    What the broker's former life left behind is put away first. The records need not be in one batch, as
    the one that registers it is the last: until that is written, the broker asks again. `has_session` says
    whether the broker that is registered under this id has been heard of lately.
    """
    known = image.brokers.get(registration.broker_id)
    is_known = known is not None and known.incarnation_id == registration.incarnation_id
    if known is not None and has_session and not is_known:
        raise DuplicateBrokerRegistration(
            f"Another broker is registered with the id {registration.broker_id} and alive. If the broker was "
            "restarted just now, this resolves itself when the session of its former life is over; otherwise "
            "give one of the two another node.id."
        )
    _check_directories(image, registration)
    _check_features(image, registration)
    records: list[MetadataRecord] = []
    if known is not None and is_known:
        record = _record(registration, known.epoch, known)
        if _registered(record) == known:
            return Result([], known.epoch)
    else:
        records += yield from _put_away(image, config, registration, known)
        record = _record(registration, next_offset + len(records))
    records.append(record)
    return Result(records, record.broker_epoch)


def may_live_elsewhere(
    image: MetadataImage, registration: BrokerRegistration, sessions: BrokerSessions, now_ms: int
) -> bool:
    """Whether the broker that is registered under this id may be a process that still runs."""
    known = image.brokers.get(registration.broker_id)
    if known is None or registration.beside_controller or registration.previous_epoch == known.epoch:
        # Who starts beside the controller holds the directories of its former life; who stopped in order
        # wrote there with which epoch it did: that life is over.
        return False
    session = BrokerEpoch(known.id, known.epoch)
    if {*known.directories} & {*registration.directories}:
        # It holds them now. Unless somebody else was heard of, there is nobody to wait for: the whole cluster
        # was stopped, or this broker while there was no controller.
        return sessions.is_heard(session, now_ms)
    return sessions.is_live(session, now_ms)


def unregister_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Deciding[None]:
    """Raises BrokerIdNotRegistered. One that is alive registers again when it is started anew, not before."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
    records = yield from without_lost_broker(image, config, broker_id)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Result(records, None)


def _put_away(
    image: MetadataImage, config: BrokerConfig, registration: BrokerRegistration, known: BrokerImage | None
) -> Changing:
    stopped_in_order = known is not None and known.epoch == registration.previous_epoch
    if image.keeps_eligible_replicas and not stopped_in_order:
        return without_lost_broker(image, config, registration.broker_id)
    return without_broker(image, config, registration.broker_id)


def _check_directories(image: MetadataImage, registration: BrokerRegistration) -> None:
    directories = registration.directories
    if not directories:
        raise InvalidRegistration(f"Broker {registration.broker_id} has named no log directories")
    for directory in directories:
        if directory.int <= RESERVED_MAX:
            raise InvalidRegistration(
                f"Broker {registration.broker_id} has named the reserved directory ID {uuid_text(directory)}"
            )
        for broker in image.brokers.values():
            if broker.id != registration.broker_id and directory in broker.directories:
                raise InvalidRegistration(
                    f"Broker {broker.id} is already registered with directory {uuid_text(directory)}; "
                    f"broker {registration.broker_id} must not use a copy of it"
                )
    if len({*directories}) < len(directories):
        raise InvalidRegistration(
            f"Broker {registration.broker_id} has named the same log directory more than once"
        )


def _check_features(image: MetadataImage, registration: BrokerRegistration) -> None:
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in registration.features
    }
    if METADATA_VERSION not in supported:
        raise InvalidRegistration(
            f"Broker {registration.broker_id} does not say which levels of {METADATA_VERSION} it supports"
        )
    for name in sorted({*supported, *image.features}):
        low, high = supported.get(name, (0, 0))
        level = image.features.get(name, 0)
        if not low <= level <= high:
            raise UnsupportedVersion(
                f"Unable to register because broker {registration.broker_id} does not support finalized "
                f"version {level} of {name}. The broker wants a version between {low} and {high}, inclusive."
            )


def _record(
    registration: BrokerRegistration, epoch: int, known: BrokerImage | None = None
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=epoch,
        end_points=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=known is None or known.fenced,
        in_controlled_shutdown=known is not None and known.in_controlled_shutdown,
        log_dirs=registration.directories,
    )


def _registered(record: RegisterBrokerRecord) -> BrokerImage | None:
    """The broker as replaying the record has it."""
    image = MetadataImage().apply_all([record], 0, 0)
    return image.brokers.get(record.broker_id)
