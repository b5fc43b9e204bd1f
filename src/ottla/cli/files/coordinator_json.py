"""Records of coordinators as JSON: for the console consumer's formatters and the dump of a log."""

from __future__ import annotations

import base64
import importlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.coordinator.record_json import Data, group_record, record_number, transaction_record
from ottla.metadata.record_json import compact, entity

if TYPE_CHECKING:
    from confluent_kafka import Message

    from ottla.cli.cluster.formatters import Formatter

Decode: TypeAlias = "Callable[[bytes, bytes | None], tuple[Data, Data | None]]"

_TYPE = struct.Struct(">h")
_OFFSET_TYPES = {0, 1}
_TRANSACTION = 0
# Newer versions of what consumers embed begin as this one does.
_EMBEDDED_VERSION_MAX = 3


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
        if key is None or not wanted(record_number(key)):
            return b""
        try:
            key_data, value_data = decode(key, value)
        except UnknownRecord:
            return b""
        shown = {
            "key": {"type": record_number(key), "data": key_data},
            "value": None if value is None else {"version": record_number(value), "data": value_data},
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
    shown_key = compact({"type": str(record_number(key)), "data": key_data})
    if value is None:
        return shown_key, "<DELETE>"
    if value_data is not None and value_data.get("protocolType") == "consumer":
        for member in value_data["members"]:
            _open_embedded(member)
    return shown_key, compact({"version": str(record_number(value)), "data": value_data})


def _open_embedded(member: Data) -> None:
    """What a consumer told its group leader and was told is opaque to the broker, but not to readers."""
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    for name in ("subscription", "assignment"):
        data = base64.b64decode(member[name])
        version = min(record_number(data), _EMBEDDED_VERSION_MAX)
        if version < 0:
            continue
        module = importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
        kind = getattr(module, f"ConsumerProtocol{name.capitalize()}")
        try:
            member[name] = entity(entity_reader(kind)(data, _TYPE.size)[0])
        except (SerialError, ValueError, IndexError, struct.error):
            # Then it is another client's own format, and stays as it is.
            continue
