"""Records of coordinators as JSON: for the console consumer's formatters and the dump of a log."""

from __future__ import annotations

import base64
import importlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.cli.files.record_json import camel, compact, entity

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.cli.cluster.formatters import Formatter

Data: TypeAlias = dict[str, Any]
Decode: TypeAlias = "Callable[[bytes, bytes | None], tuple[Data, Data | None]]"

_TYPE = struct.Struct(">h")
_OFFSET_TYPES = {0, 1}
_TRANSACTION = 0
# Newer versions of what consumers embed begin as this one does.
_EMBEDDED_VERSION_MAX = 3
# Which fields the versions of an offset commit have.
_COMMIT_FIELDS = {
    0: ("offset", "metadata", "commit_timestamp"),
    1: ("offset", "metadata", "commit_timestamp", "expire_timestamp"),
    2: ("offset", "metadata", "commit_timestamp"),
    3: ("offset", "leader_epoch", "metadata", "commit_timestamp"),
    4: ("offset", "leader_epoch", "metadata", "commit_timestamp"),
}


def message_formatter(*, offsets: bool) -> Formatter:
    """Offset commits, or everything about groups; other records are passed over, as in Apache Kafka."""
    return _formatter(group_record, lambda number: (number in _OFFSET_TYPES) == offsets)


def transaction_formatter() -> Formatter:
    return _formatter(transaction_record, lambda number: number == _TRANSACTION)


def _formatter(decode: Decode, wanted: Callable[[int], bool]) -> Formatter:
    from ottla.coordinator.host.shard_kind import UnknownRecord

    def form(message: Message) -> bytes:
        key: Any = message.key()
        value: Any = message.value()
        if key is None or not wanted(_number(key)):
            return b""
        try:
            key_data, value_data = decode(key, value)
        except UnknownRecord:
            return b""
        shown = {
            "key": {"type": _number(key), "data": key_data},
            "value": None if value is None else {"version": _number(value), "data": value_data},
        }
        return (compact(shown) + "\n").encode()

    return form


def dumped(
    decode: Decode, key: bytes | None, value: bytes | None, offset: int
) -> tuple[str | None, str | None]:
    """Key and payload as a dump of the log shows them."""
    from ottla.coordinator.host.shard_kind import UnknownRecord

    if key is None:
        return f"Error at offset {offset}, skipping. The record has no key.", None
    try:
        key_data, value_data = decode(key, value)
    except UnknownRecord as error:
        return f"Error at offset {offset}, skipping. {error}", None
    shown_key = compact({"type": str(_number(key)), "data": key_data})
    if value is None:
        return shown_key, "<DELETE>"
    if value_data is not None and value_data.get("protocolType") == "consumer":
        for member in value_data["members"]:
            _open_embedded(member)
    return shown_key, compact({"version": str(_number(value)), "data": value_data})


def _open_embedded(member: Data) -> None:
    """What a consumer told its group leader and was told is opaque to the broker, but not to readers."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    for name in ("subscription", "assignment"):
        data = base64.b64decode(member[name])
        version = min(_number(data), _EMBEDDED_VERSION_MAX)
        if version < 0:
            continue
        module = importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
        kind = getattr(module, f"ConsumerProtocol{name.capitalize()}")
        try:
            member[name] = entity(entity_reader(kind)(data, _TYPE.size)[0])
        except (SerialError, ValueError, IndexError, struct.error):
            # Then it is another client's own format, and stays as it is.
            continue


def transaction_record(key: bytes, value: bytes | None) -> tuple[Data, Data | None]:
    """Of `__transaction_state`."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    from ottla.coordinator.host.shard_kind import UnknownRecord
    from ottla.coordinator.transactions import records

    values: dict[int, Any] = {0: records.TransactionLogValueV0, 1: records.TransactionLogValueV1}
    if _number(key) != _TRANSACTION:
        raise UnknownRecord(f"the record's key has the unknown type {_number(key)}")
    if value is not None and _number(value) not in values:
        raise UnknownRecord(f"the record's value has the unknown version {_number(value)}")
    try:
        typed_key, _ = entity_reader(records.TransactionLogKey)(key, _TYPE.size)
        if value is None:
            return entity(typed_key), None
        typed_value, _ = entity_reader(values[_number(value)])(value, _TYPE.size)
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
        shown = {camel(name): getattr(typed_value, name) for name in _COMMIT_FIELDS[_number(value)]}
        if typed_value.topic_id is not None:
            shown["topicId"] = uuid_text(typed_value.topic_id)
        return key_data, shown
    return key_data, entity(typed_value)


def _number(data: bytes) -> int:
    """The type of a key, or the version of a value."""
    return int(_TYPE.unpack_from(data)[0]) if len(data) >= _TYPE.size else -1
