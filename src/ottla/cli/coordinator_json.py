"""Records of `__consumer_offsets` as JSON: for the console consumer's formatters and the dump of a log."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.cli.record_json import camel, compact, entity

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.cli.formatters import Formatter

_TYPE = struct.Struct(">h")
_OFFSET_TYPES = {0, 1}
_GROUP_METADATA = 2
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
    from ottla.coordinator.records import UnknownRecord

    def form(message: Message) -> bytes:
        key: Any = message.key()
        value: Any = message.value()
        if key is None or (_number(key) in _OFFSET_TYPES) != offsets:
            return b""
        try:
            key_data, value_data = decoded(key, value)
        except UnknownRecord:
            return b""
        shown = {
            "key": {"type": _number(key), "data": key_data},
            "value": None if value is None else {"version": _number(value), "data": value_data},
        }
        return (compact(shown) + "\n").encode()

    return form


def dumped(key: bytes | None, value: bytes | None, offset: int) -> tuple[str | None, str | None]:
    """Key and payload as a dump of the log shows them."""
    from ottla.coordinator.records import UnknownRecord

    if key is None:
        return f"Error at offset {offset}, skipping. The record has no key.", None
    try:
        key_data, value_data = decoded(key, value)
    except UnknownRecord as error:
        return f"Error at offset {offset}, skipping. {error}", None
    shown_key = compact({"type": str(_number(key)), "data": key_data})
    if value is None:
        return shown_key, "<DELETE>"
    return shown_key, compact({"version": str(_number(value)), "data": value_data})


def decoded(key: bytes, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    from ottla.coordinator.offset_records import OffsetCommitKey, OffsetCommitValue
    from ottla.coordinator.records import decode
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
