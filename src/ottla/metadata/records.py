"""The records of the metadata log, byte for byte as a Kafka 4.x controller writes them.

Each declaration carries its record type, the version it is written in and the versions it can read (fields
that later versions added as tagged fields need no declaration of their own). A value in the log is framed:

    frame version uvarint (1) · record type uvarint · version uvarint · body

No `from __future__ import annotations` here: kio derives its codecs from the fields' types, not from strings.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i16

from ottla.varints import read_uvarint, uvarint

FRAME_VERSION = 1

INT8 = {"kafka_type": "int8"}
INT16 = {"kafka_type": "int16"}
UINT16 = {"kafka_type": "uint16"}
INT32 = {"kafka_type": "int32"}
INT64 = {"kafka_type": "int64"}
BOOL = {"kafka_type": "bool"}
FLOAT64 = {"kafka_type": "float64"}
STRING = {"kafka_type": "string"}
BYTES = {"kafka_type": "bytes"}
UUIDS = {"kafka_type": "uuid"}

LEADER_UNCHANGED = -2
NO_LEADER = -1


class RecordType(IntEnum):
    """All that Kafka has. Those in `foreign_records` are only read; `cluster_records` and
    `access_records` have the rest."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28
    UNREGISTER_CONTROLLER = 29


class MetadataRecordError(Exception):
    """Bytes in the metadata log that this version cannot read. The text names the record."""


class MetadataRecord:
    """Base of all records. `__version__` is the version written, `VERSIONS` those that can be read."""

    __slots__ = ()
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    API_KEY: ClassVar[RecordType]
    VERSIONS: ClassVar[range] = range(1)


