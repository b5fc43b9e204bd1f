"""The messages of PostgreSQL's logical replication, protocol version 1, with values as text.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.connect.errors import ConnectError

# Microseconds from 1970 to 2000, from where PostgreSQL counts.
EPOCH_US: Final = 946_684_800_000_000

_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_DATA: Final = struct.Struct(">QQq")
_KEEPALIVE: Final = struct.Struct(">Qqb")
_STATUS: Final = struct.Struct(">cQQQqb")
_COLUMN: Final = struct.Struct(">Ii")
_OID: Final = struct.Struct(">I")
_COUNT: Final = struct.Struct(">H")
_TRUNCATE: Final = struct.Struct(">IB")
_NULL, _UNCHANGED, _TEXT = b"nut"


class Unchanged(enum.Enum):
    """A large value that an update left alone, and that is therefore not sent."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED
Text = str | Unchanged | None
Row = Sequence[Text]


@dataclass(frozen=True, slots=True)
class Begin:
    commit_lsn: int
    """Where its commit stands: no other transaction has it."""
    time_us: int
    transaction: int


@dataclass(frozen=True, slots=True)
class Commit:
    end_lsn: int
    time_us: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: int
    modifier: int
    is_identity: bool


@dataclass(frozen=True, slots=True)
class Relation:
    oid: int
    schema: str
    name: str
    identity: str
    """d: primary key, n: nothing, f: all columns, i: an index."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    relation: int
    new: Row


@dataclass(frozen=True, slots=True)
class Update:
    relation: int
    old: Row | None
    new: Row


@dataclass(frozen=True, slots=True)
class Delete:
    relation: int
    old: Row


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate


@dataclass(frozen=True, slots=True)
class Data:
    lsn: int
    message: Message | None
    """None for kinds that say nothing about rows."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    lsn: int
    """All before it has been sent."""
    wants_reply: bool


def read_frame(data: bytes) -> Data | Keepalive:
    match data[:1]:
        case b"w":
            lsn, _, _ = _DATA.unpack_from(data, 1)
            return Data(lsn, read_message(data, 1 + _DATA.size))
        case b"k":
            lsn, _, reply = _KEEPALIVE.unpack_from(data, 1)
            return Keepalive(lsn, bool(reply))
        case kind:
            raise ConnectError(f"PostgreSQL sent a message of the kind {kind!r}, which is not known here")


def status_update(lsn: int, now_us: int) -> bytes:
    """All before `lsn` is safe with us: the slot need not keep it."""
    return _STATUS.pack(b"r", lsn, lsn, lsn, now_us - EPOCH_US, 0)


def read_message(data: bytes, start: int) -> Message | None:
    at = start + 1
    match data[start:at]:
        case b"I":
            (oid,) = _OID.unpack_from(data, at)
            return Insert(oid, _tuple(data, at + 5)[0])
        case b"U":
            return _update(data, at)
        case b"D":
            (oid,) = _OID.unpack_from(data, at)
            return Delete(oid, _tuple(data, at + 5)[0])
        case b"B":
            commit_lsn, time_us, transaction = _BEGIN.unpack_from(data, at)
            return Begin(commit_lsn, time_us + EPOCH_US, transaction)
        case b"C":
            _, _, end_lsn, time_us = _COMMIT.unpack_from(data, at)
            return Commit(end_lsn, time_us + EPOCH_US)
        case b"R":
            return _relation(data, at)
        case b"T":
            count, _ = _TRUNCATE.unpack_from(data, at)
            return Truncate(struct.unpack_from(f">{count}I", data, at + _TRUNCATE.size))
        case _:
            return None


def _update(data: bytes, at: int) -> Update:
    (oid,) = _OID.unpack_from(data, at)
    at += 4
    old = None
    if data[at : at + 1] in {b"K", b"O"}:
        old, at = _tuple(data, at + 1)
    return Update(oid, old, _tuple(data, at + 1)[0])


def _relation(data: bytes, at: int) -> Relation:
    (oid,) = _OID.unpack_from(data, at)
    schema, at = _string(data, at + 4)
    name, at = _string(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _string(data, at + 1)
        kind, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, kind, modifier, bool(flags & 1)))
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int) -> tuple[list[Text], int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Text] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            (length,) = _OID.unpack_from(data, at)
            at += 4
            values.append(data[at : at + length].decode())
            at += length
        elif kind == _NULL:
            values.append(None)
        elif kind == _UNCHANGED:
            values.append(UNCHANGED)
        else:
            raise ConnectError(f"PostgreSQL sent a value of the kind {chr(kind)!r}, which was not asked for")
    return values, at
