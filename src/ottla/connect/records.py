"""Records on their way between connectors and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from ottla.connect.data import Schema


class Header(NamedTuple):
    key: str
    schema: Schema | None
    value: Any


# Not to be changed all the same (`changed` makes another one): a frozen one takes four times as long to make.
@dataclass(slots=True, kw_only=True)
class ConnectRecord:
    topic: str
    partition: int | None = None
    key_schema: Schema | None = None
    key: Any = None
    value_schema: Schema | None = None
    value: Any = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


Record = TypeVar("Record", bound=ConnectRecord)


def changed(record: Record, **fields: Any) -> Record:
    return replace(record, **fields)


@dataclass(slots=True, kw_only=True)
class SourceRecord(ConnectRecord):
    """From outside; `source_offset` is where to go on behind it in its `source_partition`."""

    source_partition: Mapping[str, Any] | None = None
    source_offset: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class SinkRecord(ConnectRecord):
    """From a topic, where it stands at `offset`. Transforms may rename `topic`; the originals stay."""

    offset: int = 0
    original_topic: str = ""
    original_partition: int = 0
