"""Records that Apache Kafka's controller writes and Ottla's does not: read from logs that come from there.

Apart from the others because no ordinary start needs them, and declaring them takes time.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from ottla.metadata.records import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    MetadataRecord,
    RecordType,
)


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
class UnregisterControllerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.UNREGISTER_CONTROLLER
    controller_id: int = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkMigrationStateRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.ZK_MIGRATION_STATE
    zk_migration_state: int = field(metadata=INT8)


# From here on: what an image carries without serving it (`carried`).


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.USER_SCRAM_CREDENTIAL
    name: str = field(metadata=STRING)
    mechanism: int = field(metadata=INT8)
    salt: bytes = field(metadata=BYTES)
    stored_key: bytes = field(metadata=BYTES)
    server_key: bytes = field(metadata=BYTES)
    iterations: int = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REMOVE_USER_SCRAM_CREDENTIAL
    name: str = field(metadata=STRING)
    mechanism: int = field(metadata=INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.DELEGATION_TOKEN
    owner: str = field(metadata=STRING)
    requester: str = field(metadata=STRING)
    renewers: tuple[str, ...] = field(metadata=STRING)
    issue_timestamp: int = field(metadata=INT64)
    max_timestamp: int = field(metadata=INT64)
    expiration_timestamp: int = field(metadata=INT64)
    token_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDelegationTokenRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REMOVE_DELEGATION_TOKEN
    token_id: str = field(metadata=STRING)


FOREIGN_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        NoOpRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        UnregisterControllerRecord,
        ZkMigrationStateRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
        DelegationTokenRecord,
        RemoveDelegationTokenRecord,
    )
}
