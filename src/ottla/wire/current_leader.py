"""Who leads a partition, and where, for a client that asked somebody else (KIP-951).

Tagged fields of Produce from version 10 on and of Fetch from version 16 on. With them a client need not ask
for metadata before it asks the right broker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ottla.varints import uvarint
from ottla.wire.errors import ErrorCode

NOT_LEADER_OR_FOLLOWER = ErrorCode.not_leader_or_follower.value
FENCED_LEADER_EPOCH = ErrorCode.fenced_leader_epoch.value

_NO_TAGS = b"\0"
_LEADER = struct.Struct(">BBBiiB")  # one tag, its size, leader id, leader epoch, no tags
_LEADER_BYTES = 9
_ID = struct.Struct(">i")
_PORT = struct.Struct(">i")
_ENDPOINTS_TAG = 0


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    leader_id: int
    """-1 while there is none."""
    leader_epoch: int
    node: NodeEndpoint | None
    """None where the client cannot reach it."""


class Leaders(Protocol):
    """Asked only where an answer tells of an error."""

    def find(self, listener: str, topic: bytes, partition: int, *, by_id: bool) -> CurrentLeader | None:
        """Where clients of the listener reach the leader. `topic` is as in the request."""
        ...


def leader_tags(tag: int, leader: CurrentLeader) -> bytes:
    """All the tagged fields of a partition: one."""
    return _LEADER.pack(1, tag, _LEADER_BYTES, leader.leader_id, leader.leader_epoch, 0)


def endpoint_tags(leaders: Iterable[CurrentLeader]) -> bytes:
    """All the tagged fields of an answer: where the leaders in it are."""
    nodes = {leader.node.node_id: leader.node for leader in leaders if leader.node is not None}
    if not nodes:
        return _NO_TAGS
    rows = b"".join(
        _ID.pack(node.node_id) + _text(node.host) + _PORT.pack(node.port) + _text(node.rack) + _NO_TAGS
        for node in nodes.values()
    )
    array = uvarint(len(nodes) + 1) + rows
    return uvarint(1) + uvarint(_ENDPOINTS_TAG) + uvarint(len(array)) + array


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded
