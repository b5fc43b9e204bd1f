"""The offset topic: how far sources have read, for each partition of what they read from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.connect.state.entries import Entry, compact, read_object

Offset = Mapping[str, Any]
SourcePartition = Mapping[str, Any]


def _identity(partition: SourcePartition) -> str:
    return json.dumps(partition, sort_keys=True)


@dataclass(slots=True)
class Offsets:
    _found: dict[str, dict[str, tuple[SourcePartition, Offset]]] = field(default_factory=dict)
    _keys: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """As they stand in the topic: the order of fields is the writer's, and compaction goes by bytes."""

    def apply(self, record: Entry) -> None:
        try:
            connector, partition = json.loads(record.key)
        except (ValueError, TypeError):
            return
        if not isinstance(connector, str) or not isinstance(partition, dict):
            return
        identity = _identity(partition)
        self._keys[connector, identity] = record.key
        offset = read_object(record.value)
        known = self._found.setdefault(connector, {})
        if offset is None:
            known.pop(identity, None)
        else:
            known[identity] = partition, offset

    def get(self, connector: str, partition: SourcePartition) -> Offset | None:
        found = self._found.get(connector, {}).get(_identity(partition))
        return None if found is None else found[1]

    def of(self, connector: str) -> list[tuple[SourcePartition, Offset]]:
        return list(self._found.get(connector, {}).values())

    def entry(self, connector: str, partition: SourcePartition, offset: Offset | None) -> Entry:
        """The record to write; `offset` None forgets the partition."""
        known = self._keys.get((connector, _identity(partition)))
        key = compact([connector, partition]) if known is None else known
        return Entry(key, None if offset is None else compact(offset))
