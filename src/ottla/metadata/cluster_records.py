"""Records of a cluster with more than one node: controllers, brokers that are fenced, shut down or leave it.

Apart from the others because a broker alone writes none of them, and declaring them takes time.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from kio.static.primitive import i16

from ottla.metadata.records import (
    BOOL,
    INT8,
    INT32,
    INT64,
    STRING,
    UUIDS,
    Endpoint,
    MetadataRecord,
    RecordType,
    SupportedFeature,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.UNREGISTER_BROKER
    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.BROKER_REGISTRATION_CHANGE
    VERSIONS: ClassVar[range] = range(4)
    __version__: ClassVar[i16] = i16(2)
    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)
    fenced: int = field(metadata=INT8 | {"tag": 0}, default=0)
    """1 fences, -1 unfences, 0 changes nothing."""
    in_controlled_shutdown: int = field(metadata=INT8 | {"tag": 1}, default=0)
    log_dirs: tuple[UUID, ...] = field(metadata=UUIDS | {"tag": 2}, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata=UUIDS | {"tag": 3}, default=None)
    """Since version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.CLEAR_ELR
    topic_name: str = field(metadata=STRING)
    """Empty for all topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REGISTER_CONTROLLER
    controller_id: int = field(metadata=INT32)
    incarnation_id: UUID = field(metadata=UUIDS)
    zk_migration_ready: bool = field(metadata=BOOL, default=False)
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]


CLUSTER_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (
        UnregisterBrokerRecord,
        BrokerRegistrationChangeRecord,
        ClearElrRecord,
        RegisterControllerRecord,
    )
}
