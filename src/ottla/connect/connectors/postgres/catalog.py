"""What the database says of tables, types, publications and slots."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from ottla.connect.connectors.postgres.database import lsn_of
from ottla.connect.errors import ConnectError

_WITH_COLUMN_LISTS: Final = 150000
_COLUMNS: Final = """
SELECT attname, atttypid, atttypmod, attnotnull FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_KEY: Final = """
SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_TYPE: Final = """
SELECT t.oid, t.typname, t.typtype::text, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END,
       t.typbasetype, t.typtypmod,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM pg_type t WHERE t.oid = %s
"""


@dataclass(frozen=True, slots=True)
class TypeInfo:
    oid: int
    name: str
    kind: str
    """b: base, e: enum, d: domain, r: range, c: composite."""
    element: int
    """Of an array; else 0."""
    base: int
    """Of a domain; else 0."""
    base_modifier: int
    labels: Sequence[str]


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    name: str
    type: int
    modifier: int
    is_required: bool


@dataclass(frozen=True, slots=True)
class TableInfo:
    schema: str
    name: str
    columns: tuple[ColumnInfo, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """A table as a publication has it."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...] | None
    """None for all."""
    condition: str | None
    has_partitions: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Slot:
    plugin: str | None
    database: str | None
    confirmed_lsn: int
    is_lost: bool


class Catalog:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._types: dict[int, TypeInfo | None] = {}

    def check_server(self) -> None:
        level = self._rows("SHOW wal_level")[0][0]
        if level != "logical":
            raise ConnectError(
                f"wal_level of PostgreSQL is {level}, and change capture needs logical: set it in "
                "postgresql.conf (ALTER SYSTEM SET wal_level = logical) and restart the server"
            )

    def type(self, oid: int) -> TypeInfo | None:
        """Enums may have got labels since, so only types that stay what they are are remembered."""
        if oid not in self._types:
            rows = self._rows(_TYPE, oid)
            found = TypeInfo(*rows[0]) if rows else None
            if found is None or found.kind != "b":
                return found
            self._types[oid] = found
        return self._types[oid]

    def table(self, oid: int, schema: str, name: str) -> TableInfo | None:
        """None if it is gone."""
        columns = tuple(ColumnInfo(*row) for row in self._rows(_COLUMNS, oid))
        if not columns:
            return None
        return TableInfo(schema, name, columns, tuple(row[0] for row in self._rows(_KEY, oid)))

    # Publications

    def published(self, publication: str) -> list[Published]:
        has_lists = self._connection.info.server_version >= _WITH_COLUMN_LISTS
        more = "p.attnames::text[], p.rowfilter" if has_lists else "NULL, NULL"
        rows = self._rows(
            f"SELECT c.oid, p.schemaname, p.tablename, {more}, c.relkind = 'p' FROM pg_publication_tables p "  # noqa: S608
            "JOIN pg_namespace n ON n.nspname = p.schemaname "
            "JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename "
            "WHERE p.pubname = %s ORDER BY 2, 3",
            publication,
        )
        return [
            Published(oid, schema, name, None if columns is None else tuple(columns), condition, is_root)
            for oid, schema, name, columns, condition, is_root in rows
        ]

    def has_publication(self, publication: str) -> bool:
        return bool(self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", publication))

    def user_tables(self) -> list[tuple[str, str]]:
        return [
            (schema, name)
            for schema, name in self._rows(
                "SELECT schemaname, tablename FROM pg_tables "
                "WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
            )
        ]

    def create_publication(self, publication: str, tables: Collection[tuple[str, str]] | None) -> None:
        """`tables` None publishes all, also those that are yet to come."""
        what = sql.SQL("CREATE PUBLICATION {}").format(sql.Identifier(publication))
        if tables is None:
            what += sql.SQL(" FOR ALL TABLES")
        elif tables:
            what += sql.SQL(" FOR TABLE {}").format(_listed(tables))
        self._change(what, publication)

    def set_published(self, publication: str, tables: Collection[tuple[str, str]]) -> None:
        self._change(
            sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(sql.Identifier(publication), _listed(tables)),
            publication,
        )

    def _change(self, statement: sql.Composed | sql.SQL, publication: str) -> None:
        try:
            self._connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege as error:
            raise ConnectError(
                f"the user may not make the publication {publication}: {str(error).strip()}. Make it as an "
                "administrator and set publication.autocreate.mode=disabled, or own the tables and set "
                "publication.autocreate.mode=filtered"
            ) from error
        except psycopg.errors.DuplicateObject:
            # Somebody else was faster.
            return

    # Slots

    def slot(self, name: str) -> Slot | None:
        rows = self._rows(
            "SELECT plugin, database, confirmed_flush_lsn::text, coalesce(wal_status = 'lost', false) "
            "FROM pg_replication_slots WHERE slot_name = %s",
            name,
        )
        if not rows:
            return None
        plugin, database, confirmed, is_lost = rows[0]
        return Slot(plugin, database, lsn_of(confirmed) if confirmed else 0, is_lost)

    def drop_slot(self, name: str) -> None:
        self._rows("SELECT pg_drop_replication_slot(%s)", name)

    def _rows(self, query: str, *arguments: Any) -> Sequence[Any]:
        return self._connection.execute(query, arguments).fetchall()


def _listed(tables: Collection[tuple[str, str]]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
