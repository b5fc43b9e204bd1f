"""What classic consumers tell each other through the coordinator: subscription and assignment.

The broker need not understand it to run a classic group. It does to know which offsets are still in use, and
to turn such a group into a consumer group and back. Newer versions are read as the newest known one, which
they extend by definition.

    subscription  version i16 · topics [string] · user data bytes
                  · [owned partitions, 1+] · [generation i32, 2+] · [rack string, 3+]
    assignment    version i16 · partitions [topic string · [index i32]] · user data bytes
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.coordinator.groups.topics import TopicsView

PROTOCOL_TYPE = "consumer"
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_NEWEST_VERSION = 3
_FIRST_WITH_OWNED = 1
NAMES_MAX = 100_000
"""Of topics that one member names: reading more would hold up everybody."""
_NO_USER_DATA = _I32.pack(-1)


class MalformedProtocol(Exception):
    """The bytes are not what a consumer writes: another kind of member, or a broken one."""


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]]
    rack_id: str | None


def subscription_version(data: bytes) -> int:
    version = _Reader(data).i16()
    if version < 0:
        raise MalformedProtocol(f"consumer protocol version {version}")
    return min(version, _NEWEST_VERSION)


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """The beginning, the same in every version, is all that this needs."""
    subscription_version(data)
    return _Reader(data, _I16.size).strings()


def parse_subscription(data: bytes) -> Subscription:
    version = subscription_version(data)
    reader = _Reader(data, _I16.size)
    topics = reader.strings()
    reader.nullable_bytes()
    owned = reader.partitions() if version >= _FIRST_WITH_OWNED else {}
    rack_id = None
    if version >= _NEWEST_VERSION:
        reader.i32()
        rack_id = reader.nullable_string()
    return Subscription(topics, owned, rack_id or None)


def parse_assignment(data: bytes) -> tuple[dict[str, tuple[int, ...]], bytes]:
    """Partitions by topic, and what the assignor added for its own use."""
    if not data:
        return {}, b""
    subscription_version(data)
    reader = _Reader(data, _I16.size)
    return reader.partitions(), reader.nullable_bytes() or b""


def encode_assignment(
    version: int, partitions: Mapping[uuid.UUID, frozenset[int]], topics: TopicsView
) -> bytes:
    """In the version the member itself speaks; topics that are gone are left out."""
    named = sorted(
        (topics.topic_names[topic_id], sorted(indexes))
        for topic_id, indexes in partitions.items()
        if topic_id in topics.topic_names
    )
    parts = [_I16.pack(version), _I32.pack(len(named))]
    for name, indexes in named:
        encoded = name.encode()
        parts += (_I16.pack(len(encoded)), encoded, _I32.pack(len(indexes)))
        parts += [_I32.pack(index) for index in indexes]
    parts.append(_NO_USER_DATA)
    return b"".join(parts)


class _Reader:
    """Takes nothing for granted: members may write what they like."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def i16(self) -> int:
        (value,) = _I16.unpack(self._take(_I16.size))
        return int(value)

    def i32(self) -> int:
        (value,) = _I32.unpack(self._take(_I32.size))
        return int(value)

    def nullable_bytes(self) -> bytes | None:
        length = self.i32()
        return None if length < 0 else self._take(length)

    def nullable_string(self) -> str | None:
        length = self.i16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedProtocol(f"consumer protocol text is not UTF-8: {error}") from error

    def strings(self) -> tuple[str, ...]:
        count = self._count(_I16.size)
        if count > NAMES_MAX:
            raise MalformedProtocol(f"{count} topics are named; at most {NAMES_MAX} can be")
        return tuple(self.nullable_string() or "" for _ in range(count))

    def partitions(self) -> dict[str, tuple[int, ...]]:
        result = {}
        for _ in range(self._count(_I16.size + _I32.size)):
            topic = self.nullable_string() or ""
            result[topic] = tuple(self.i32() for _ in range(self._count(_I32.size)))
        return result

    def _count(self, item_bytes_min: int) -> int:
        count = self.i32()
        if count * item_bytes_min > len(self._data) - self._at:
            raise MalformedProtocol(f"consumer protocol data of {len(self._data)} bytes claims {count} items")
        return max(count, 0)

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise MalformedProtocol(f"consumer protocol data ends after {len(self._data)} bytes")
        taken, self._at = self._data[self._at : end], end
        return taken
