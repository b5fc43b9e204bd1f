"""Records of the topics that coordinators keep their state in as JSON, by the names of Kafka's schemas."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from ottla.metadata.record_json import camel, entity

Data: TypeAlias = dict[str, Any]

_NUMBER = struct.Struct(">h")
_TRANSACTION = 0
_SHARE_SNAPSHOT = 0
# Which fields the versions of an offset commit have.
_COMMIT_FIELDS = {
    0: ("offset", "metadata", "commit_timestamp"),
    1: ("offset", "metadata", "commit_timestamp", "expire_timestamp"),
    2: ("offset", "metadata", "commit_timestamp"),
    3: ("offset", "leader_epoch", "metadata", "commit_timestamp"),
    4: ("offset", "leader_epoch", "metadata", "commit_timestamp"),
}


def transaction_record(key: bytes, value: bytes | None) -> tuple[Data, Data | None]:
    """Of `__transaction_state`."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    from ottla.coordinator.host.shard_kind import UnknownRecord
    from ottla.coordinator.transactions import records

    values: dict[int, Any] = {0: records.TransactionLogValueV0, 1: records.TransactionLogValueV1}
    if record_number(key) != _TRANSACTION:
        raise UnknownRecord(f"the record's key has the unknown type {record_number(key)}")
    if value is not None and record_number(value) not in values:
        raise UnknownRecord(f"the record's value has the unknown version {record_number(value)}")
    try:
        typed_key, _ = entity_reader(records.TransactionLogKey)(key, _NUMBER.size)
        if value is None:
            return entity(typed_key), None
        typed_value, _ = entity_reader(values[record_number(value)])(value, _NUMBER.size)
    except (SerialError, ValueError, IndexError, struct.error) as error:
        raise UnknownRecord(f"the record is malformed: {error}") from error
    return entity(typed_key), entity(typed_value)


def group_record(key: bytes, value: bytes | None) -> tuple[Data, Data | None]:
    """Of `__consumer_offsets`."""
    from ottla.coordinator.groups.offset_records import OffsetCommitKey, OffsetCommitValue
    from ottla.coordinator.groups.records import decode
    from ottla.metadata.uuids import uuid_text

    typed_key, typed_value = decode(key, value)
    key_data = typed_key._asdict() if isinstance(typed_key, OffsetCommitKey) else entity(typed_key)
    if typed_value is None or value is None:
        return key_data, None
    if isinstance(typed_value, OffsetCommitValue):
        shown = {camel(name): getattr(typed_value, name) for name in _COMMIT_FIELDS[record_number(value)]}
        if typed_value.topic_id is not None:
            shown["topicId"] = uuid_text(typed_value.topic_id)
        return key_data, shown
    return key_data, entity(typed_value)


def share_record(key: bytes, value: bytes | None) -> tuple[Data, Data | None]:
    """As `share_state_record`, for who does not see the type of the key."""
    key_data, value_data = share_state_record(key, value)
    return {"kind": "snapshot" if record_number(key) == _SHARE_SNAPSHOT else "update", **key_data}, value_data


def share_state_record(key: bytes, value: bytes | None) -> tuple[Data, Data | None]:
    """Of `__share_group_state`; which kind it is says the type of the key."""
    from ottla.coordinator.share.records import decode

    typed_key, typed_value = decode(key, value)
    return entity(typed_key), None if typed_value is None else entity(typed_value)


def record_number(data: bytes) -> int:
    """The type of a key, or the version of a value."""
    return int(_NUMBER.unpack_from(data)[0]) if len(data) >= _NUMBER.size else -1
