"""Records of the metadata log and of the coordinators as JSON, in the shape of Apache Kafka's tools."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import MISSING, fields
from typing import Any
from uuid import UUID

from ottla.metadata.java_text import double

# The encoder writes numbers in Python's way. Java's way goes through it as a marked string.
_DOUBLE = "\x01"
_MARKED = re.compile(r'"\\u0001([^"]*)"')


def metadata_json(value: bytes) -> str:
    """`{"type": …, "version": …, "data": …}` of one record of the metadata log."""
    from ottla.metadata.records import RecordType, decode_record

    record = decode_record(value)
    # Frame version, type and version are one byte each: none has come near 128.
    name = f"{RecordType(value[1]).name}_RECORD"
    return compact({"type": name, "version": value[2], "data": entity(record)})


def entity(record: Any) -> dict[str, Any]:
    """A declared structure, by the names of Kafka's schemas; tagged fields only where they say something."""
    shown: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if "tag" in field.metadata and field.default is not MISSING and value == field.default:
            continue
        shown[camel(field.name)] = _plain(value, field.metadata.get("kafka_type"))
    return shown


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def compact(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return _MARKED.sub(r"\1", text)


def _plain(value: Any, kafka_type: str | None) -> Any:
    from ottla.metadata.uuids import uuid_text

    if isinstance(value, tuple):
        return [_plain(item, kafka_type) for item in value]
    if isinstance(value, UUID):
        return uuid_text(value)
    if value is None and kafka_type == "uuid":
        return uuid_text(UUID(int=0))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float):
        return f"{_DOUBLE}{double(value)}"
    if hasattr(value, "__type__"):
        return entity(value)
    return value