class Nested:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Nested):
    name: str = field(metadata=STRING)
    host: str = field(metadata=STRING)
    port: int = field(metadata=UINT16)
    security_protocol: int = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeature(Nested):
    name: str = field(metadata=STRING)
    min_supported_version: int = field(metadata=INT16)
    max_supported_version: int = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REGISTER_BROKER
    VERSIONS: ClassVar[range] = range(2, 5)
    __version__: ClassVar[i16] = i16(3)
    broker_id: int = field(metadata=INT32)
    is_migrating_zk_broker: bool = field(metadata=BOOL, default=False)
    incarnation_id: UUID = field(metadata=UUIDS)
    broker_epoch: int = field(metadata=INT64)
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None = field(metadata=STRING, default=None)
    fenced: bool = field(metadata=BOOL, default=True)
    in_controlled_shutdown: bool = field(metadata=BOOL, default=False)
    log_dirs: tuple[UUID, ...] = field(metadata=UUIDS | {"tag": 0}, default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata=UUIDS | {"tag": 1}, default=None)
    """Since version 4, which Ottla reads and does not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.TOPIC
    name: str = field(metadata=STRING)
    topic_id: UUID = field(metadata=UUIDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.PARTITION
    VERSIONS: ClassVar[range] = range(1, 3)
    __version__: ClassVar[i16] = i16(2)
    partition_id: int = field(metadata=INT32)
    topic_id: UUID = field(metadata=UUIDS)
    replicas: tuple[int, ...] = field(metadata=INT32)
    isr: tuple[int, ...] = field(metadata=INT32)
    removing_replicas: tuple[int, ...] = field(metadata=INT32, default=())
    adding_replicas: tuple[int, ...] = field(metadata=INT32, default=())
    leader: int = field(metadata=INT32)
    leader_recovery_state: int = field(metadata=INT8 | {"tag": 0}, default=0)
    leader_epoch: int = field(metadata=INT32)
    partition_epoch: int = field(metadata=INT32)
    directories: tuple[UUID | None, ...] = field(metadata=UUIDS)
    """kio reads the zero UUID, which here means "chosen by the broker, not told to us", as None."""
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 1}, default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 2}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.CONFIG
    resource_type: int = field(metadata=INT8)
    resource_name: str = field(metadata=STRING)
    name: str = field(metadata=STRING)
    value: str | None = field(metadata=STRING)
    """None deletes the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(MetadataRecord):
    """None and the negative sentinels mean "unchanged"."""

    API_KEY: ClassVar[RecordType] = RecordType.PARTITION_CHANGE
    VERSIONS: ClassVar[range] = range(3)
    __version__: ClassVar[i16] = i16(2)
    partition_id: int = field(metadata=INT32)
    topic_id: UUID = field(metadata=UUIDS)
    isr: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 0}, default=None)
    leader: int = field(metadata=INT32 | {"tag": 1}, default=LEADER_UNCHANGED)
    replicas: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 2}, default=None)
    removing_replicas: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 3}, default=None)
    adding_replicas: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 4}, default=None)
    leader_recovery_state: int = field(metadata=INT8 | {"tag": 5}, default=-1)
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 6}, default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata=INT32 | {"tag": 7}, default=None)
    directories: tuple[UUID | None, ...] | None = field(metadata=UUIDS | {"tag": 8}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.REMOVE_TOPIC
    topic_id: UUID = field(metadata=UUIDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.FEATURE_LEVEL
    name: str = field(metadata=STRING)
    feature_level: int = field(metadata=INT16)
    """0 removes the feature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(MetadataRecord):
    API_KEY: ClassVar[RecordType] = RecordType.PRODUCER_IDS
    broker_id: int = field(metadata=INT32)
    broker_epoch: int = field(metadata=INT64)
    next_producer_id: int = field(metadata=INT64)


RECORD_TYPES: dict[int, type[MetadataRecord]] = {
    record_type.API_KEY: record_type
    for record_type in (
        RegisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        RemoveTopicRecord,
        FeatureLevelRecord,
        ProducerIdsRecord,
    )
}


class _Codec(NamedTuple):
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any, Any], None]
    header: bytes


_codecs: dict[type[MetadataRecord], _Codec] = {}


def _codec(record_type: type[Any]) -> _Codec:
    """Built on first use: deriving all of them would be felt at every start."""
    codec = _codecs.get(record_type)
    if codec is None:
        frame = (FRAME_VERSION, record_type.API_KEY, record_type.__version__)
        header = b"".join(map(uvarint, frame))
        codec = _Codec(entity_reader(record_type), entity_writer(record_type), header)
        _codecs[record_type] = codec
    return codec


def encode_record(record: MetadataRecord) -> bytes:
    """The value of one record of the metadata log."""
    codec = _codec(type(record))
    buffer = io.BytesIO()
    buffer.write(codec.header)
    codec.write(buffer, record)
    return buffer.getvalue()


def decode_record(value: bytes) -> MetadataRecord:
    try:
        frame_version, at = read_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise MetadataRecordError(
                f"metadata record has frame version {frame_version}; only {FRAME_VERSION} can be read"
            )
        api_key, at = read_uvarint(value, at)
        version, at = read_uvarint(value, at)
    except IndexError as error:
        raise MetadataRecordError(
            f"metadata record of {len(value)} bytes has a bad frame: {error}"
        ) from error
    record_type = RECORD_TYPES.get(api_key) or _rare_type(api_key)
    name = record_type.__name__
    if version not in record_type.VERSIONS:
        raise MetadataRecordError(
            f"metadata record {name} has version {version}; this version reads "
            f"{record_type.VERSIONS[0]} to {record_type.VERSIONS[-1]}"
        )
    try:
        record, size = _codec(record_type).read(value, at)
    except (SerialError, KeyError, ValueError) as error:
        raise MetadataRecordError(
            f"metadata record {name} version {version} is malformed: {error}"
        ) from error
    if at + size != len(value):
        raise MetadataRecordError(f"metadata record {name} has {len(value) - at - size} bytes after its end")
    assert isinstance(record, MetadataRecord)
    return record


def _rare_type(api_key: int) -> type[MetadataRecord]:
    from ottla.metadata.access_records import ACCESS_TYPES
    from ottla.metadata.cluster_records import CLUSTER_TYPES

    record_type = CLUSTER_TYPES.get(api_key) or ACCESS_TYPES.get(api_key)
    if record_type is None:
        from ottla.metadata.foreign_records import FOREIGN_TYPES

        record_type = FOREIGN_TYPES.get(api_key)
    if record_type is None:
        known = {int(kind): kind.name for kind in RecordType}
        name = known.get(api_key, "of an unknown kind")
        raise MetadataRecordError(f"metadata record {name} (type {api_key}) is not supported by this version")
    return record_type
