"""The rows that are there before the first change: of all tables as they were at one moment."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import psycopg
from psycopg import sql

from ottla.connect.connectors.postgres.catalog import Catalog, ColumnInfo, Published
from ottla.connect.connectors.postgres.database import ConnectionLost
from ottla.connect.connectors.postgres.envelope import Envelopes, Origin, Shape, Shapes
from ottla.connect.connectors.postgres.position import Position
from ottla.connect.errors import ConnectError
from ottla.connect.records import SourceRecord


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
        self._records = self._all_records()

    def read(self, records_max: int) -> list[SourceRecord]:
        """Nothing when all is read; `position` is then where to go on with changes."""
        return list(islice(self._records, records_max))

    def close(self) -> None:
        self._connection.close()

    def _all_records(self) -> Iterator[SourceRecord]:
        """A row is told of when it is known whether another follows: the last ones are marked."""
        self._lock()
        held: tuple[Shape, Sequence[str | None]] | None = None
        previous: Shape | None = None
        for shape, row in self._rows():
            if held is not None:
                yield from self._told(held, previous, shape)
                previous = held[0]
            held = shape, row
        if held is not None:
            yield from self._told(held, previous, None)
        self.position = replace(self.position, read_tables=None)

    def _told(
        self, held: tuple[Shape, Sequence[str | None]], before: Shape | None, after: Shape | None
    ) -> list[SourceRecord]:
        shape, row = held
        if after is None:
            mark = "last"
            self.position = replace(self.position, read_tables=None)
        elif after is not shape:
            mark = "last_in_data_collection"
            done = self.position.read_tables or frozenset()
            self.position = replace(self.position, read_tables=done | {shape.full_name})
        elif before is None:
            mark = "first"
        else:
            mark = "true" if before is shape else "first_in_data_collection"
        origin = Origin(self.position.completed_lsn, time.time_ns() // 1000, snapshot=mark)
        return self._envelopes.read(shape, origin, row, self.position)

    def _rows(self) -> Iterator[tuple[Shape, Sequence[str | None]]]:
        for table in self._tables:
            info = self._catalog.table(table.oid, table.schema, table.name)
            if info is None:
                continue
            columns = [each for each in info.columns if table.columns is None or each.name in table.columns]
            shape = self._shapes.made(table.schema, table.name, columns, info.key, self._catalog.type)
            with self._connection.cursor() as cursor, cursor.copy(_query(table, columns)) as copy:
                # As text, from the same functions that make the text of changes.
                while (row := copy.read_row()) is not None:
                    yield shape, row

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


def _query(table: Published, columns: Sequence[ColumnInfo]) -> sql.Composed:
    chosen = sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)
    name = sql.Identifier(table.schema, table.name)
    # Rows of tables that inherit are read with those tables.
    only = sql.SQL("" if table.has_partitions else "ONLY ")
    query = sql.SQL("SELECT {} FROM {}{}").format(chosen, only, name)
    if table.condition:
        query += sql.SQL(" WHERE ") + sql.SQL(table.condition)
    return sql.SQL("COPY ({}) TO STDOUT").format(query)
