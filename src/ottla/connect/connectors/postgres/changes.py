"""The changes of a slot as records, transaction by transaction in the order of their commits.

After an interruption the server sends a transaction that was not confirmed from its beginning. How many of
its messages were given already is known, and they are left out: each change is given once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ottla.connect.connectors.postgres.catalog import Catalog, ColumnInfo
from ottla.connect.connectors.postgres.database import ReplicationStream
from ottla.connect.connectors.postgres.envelope import Envelopes, Origin, Place, Shape, Shapes
from ottla.connect.connectors.postgres.pgoutput import (
    Begin,
    Commit,
    Data,
    Delete,
    Insert,
    Keepalive,
    Relation,
    Truncate,
    Update,
)
from ottla.connect.connectors.postgres.position import Position
from ottla.connect.errors import ConnectError
from ottla.connect.records import SourceRecord

_WAIT_S: Final = 0.2
_TURN_S: Final = 1.0

Change = Insert | Update | Delete | Truncate


class Changes:
    def __init__(
        self,
        stream: ReplicationStream,
        catalog: Catalog,
        shapes: Shapes,
        envelopes: Envelopes,
        position: Position,
        is_wanted: Callable[[str], bool],
        *,
        tells_transactions: bool,
        report_s: float,
    ) -> None:
        self._stream = stream
        self._catalog = catalog
        self._shapes = shapes
        self._envelopes = envelopes
        self._is_wanted = is_wanted
        self._tells_transactions = tells_transactions
        self._report_s = report_s
        self._reported_s = time.monotonic()
        self._relations: dict[int, Shape | None] = {}
        self._begin: Begin | None = None
        self._events = self._known_events = 0
        self._counts: dict[str, int] = {}
        self._is_given = False
        """Whether there are records that may not be in their topics yet."""
        self.position = position
        self._safe_lsn = position.completed_lsn

    def read(self, records_max: int) -> list[SourceRecord]:
        records: list[SourceRecord] = []
        started, has_waited = time.monotonic(), False
        while len(records) < records_max and time.monotonic() - started < _TURN_S:
            match self._stream.read():
                case None:
                    if records or has_waited:
                        break
                    self._stream.wait(_WAIT_S)
                    has_waited = True
                case Keepalive(lsn, wants_reply):
                    # One that was given in part is still to come until its commit is passed.
                    if self._begin is None and lsn > self.position.transaction_lsn:
                        self.position = Position(max(lsn, self.position.completed_lsn))
                    if wants_reply:
                        self._report()
                case Data() as data:
                    records += self._taken(data)
        self._is_given = self._is_given or bool(records)
        if time.monotonic() - self._reported_s >= self._report_s:
            self._report()
        return records

    def confirm(self) -> None:
        """All that was given is in its topics: the slot need not keep it."""
        self._is_given = False
        self._report()

    def _report(self) -> None:
        """Also of what was no record: else a slot would keep the log of all other tables."""
        if not self._is_given:
            self._safe_lsn = self.position.completed_lsn
        self._stream.confirm(self._safe_lsn)
        self._reported_s = time.monotonic()

    def _taken(self, data: Data) -> list[SourceRecord]:
        match data.message:
            case Insert() | Update() | Delete() | Truncate() as change:
                return self._change(data.lsn, change)
            case Begin() as begin:
                return self._began(begin)
            case Commit() as commit:
                return self._ended(commit)
            case Relation() as relation:
                self._relations[relation.oid] = self._shape(relation)
        return []

    def _began(self, begin: Begin) -> list[SourceRecord]:
        known = self.position
        self._known_events = known.events if begin.commit_lsn == known.transaction_lsn else 0
        self._begin, self._events = begin, 0
        self._counts = {}
        if not self._is_next() or not self._tells_transactions:
            return []
        return [self._envelopes.began(self._transaction, begin.time_us, self.position)]

    def _ended(self, commit: Commit) -> list[SourceRecord]:
        transaction = self._transaction
        self._begin = None
        self.position = Position(commit.end_lsn)
        if not self._tells_transactions:
            return []
        return [self._envelopes.ended(transaction, commit.time_us, self._counts, self.position)]

    def _change(self, lsn: int, change: Change) -> list[SourceRecord]:
        assert self._begin is not None
        is_new = self._is_next()
        origin = Origin(
            lsn, self._begin.time_us, self._begin.transaction, completed_lsn=self.position.completed_lsn
        )
        records: list[SourceRecord] = []
        for oid in change.relations if isinstance(change, Truncate) else (change.relation,):
            if oid not in self._relations:
                raise ConnectError(f"PostgreSQL sent a change of the table {oid}, which it has not described")
            shape = self._relations[oid]
            if shape is not None:
                place = self._place(shape)
                if is_new:
                    records += self._told(change, shape, origin, place)
        return records

    def _told(self, change: Change, shape: Shape, origin: Origin, place: Place | None) -> list[SourceRecord]:
        envelopes, position = self._envelopes, self.position
        match change:
            case Insert(_, new):
                return envelopes.inserted(shape, origin, place, new, position)
            case Update(_, old, new):
                return envelopes.updated(shape, origin, place, old, new, position)
            case Delete(_, old):
                return envelopes.deleted(shape, origin, place, old, position)
            case Truncate():
                return envelopes.truncated(shape, origin, place, position)

    def _is_next(self) -> bool:
        """Counts a message of the transaction; False if it was given before."""
        assert self._begin is not None
        self._events += 1
        if self._events <= self._known_events:
            return False
        self.position = Position(self.position.completed_lsn, self._begin.commit_lsn, self._events)
        return True

    @property
    def _transaction(self) -> str:
        assert self._begin is not None
        return f"{self._begin.transaction}:{self._begin.commit_lsn}"

    def _place(self, shape: Shape) -> Place | None:
        if not self._tells_transactions:
            return None
        self._counts[shape.full_name] = self._counts.get(shape.full_name, 0) + 1
        return Place(self._transaction, sum(self._counts.values()), self._counts[shape.full_name])

    def _shape(self, relation: Relation) -> Shape | None:
        """The columns are those of the change, which may be of yesterday; what is required and what the
        key is only the database of today can say."""
        if not self._is_wanted(f"{relation.schema}.{relation.name}"):
            return None
        table = self._catalog.table(relation.oid, relation.schema, relation.name)
        required = {column.name for column in table.columns if column.is_required} if table else set()
        names = {column.name for column in relation.columns}
        columns = [
            ColumnInfo(column.name, column.type, column.modifier, column.name in required)
            for column in relation.columns
        ]
        if table is not None and table.key and names.issuperset(table.key):
            key = table.key
        else:
            key = tuple(
                column.name
                for column in relation.columns
                if column.is_identity and relation.identity in {"d", "i"}
            )
        return self._shapes.made(relation.schema, relation.name, columns, key, self._catalog.type)
