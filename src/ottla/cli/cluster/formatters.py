"""How the console consumer prints a record: by the formatter's class name, as Kafka's tools are told it."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.cli.framework.errors import ToolError

if TYPE_CHECKING:
    from confluent_kafka import Message

Formatter: TypeAlias = "Callable[[Message], bytes]"
Deserializer = Callable[[bytes], str]

_TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


def _fixed(layout: str) -> Deserializer:
    packed = struct.Struct(layout)

    def deserialize(data: bytes) -> str:
        if len(data) != packed.size:
            raise ToolError(f"Size of data received by the deserializer is not {packed.size}")
        return str(packed.unpack(data)[0])

    return deserialize


_DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": lambda data: data.decode("utf-8", "replace"),
    "ByteArrayDeserializer": lambda data: data.decode("utf-8", "replace"),
    "BytesDeserializer": lambda data: data.decode("utf-8", "replace"),
    "LongDeserializer": _fixed(">q"),
    "IntegerDeserializer": _fixed(">i"),
    "ShortDeserializer": _fixed(">h"),
    "DoubleDeserializer": _fixed(">d"),
    "FloatDeserializer": _fixed(">f"),
    "BooleanDeserializer": lambda data: "true" if data == b"\1" else "false",
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())),
    "VoidDeserializer": lambda data: "null",
}


def formatter(class_name: str, properties: Mapping[str, str]) -> Formatter:
    simple = class_name.rpartition(".")[2].rpartition("$")[2]
    match simple:
        case "DefaultMessageFormatter" | "LoggingMessageFormatter":
            return default_formatter(properties)
        case "NoOpMessageFormatter":
            return lambda message: b""
        case "OffsetsMessageFormatter" | "GroupMetadataMessageFormatter":
            from ottla.cli.files.coordinator_json import message_formatter

            return message_formatter(offsets=simple == "OffsetsMessageFormatter")
        case "TransactionLogMessageFormatter":
            from ottla.cli.files.coordinator_json import transaction_formatter

            return transaction_formatter()
        case _:
            raise ToolError(
                f"--formatter {class_name} is unknown; there are DefaultMessageFormatter, "
                "LoggingMessageFormatter, NoOpMessageFormatter, OffsetsMessageFormatter, "
                "GroupMetadataMessageFormatter and TransactionLogMessageFormatter"
            )


def default_formatter(properties: Mapping[str, str]) -> Formatter:
    def flag(name: str, default: bool = False) -> bool:
        return properties[name].strip().lower() == "true" if name in properties else default

    def text(name: str, default: str) -> bytes:
        return properties.get(name, default).encode()

    null = text("null.literal", "null")
    key_of = _deserializer(properties, "key.deserializer")
    value_of = _deserializer(properties, "value.deserializer")
    header_of = _deserializer(properties, "headers.deserializer")
    between_headers = text("headers.separator", ",")

    def shown(data: bytes | None, deserialize: Deserializer | None) -> bytes:
        data = null if data is None else data
        return data if deserialize is None else deserialize(data).encode()

    def headers(message: Message) -> bytes:
        pairs: Any = message.headers()
        if not pairs:
            return b"NO_HEADERS"
        return between_headers.join(name.encode() + b":" + shown(value, header_of) for name, value in pairs)

    parts: list[Formatter] = []
    if flag("print.timestamp"):
        parts.append(_timestamp)
    if flag("print.partition"):
        parts.append(lambda message: f"Partition:{message.partition()}".encode())
    if flag("print.offset"):
        parts.append(lambda message: f"Offset:{message.offset()}".encode())
    if flag("print.delivery"):
        parts.append(_delivery)
    if flag("print.epoch"):
        parts.append(_epoch)
    if flag("print.headers"):
        parts.append(headers)
    if flag("print.key"):
        parts.append(lambda message: shown(message.key(), key_of))
    if flag("print.value", default=True):
        parts.append(lambda message: shown(message.value(), value_of))
    separator = text("key.separator", "\t")
    end = text("line.separator", "\n")
    return lambda message: separator.join(part(message) for part in parts) + end


def _delivery(message: Message) -> bytes:
    """Of a share group; others do not count."""
    count = getattr(message, "delivery_count", lambda: None)()
    return f"Delivery:{'NOT_PRESENT' if count is None else count}".encode()


def message_json(message: Message) -> dict[str, Any]:
    """What --json prints of a record."""
    kind, timestamp_ms = message.timestamp()
    pairs: Any = message.headers() or []
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms if kind else None,
        "headers": [[name, _as_text(value)] for name, value in pairs],
        "key": _as_text(message.key()),
        "value": _as_text(message.value()),
    }


def _as_text(data: Any) -> str | None:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def _timestamp(message: Message) -> bytes:
    kind, timestamp_ms = message.timestamp()
    name = _TIMESTAMP_TYPES.get(kind)
    return f"{name}:{timestamp_ms}".encode() if name else b"NO_TIMESTAMP"


def _epoch(message: Message) -> bytes:
    epoch = message.leader_epoch()
    return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch


def _deserializer(properties: Mapping[str, str], name: str) -> Deserializer | None:
    class_name = properties.get(name)
    if not class_name:
        return None
    found = _DESERIALIZERS.get(class_name.rpartition(".")[2])
    if found is None:
        raise ToolError(f"{name}={class_name} is unknown; there are {', '.join(_DESERIALIZERS)}")
    return found
