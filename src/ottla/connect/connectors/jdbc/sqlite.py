"""SQLite, through Python's own driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from ottla.connect.connectors.jdbc.database import Cursor, Database, DatabaseAway, Table, TableColumn
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    FLOAT64,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    from_millis,
)
from ottla.connect.errors import ConnectError

_BUSY_S: Final = 30.0
_FORMAT: Final = "%Y-%m-%d %H:%M:%f"
_TYPES: Final = {
    Kind.INT8: "INTEGER",
    Kind.INT16: "INTEGER",
    Kind.INT32: "INTEGER",
    Kind.INT64: "INTEGER",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.FLOAT32: "REAL",
    Kind.FLOAT64: "REAL",
    Kind.STRING: "TEXT",
    Kind.BYTES: "BLOB",
}
_LOGICAL: Final = {DECIMAL: "NUMERIC", DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP"}


class SqliteDatabase(Database):
    mark = "?"

    def __init__(self, path: str, *, may_be_made: bool = False) -> None:
        self._path = path
        self._mode = "rwc" if may_be_made else "rw"
        self._connection: sqlite3.Connection | None = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = sqlite3.connect(
                    f"file:{quote(self._path)}?mode={self._mode}",
                    timeout=_BUSY_S,
                    isolation_level=None,
                    uri=True,
                )
                self._connection.execute("PRAGMA schema_version").fetchone()
            except sqlite3.Error as error:
                self._connection = None
                raise ConnectError(f"SQLite cannot open {self._path}: {error}") from error
        return self._connection

    def tables(self, schema: str | None, kinds: Sequence[str]) -> list[Table]:
        wanted = [kind.lower() for kind in kinds]
        rows = self._execute(
            "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        return [Table(None, name) for name, kind in rows.fetchall() if kind in wanted]

    def columns(self, table: Table) -> list[TableColumn]:
        rows = self._execute(f"PRAGMA table_info({self.quoted(table.name)})").fetchall()
        keys = sum(bool(row[5]) for row in rows)
        return [
            TableColumn(
                name,
                kind.upper(),
                bool(required) or bool(key),
                default is not None,
                bool(key) and keys == 1 and kind.upper() == "INTEGER",
                bool(key),
            )
            for _, name, kind, required, default, key in rows
        ]

    def query(self, sql: str, arguments: Sequence[Any]) -> Cursor:
        return self._execute(sql, arguments)

    def field_schema(self, described: Any, column: TableColumn | None, numeric: str, sample: Any) -> Schema:
        found = _by_value(sample) if column is None or not column.type else _by_name(column.type)
        return found.but(optional=column is None or not column.is_required)

    def read_value(self, schema: Schema, value: Any) -> Any:
        if value is None:
            return None
        match schema.kind:
            case Kind.BOOLEAN:
                return bool(value)
            case Kind.FLOAT64 if isinstance(value, int):
                return float(value)
            case _ if schema.name == TIMESTAMP:
                return self.as_moment(value)
            case _ if schema.name == DATE and isinstance(value, str):
                return date.fromisoformat(value[:10])
            case Kind.STRING if not isinstance(value, str):
                return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            case _:
                return value

    def now(self) -> datetime:
        return datetime.now(UTC)

    def moment(self, column: str) -> str:
        """Text, or milliseconds since 1970."""
        return (
            f"(CASE typeof({column}) WHEN 'integer' "
            f"THEN strftime('{_FORMAT}', {column} / 1000.0, 'unixepoch') "
            f"ELSE strftime('{_FORMAT}', {column}) END)"
        )

    def moment_argument(self, moment: datetime) -> Any:
        return _written_moment(moment)

    def as_moment(self, value: Any) -> datetime:
        if isinstance(value, int):
            return from_millis(value)
        found = datetime.fromisoformat(str(value))
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)

    def run(self, sql: str, arguments: Sequence[Any] = ()) -> int:
        self._begin()
        return self._execute(sql, arguments).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._begin()
        try:
            self._connected().executemany(sql, rows)
        except sqlite3.OperationalError as error:
            raise _away(error) from error

    def column_type(self, schema: Schema) -> str:
        found = _LOGICAL.get(schema.name or "") or _TYPES.get(schema.kind)
        if found is None:
            raise ConnectError(
                f"SQLite has no column for {schema.kind.value}: flatten it, or leave it out in "
                "fields.whitelist"
            )
        return found

    def written_value(self, schema: Schema | None, value: Any) -> Any:
        match value:
            case Decimal():
                return str(value)
            case datetime():
                return _written_moment(value)
            case date() | time():
                return value.isoformat()
            case bool():
                return int(value)
            case _:
                return value

    def is_fault_of_row(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.InterfaceError)

    def commit(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                raise _away(error) from error

    def rollback(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin(self) -> None:
        if not self._connected().in_transaction:
            self._execute("BEGIN IMMEDIATE")

    def _execute(self, sql: str, arguments: Sequence[Any] = ()) -> sqlite3.Cursor:
        try:
            return self._connected().execute(sql, arguments)
        except sqlite3.OperationalError as error:
            raise _away(error) from error


def _away(error: sqlite3.OperationalError) -> Exception:
    """Others write to the file for now; all else does not pass by itself."""
    if "locked" in str(error) or "busy" in str(error):
        return DatabaseAway(str(error))
    remedy = ""
    if "no such table" in str(error) or "no column" in str(error) or "no such column" in str(error):
        remedy = (
            ". Create what is missing, or set auto.create and auto.evolve of a sink; then restart the task"
        )
    elif "ON CONFLICT" in str(error):
        remedy = ". Give the table a primary key of the columns of pk.fields, or another insert.mode"
    elif "full" in str(error) or "I/O" in str(error):
        remedy = ". Free some space and restart the task; nothing is lost"
    return ConnectError(f"SQLite refuses: {error}{remedy}")


def _written_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03}"


def _by_name(declared: str) -> Schema:
    """By SQLite's rules of affinity, and by the names that people use."""
    name = declared.partition("(")[0].strip()
    match name:
        case "BOOLEAN" | "BOOL":
            return BOOLEAN
        case "DATE":
            return DATE_SCHEMA
        case "TIMESTAMP" | "DATETIME":
            return TIMESTAMP_SCHEMA
        case _ if "INT" in name:
            return INT64
        case _ if any(part in name for part in ("CHAR", "CLOB", "TEXT", "UUID", "JSON", "TIME")):
            return STRING
        case "BLOB":
            return BYTES
        case _:
            return FLOAT64


def _by_value(sample: Any) -> Schema:
    match sample:
        case int():
            return INT64
        case float():
            return FLOAT64
        case bytes():
            return BYTES
        case _:
            return STRING
