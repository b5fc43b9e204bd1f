"""Records of who may do what, and how much of it: access rules and quotas.

Apart from the others because many clusters have none, and declaring them takes time.
"""

from dataclasses import dataclass, field
from typing import ClassVar
from uuid import UUID

from ottla.metadata.records import (
    BOOL,
    FLOAT64,
    INT8,
    STRING,
    UUIDS,
    MetadataRecord,
    Nested,
    RecordType,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.ACCESS_CONTROL_ENTRY
    id: UUID = field(metadata=UUIDS)
    resource_type: int = field(metadata=INT8)
    resource_name: str = field(metadata=STRING)
    pattern_type: int = field(metadata=INT8)
    principal: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    operation: int = field(metadata=INT8)
    permission_type: int = field(metadata=INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REMOVE_ACCESS_CONTROL_ENTRY
    id: UUID = field(metadata=UUIDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity(Nested):
    entity_type: str = field(metadata=STRING)
    entity_name: str | None = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.CLIENT_QUOTA
    entity: tuple[QuotaEntity, ...]
    key: str = field(metadata=STRING)
    value: float = field(metadata=FLOAT64)
    remove: bool = field(metadata=BOOL)


ACCESS_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (AccessControlEntryRecord, RemoveAccessControlEntryRecord, ClientQuotaRecord)
}
