"""Records of a mirror's own topics, byte for byte as MirrorMaker 2 writes them."""

from __future__ import annotations

import json
import struct
from typing import Final, NamedTuple

from ottla.client.admin.topics import Partition

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_PAIR = struct.Struct(">qq")
_VERSION: Final = 0
SOURCE_CONNECTOR: Final = "MirrorSourceConnector"


class Unreadable(Exception):
    """A record of another version, or of somebody else."""


class OffsetSync(NamedTuple):
    """A record of `partition` is number `upstream` in the source and number `downstream` in the target."""

    partition: Partition
    upstream: int
    downstream: int

    def key(self) -> bytes:
        return _text(self.partition.topic) + _I32.pack(self.partition.number)

    def value(self) -> bytes:
        return _PAIR.pack(self.upstream, self.downstream)


def read_offset_sync(key: bytes, value: bytes) -> OffsetSync:
    try:
        topic, at = _read_text(key, 0)
        return OffsetSync(Partition(topic, _I32.unpack_from(key, at)[0]), *_PAIR.unpack_from(value))
    except (struct.error, UnicodeDecodeError) as error:
        raise Unreadable(f"not an offset sync: {error}") from None


class Checkpoint(NamedTuple):
    """Where a group is: `partition` is the target's, with the offset that `upstream` became there."""

    group: str
    partition: Partition
    upstream: int
    downstream: int
    metadata: str = ""

    def key(self) -> bytes:
        return _text(self.group) + _text(self.partition.topic) + _I32.pack(self.partition.number)

    def value(self) -> bytes:
        return _I16.pack(_VERSION) + _PAIR.pack(self.upstream, self.downstream) + _text(self.metadata)


def read_checkpoint(key: bytes, value: bytes) -> Checkpoint:
    try:
        _check_version(value)
        group, at = _read_text(key, 0)
        topic, at = _read_text(key, at)
        upstream, downstream = _PAIR.unpack_from(value, _I16.size)
        metadata, _ = _read_text(value, _I16.size + _PAIR.size)
        partition = Partition(topic, _I32.unpack_from(key, at)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise Unreadable(f"not a checkpoint: {error}") from None
    return Checkpoint(group, partition, upstream, downstream, metadata)


class Heartbeat(NamedTuple):
    """Written to the target; that it arrives elsewhere shows that records do."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        return _I16.pack(_VERSION) + _I64.pack(self.timestamp_ms)


def read_heartbeat(key: bytes, value: bytes) -> Heartbeat:
    try:
        _check_version(value)
        source, at = _read_text(key, 0)
        target, _ = _read_text(key, at)
        return Heartbeat(source, target, _I64.unpack_from(value, _I16.size)[0])
    except (struct.error, UnicodeDecodeError) as error:
        raise Unreadable(f"not a heartbeat: {error}") from None


class SourcePosition(NamedTuple):
    """How far a partition of the source is mirrored, as Connect's offset topic has it for MirrorMaker 2.

    MirrorMaker looks at `offset` alone, and keeps no more than it.
    """

    offset: int
    """Of the last record that is in the target."""
    topic_id: str | None = None
    """Of the source's topic: one that was deleted and made again begins anew."""
    downstream: int | None = None
    """The offset of that record in the target."""


def position_key(alias: str, partition: Partition) -> bytes:
    # In the order in which Java writes the map: it looks entries up by the bytes of their keys.
    place = {"cluster": alias, "partition": partition.number, "topic": partition.topic}
    return _json([SOURCE_CONNECTOR, place])


def read_position_key(key: bytes) -> tuple[str, Partition] | None:
    """The source's alias and partition; None for what other connectors keep."""
    try:
        connector, place = json.loads(key)
        if connector != SOURCE_CONNECTOR:
            return None
        return str(place["cluster"]), Partition(str(place["topic"]), int(place["partition"]))
    except (ValueError, TypeError, KeyError):
        return None


def position_value(position: SourcePosition) -> bytes:
    fields: dict[str, object] = {"offset": position.offset}
    if position.topic_id is not None:
        fields["topicId"] = position.topic_id
    if position.downstream is not None:
        fields["downstreamOffset"] = position.downstream
    return _json(fields)


def read_position_value(value: bytes | None) -> SourcePosition | None:
    """None for a position that was taken back."""
    try:
        fields = json.loads(value or b"null")
        return SourcePosition(int(fields["offset"]), fields.get("topicId"), fields.get("downstreamOffset"))
    except (ValueError, TypeError, KeyError):
        return None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _text(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _I16.unpack_from(data, at)
    end = at + _I16.size + length
    if length < 0 or end > len(data):
        raise struct.error(f"a text of {length} bytes in {len(data)}")
    return data[at + _I16.size : end].decode(), end


def _check_version(value: bytes) -> None:
    (version,) = _I16.unpack_from(value)
    if version != _VERSION:
        raise Unreadable(f"version {version}; version {_VERSION} is known here")
