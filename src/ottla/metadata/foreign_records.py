"""Records that Apache Kafka's controller writes and Ottla's does not: read from logs that come from there.

Apart from the others because no ordinary start needs them, and declaring them takes time.
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
class FenceBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.FENCE_BROKER
    id: int = field(metadata=INT32)
    epoch: int = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.UNFENCE_BROKER
    id: int = field(metadata=INT32)
    epoch: int = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.BROKER_REGISTRATION_CHANGE
    VERSIONS: ClassVar[range] = range(3)
    __version__: ClassVar[i16] = i16(2)
    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)
    fenced: int = field(metadata=INT8 | {"tag": 0}, default=0)
    """1 fences, -1 unfences, 0 changes nothing."""
    in_controlled_shutdown: int = field(metadata=INT8 | {"tag": 1}, default=0)
    log_dirs: tuple[UUID, ...] = field(metadata=UUIDS | {"tag": 2}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.NO_OP


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.BEGIN_TRANSACTION
    name: str | None = field(metadata=STRING | {"tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.END_TRANSACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.ABORT_TRANSACTION
    reason: str | None = field(metadata=STRING | {"tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REGISTER_CONTROLLER
    controller_id: int = field(metadata=INT32)
    incarnation_id: UUID = field(metadata=UUIDS)
    zk_migration_ready: bool = field(metadata=BOOL, default=False)
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.CLEAR_ELR
    topic_name: str = field(metadata=STRING)
    """Empty for all topics."""


FOREIGN_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (
        UnregisterBrokerRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        BrokerRegistrationChangeRecord,
        NoOpRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
