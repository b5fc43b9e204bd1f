"""The records of `__consumer_offsets`, in Apache Kafka's layouts and the versions Kafka 4.x writes.

A key starts with two bytes naming its type, a value with two bytes naming its version. Keys are what
compaction goes by; a missing value is a tombstone. Offset commits, by far the most frequent, have their own
codec in `offset_records`; the others are declared here and packed by kio, which reads the annotations at run
time, so this module cannot use postponed ones.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeVar

from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i16

from ottla.coordinator.groups.offset_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.record_codec import NUMBER, decoder, encoder

_LEGACY_OFFSET_KEY = 0
_OFFSET_KEY = 1

_STRING = {"kafka_type": "string"}
_BYTES = {"kafka_type": "bytes"}
_INT8 = {"kafka_type": "int8"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}
_UUID = {"kafka_type": "uuid"}


@dataclass(frozen=True, slots=True)
class _GroupKey:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    group: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True)
class _MemberKey:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    group: str = field(metadata=_STRING)
    member: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True)
class GroupMetadataKey(_GroupKey):
    """A whole classic group."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey(_GroupKey):
    """The epoch of a consumer group."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey(_GroupKey):
    """What Kafka 4.0 kept instead of the metadata hash; only ever tombstoned here."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey(_MemberKey):
    """What a member asked for."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey(_GroupKey):
    """The epoch the target assignment was computed for."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey(_MemberKey):
    """What a member shall own in the end."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey(_MemberKey):
    """What a member owns now."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """The topics a subscribed expression stands for."""

    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    group: str = field(metadata=_STRING)
    regex: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(3)
    __flexible__: ClassVar[bool] = False
    member_id: str = field(metadata=_STRING)
    group_instance_id: str | None = field(metadata=_STRING)
    client_id: str = field(metadata=_STRING)
    client_host: str = field(metadata=_STRING)
    rebalance_timeout: int = field(metadata=_INT32)
    session_timeout: int = field(metadata=_INT32)
    subscription: bytes = field(metadata=_BYTES)
    assignment: bytes = field(metadata=_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(3)
    __flexible__: ClassVar[bool] = False
    protocol_type: str = field(metadata=_STRING)
    generation: int = field(metadata=_INT32)
    protocol: str | None = field(metadata=_STRING)
    leader: str | None = field(metadata=_STRING)
    current_state_timestamp: int = field(metadata=_INT64)
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flexible:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue(_Flexible):
    epoch: int = field(metadata=_INT32)
    metadata_hash: int = field(metadata={**_INT64, "tag": 0}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol(_Flexible):
    __type__: ClassVar = EntityType.nested
    name: str = field(metadata=_STRING)
    metadata: bytes = field(metadata=_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata(_Flexible):
    __type__: ClassVar = EntityType.nested
    # Kafka marks a nullable structure as present even inside a tagged field; kio writes no mark there.
    present: int = field(metadata=_INT8, default=1)
    session_timeout_ms: int = field(metadata=_INT32)
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue(_Flexible):
    instance_id: str | None = field(metadata=_STRING)
    rack_id: str | None = field(metadata=_STRING)
    client_id: str = field(metadata=_STRING)
    client_host: str = field(metadata=_STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=_STRING)
    subscribed_topic_regex: str | None = field(metadata=_STRING)
    rebalance_timeout_ms: int = field(metadata=_INT32)
    server_assignor: str | None = field(metadata=_STRING)
    # May be None. Declared without, or kio would look for the mark of presence on its own while reading.
    classic_member_metadata: ClassicMemberMetadata = field(metadata={"tag": 0}, default=None)  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue(_Flexible):
    assignment_epoch: int = field(metadata=_INT32)
    assignment_timestamp: int = field(metadata={**_INT64, "tag": 0}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPartitions(_Flexible):
    __type__: ClassVar = EntityType.nested
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partitions: tuple[int, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue(_Flexible):
    topic_partitions: tuple[TargetPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentPartitions(_Flexible):
    __type__: ClassVar = EntityType.nested
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partitions: tuple[int, ...] = field(metadata=_INT32)
    assignment_epochs: tuple[int, ...] | None = field(metadata={**_INT32, "tag": 0}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue(_Flexible):
    member_epoch: int = field(metadata=_INT32)
    previous_member_epoch: int = field(metadata=_INT32)
    state: int = field(metadata=_INT8)
    assigned_partitions: tuple[CurrentPartitions, ...]
    partitions_pending_revocation: tuple[CurrentPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue(_Flexible):
    topics: tuple[str, ...] = field(metadata=_STRING)
    version: int = field(metadata=_INT64)
    timestamp: int = field(metadata=_INT64)


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadataKey(_MemberKey):
    """What a member of a share group asked for."""


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataKey(_GroupKey):
    """The epoch of a share group."""


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadataKey(_GroupKey):
    """The epoch the target assignment was computed for."""


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMemberKey(_MemberKey):
    """What a member shall read."""


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignmentKey(_MemberKey):
    """What a member was told to read."""


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadataKey(_GroupKey):
    """Of which partitions the share coordinator keeps the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMemberMetadataValue(_Flexible):
    rack_id: str | None = field(metadata=_STRING)
    client_id: str = field(metadata=_STRING)
    client_host: str = field(metadata=_STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMetadataValue(_Flexible):
    epoch: int = field(metadata=_INT32)
    metadata_hash: int = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupTargetAssignmentMetadataValue(_Flexible):
    assignment_epoch: int = field(metadata=_INT32)
    assignment_timestamp: int = field(metadata={**_INT64, "tag": 0}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupTargetAssignmentMemberValue(_Flexible):
    topic_partitions: tuple[TargetPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupCurrentMemberAssignmentValue(_Flexible):
    member_epoch: int = field(metadata=_INT32)
    previous_member_epoch: int = field(metadata=_INT32)
    state: int = field(metadata=_INT8)
    assigned_partitions: tuple[TargetPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTopic(_Flexible):
    __type__: ClassVar = EntityType.nested
    topic_id: uuid.UUID = field(metadata=_UUID)
    topic_name: str = field(metadata=_STRING)
    partitions: tuple[int, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletingTopic(_Flexible):
    __type__: ClassVar = EntityType.nested
    topic_id: uuid.UUID = field(metadata=_UUID)
    topic_name: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupStatePartitionMetadataValue(_Flexible):
    initializing_topics: tuple[SharedTopic, ...]
    initialized_topics: tuple[SharedTopic, ...]
    deleting_topics: tuple[DeletingTopic, ...]


ShareKey: TypeAlias = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)
ShareValue: TypeAlias = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)
Key: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | ShareKey
)
Value: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | ShareValue
)

# Key type number, key, value (None: never read for what it says).
_TYPES: tuple[tuple[int, type[Any], type[Any] | None], ...] = (
    (2, GroupMetadataKey, GroupMetadataValue),
    (3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (4, ConsumerGroupPartitionMetadataKey, None),
    (5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (10, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    (11, ShareGroupMetadataKey, ShareGroupMetadataValue),
    (12, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    (13, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    (14, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    (15, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    (16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)

_T = TypeVar("_T")


_NO_TAGS = b"\x00"
_NULL_IN_TAG_0 = b"\x01\x00\x01\xff"
"""One tagged field: number 0, one byte long, and that byte says null."""


def _without_null_structure(decode: Callable[[bytes], _T]) -> Callable[[bytes], _T]:
    """Kafka 4.3.1 ends a record with an optional structure that is null where others leave it out. kio knows
    no null there, see `ClassicMemberMetadata`."""

    def decode_either(data: bytes) -> _T:
        if data.endswith(_NULL_IN_TAG_0):
            try:
                return decode(data.removesuffix(_NULL_IN_TAG_0) + _NO_TAGS)
            except (SerialError, struct.error, IndexError):
                pass  # then these bytes were the end of something else
        return decode(data)

    return decode_either


_ENCODE_KEY: dict[type, Callable[[Any], bytes]] = {OffsetCommitKey: encode_offset_key}
_ENCODE_VALUE: dict[type, Callable[[Any], bytes]] = {OffsetCommitValue: encode_offset_value}
_DECODE_KEY: dict[int, Callable[[bytes], Any]] = {
    _LEGACY_OFFSET_KEY: decode_offset_key,
    _OFFSET_KEY: decode_offset_key,
}
_DECODE_VALUE: dict[tuple[type, int], Callable[[bytes], Any]] = {
    (OffsetCommitKey, version): decode_offset_value for version in range(5)
}
for _number, _key, _value in _TYPES:
    _ENCODE_KEY[_key] = encoder(_key, _number)
    _DECODE_KEY[_number] = decoder(_key)
    if _value is not None:
        _ENCODE_VALUE[_value] = encoder(_value, int(_value.__version__))
        _DECODE_VALUE[_key, int(_value.__version__)] = decoder(_value)
_MEMBER = ConsumerGroupMemberMetadataKey, 0
_DECODE_VALUE[_MEMBER] = _without_null_structure(_DECODE_VALUE[_MEMBER])


def encode(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    return _ENCODE_KEY[type(key)](key), None if value is None else _ENCODE_VALUE[type(value)](value)


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None]:
    """Raises UnknownRecord for what a newer release, or another kind of group, wrote."""
    if key is None or len(key) < NUMBER.size:
        raise UnknownRecord("record without a key")
    (number,) = NUMBER.unpack_from(key)
    decode_key = _DECODE_KEY.get(number)
    if decode_key is None:
        raise UnknownRecord(f"record key of type {number}")
    try:
        typed: Key = decode_key(key)
        if value is None:
            return typed, None
        (version,) = NUMBER.unpack_from(value)
        decode_value = _DECODE_VALUE.get((type(typed), version))
        if decode_value is None:
            raise UnknownRecord(f"{type(typed).__name__} with a value of version {version}")
        return typed, decode_value(value)
    except (SerialError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnknownRecord(f"malformed record with key type {number}: {error}") from error
