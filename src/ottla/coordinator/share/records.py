"""The records of `__share_group_state`, in Apache Kafka's layout.

A snapshot is all that is known of a share-partition; an update says what has changed since. Without a value a
snapshot is the end of the state. kio reads the annotations at run time, so this module cannot use postponed
ones.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i16

from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.record_codec import NUMBER, decoder, encoder

_STRING = {"kafka_type": "string"}
_UUID = {"kafka_type": "uuid"}
_INT8 = {"kafka_type": "int8"}
_INT16 = {"kafka_type": "int16"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}


@dataclass(frozen=True, slots=True)
class _Key:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata=_STRING)
    topic_id: uuid.UUID = field(metadata=_UUID)
    partition: int = field(metadata=_INT32)


@dataclass(frozen=True, slots=True)
class ShareSnapshotKey(_Key):
    """Of the whole state of a share-partition."""


@dataclass(frozen=True, slots=True)
class ShareUpdateKey(_Key):
    """Of a change to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flexible:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class StateBatch:
    """Records that are all in one state."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    first_offset: int = field(metadata=_INT64)
    last_offset: int = field(metadata=_INT64)
    delivery_state: int = field(metadata=_INT8)
    """0 is available, 2 acknowledged, 4 archived."""
    delivery_count: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSnapshotValue(_Flexible):
    snapshot_epoch: int = field(metadata=_INT32)
    state_epoch: int = field(metadata=_INT32)
    leader_epoch: int = field(metadata=_INT32)
    start_offset: int = field(metadata=_INT64)
    delivery_complete_count: int = field(metadata={**_INT32, "tag": 0}, default=-1)
    create_timestamp: int = field(metadata=_INT64)
    write_timestamp: int = field(metadata=_INT64)
    state_batches: tuple[StateBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareUpdateValue(_Flexible):
    snapshot_epoch: int = field(metadata=_INT32)
    leader_epoch: int = field(metadata=_INT32)
    start_offset: int = field(metadata=_INT64)
    delivery_complete_count: int = field(metadata={**_INT32, "tag": 0}, default=-1)
    state_batches: tuple[StateBatch, ...]


Key: TypeAlias = ShareSnapshotKey | ShareUpdateKey
Value: TypeAlias = ShareSnapshotValue | ShareUpdateValue

_ENCODE: dict[type, Callable[[Any], bytes]] = {
    ShareSnapshotKey: encoder(ShareSnapshotKey, 0),
    ShareUpdateKey: encoder(ShareUpdateKey, 1),
    ShareSnapshotValue: encoder(ShareSnapshotValue, 0),
    ShareUpdateValue: encoder(ShareUpdateValue, 0),
}
_DECODE: dict[int, tuple[Callable[[bytes], Any], Callable[[bytes], Any]]] = {
    0: (decoder(ShareSnapshotKey), decoder(ShareSnapshotValue)),
    1: (decoder(ShareUpdateKey), decoder(ShareUpdateValue)),
}


def encode(key: Key, value: Value | None) -> tuple[bytes, bytes | None]:
    return _ENCODE[type(key)](key), None if value is None else _ENCODE[type(value)](value)


def decode(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None]:
    """Raises UnknownRecord for what a newer release wrote."""
    if key is None or len(key) < NUMBER.size:
        raise UnknownRecord("record without a key")
    (number,) = NUMBER.unpack_from(key)
    if number not in _DECODE:
        raise UnknownRecord(f"record key of type {number}")
    decode_key, decode_value = _DECODE[number]
    try:
        typed: Key = decode_key(key)
        if value is None:
            return typed, None
        (version,) = NUMBER.unpack_from(value)
        if version != 0:
            raise UnknownRecord(f"{type(typed).__name__} with a value of version {version}")
        return typed, decode_value(value)
    except (SerialError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise UnknownRecord(f"malformed record with key type {number}: {error}") from error
