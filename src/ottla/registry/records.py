"""The records of the `_schemas` topic, as Confluent's registry writes them.

Keys and values are JSON. Keys begin with their type: log compaction and readers tell records apart by it, so
the order of fields in a key is part of the format.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ottla.records.records import Record

SCHEMA = "SCHEMA"
CONFIG = "CONFIG"
MODE = "MODE"
DELETE_SUBJECT = "DELETE_SUBJECT"
CLEAR_SUBJECT = "CLEAR_SUBJECT"
CONTEXT = "CONTEXT"
NOOP = "NOOP"
_MAGIC = {SCHEMA: 1}


@dataclass(frozen=True, slots=True)
class Key:
    type: str
    subject: str | None = None
    version: int | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be written, or one that was read; without a value it removes what the key names."""

    key: Key
    value: dict[str, Any] | None


def encode(change: Change, now_ms: int) -> Record:
    value = None if change.value is None else _json(change.value)
    return Record(_encode_key(change.key), value, now_ms)


def decode(record: Record) -> Change | None:
    """None for what this registry has no use for; ValueError for what is no record of a registry."""
    if record.key is None:
        raise ValueError("it has no key")
    fields = json.loads(record.key)
    kind = fields.get("keytype")
    if kind not in {SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, CONTEXT}:
        return None
    key = Key(kind, fields.get("subject"), fields.get("version"), fields.get("context"))
    value = None if record.value is None else json.loads(record.value)
    if value is not None and not isinstance(value, dict):
        raise ValueError("its value is not a JSON object")
    return Change(key, value)


def _encode_key(key: Key) -> bytes:
    fields: dict[str, Any] = {"keytype": key.type}
    if key.type == CONTEXT:
        fields |= {"tenant": "default", "context": key.context}
    elif key.subject is not None:
        fields["subject"] = key.subject
    if key.version is not None:
        fields["version"] = key.version
    return _json(fields | {"magic": _MAGIC.get(key.type, 0)})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
