"""The rows that are there before the first change: of all tables as they were at one moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import psycopg
from psycopg import sql

from ottla.connect.columns import SourceColumns
from ottla.connect.connectors.postgres.catalog import Catalog, ColumnInfo, Published
from ottla.connect.connectors.postgres.database import ConnectionLost
from ottla.connect.connectors.postgres.envelope import Envelopes, Origin, Shape, Shapes
from ottla.connect.connectors.postgres.position import Position
from ottla.connect.connectors.postgres.rows import Rows, rows_of, texts_of
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.records import SourceRecord

_BYTES_MAX: Final = 16 << 20
_log = logging.getLogger(__name__)


class Snapshot:
    def __init__(
        self,
        connection: psycopg.Connection[Any],
        tables: Sequence[Published],
        shapes: Shapes,
        envelopes: Envelopes,
        position: Position,
        exported: str | None,
    ) -> None:
        """`position` is where the changes begin that are not in it; `exported` names the moment, without
        which it is now. The connection is the snapshot's alone, and closed by it."""
        self._connection = connection
        self._catalog = Catalog(connection)
        self._tables = [table for table in tables if table.full_name not in (position.read_tables or ())]
        self._shapes = shapes
        self._envelopes = envelopes
        self.position = replace(position, read_tables=position.read_tables or frozenset())
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if exported is not None:
            try:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
            except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject) as error:
                # It ended with the connection of the slot, which stays: the rows are read as they are later.
                connection.close()
                raise ConnectionLost(f"the connection of the slot was lost: {error}") from error
        self._records_max = 1
        self._batches = self._all_batches()

    def read(self, records_max: int) -> Sequence[SourceRecord] | SourceColumns:
        """Nothing when all is read; `position` is then where to go on with changes."""
        self._records_max = records_max
        return next(self._batches, ())

    def close(self) -> None:
        self._connection.close()

    def _all_batches(self) -> Iterator[Sequence[SourceRecord] | SourceColumns]:
        """Rows are told of when it is known whether others follow: the last ones are marked."""
        self._lock()
        held: tuple[Shape, Rows] | None = None
        previous: Shape | None = None
        for shape, rows in self._rows():
            if held is not None:
                yield from self._told(held, previous, shape)
                previous = held[0]
            held = shape, rows
        if held is not None:
            yield from self._told(held, previous, None)
        self.position = replace(self.position, read_tables=None)

    def _told(
        self, held: tuple[Shape, Rows], before: Shape | None, after: Shape | None
    ) -> Iterator[Sequence[SourceRecord] | SourceColumns]:
        shape, rows = held
        marks = ["true"] * rows.count
        if before is not shape:
            marks[0] = "first" if before is None else "first_in_data_collection"
        if after is None:
            marks[-1] = "last"
            self.position = replace(self.position, read_tables=None)
        elif after is not shape:
            marks[-1] = "last_in_data_collection"
            done = self.position.read_tables or frozenset()
            self.position = replace(self.position, read_tables=done | {shape.full_name})
        found = self._records(shape, rows, marks)
        # Whoever reads takes nothing for the end.
        if found:
            yield found

    def _records(
        self, shape: Shape, rows: Rows, marks: Sequence[str]
    ) -> Sequence[SourceRecord] | SourceColumns | None:
        origin = Origin(self.position.completed_lsn, time.time_ns() // 1000, snapshot="true")
        try:
            return self._envelopes.read_columns(shape, origin, texts_of(marks), rows.columns, self.position)
        except (ValueError, ArithmeticError, DataError) as error:
            # Which row it is, or what has changed, is found out one by one.
            _log.debug("%s: %d rows are read one by one: %s", shape.full_name, rows.count, error)
        return [
            record
            for mark, row in zip(marks, rows.every(), strict=True)
            for record in self._envelopes.read(shape, replace(origin, snapshot=mark), row, self.position)
        ]

    def _rows(self) -> Iterator[tuple[Shape, Rows]]:
        for table in self._tables:
            info = self._catalog.table(table.oid, table.schema, table.name)
            if info is None:
                continue
            columns = [each for each in info.columns if table.columns is None or each.name in table.columns]
            shape = self._shapes.made(table.schema, table.name, columns, info.key, self._catalog.type)
            # As text, from the same functions that make the text of changes.
            with self._connection.cursor() as cursor, cursor.copy(_query(table, columns)) as copy:
                for lines in gathered(map(bytes, copy), lambda: self._records_max):
                    yield shape, rows_of(lines, len(columns))

    def _lock(self) -> None:
        """As pg_dump does: tables may be written to, and not altered until they are read."""
        for table in self._tables:
            name = sql.Identifier(table.schema, table.name)
            try:
                self._connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
            except psycopg.errors.InsufficientPrivilege as error:
                raise ConnectError(
                    f"the user may not read {table.full_name}: GRANT SELECT on it, or leave it out in "
                    "table.exclude.list"
                ) from error


def gathered(lines: Iterable[bytes], count_max: Callable[[], int]) -> Iterator[list[bytes]]:
    """As many as are wanted at a time, and fewer where they are long: all of them are in memory at once."""
    found: list[bytes] = []
    size = 0
    for line in lines:
        found.append(line)
        size += len(line)
        if len(found) >= count_max() or size >= _BYTES_MAX:
            yield found
            found, size = [], 0
    if found:
        yield found


def _query(table: Published, columns: Sequence[ColumnInfo]) -> sql.Composed:
    chosen = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
    name = sql.Identifier(table.schema, table.name)
    # Rows of tables that inherit are read with those tables.
    only = sql.SQL("" if table.has_partitions else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{}").format(chosen, only, name)
    if table.condition:
        query += sql.SQL(" WHERE ") + sql.SQL(table.condition)
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)").format(query)
