"""Records of Connect's own topics: keys are text, values JSON, byte for byte as Kafka's workers write
them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class TaskId(NamedTuple):
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector}-{self.task}"


class Entry(NamedTuple):
    key: bytes
    value: bytes | None
    """None removes the key."""


def entry(key: str, value: Any) -> Entry:
    return Entry(key.encode(), None if value is None else compact(value))


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_object(value: bytes | None) -> dict[str, Any] | None:
    """None where there is no value, or one that is no JSON object."""
    if value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
