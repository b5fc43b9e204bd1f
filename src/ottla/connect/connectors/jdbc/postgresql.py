"""PostgreSQL, through psycopg."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads

from ottla.connect.connectors.jdbc.database import Cursor, Database, DatabaseAway, Table, TableColumn
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Kind,
    Schema,
    decimal_of,
)
from ottla.connect.errors import ConnectError
from ottla.connect.text import to_text

_UNSET_SCALE: Final = 127
_ASKED: Final = {"user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword"}
_log = logging.getLogger(__name__)
_PASSING: Final = ("starting up", "shutting down", "recovery mode", "too many clients", "connection slots")
_COLUMNS: Final = """
SELECT a.attname, t.typname, a.attnotnull, a.atthasdef OR a.attidentity <> '',
       a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%', false),
       coalesce(a.attnum = ANY(i.indkey), false)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_TABLES: Final = """
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_type = ANY(%s) AND table_schema NOT IN ('pg_catalog', 'information_schema')
AND table_schema LIKE %s ORDER BY 1, 2
"""
_KINDS: Final = {"TABLE": "BASE TABLE", "VIEW": "VIEW"}
_SCHEMAS: Final = {
    "bool": BOOLEAN,
    "int2": Schema(Kind.INT16),
    "int4": INT32,
    "int8": INT64,
    "oid": INT64,
    "float4": Schema(Kind.FLOAT32),
    "float8": FLOAT64,
    "bytea": BYTES,
    "date": DATE_SCHEMA,
    "time": TIME_SCHEMA,
    "timestamp": TIMESTAMP_SCHEMA,
    "timestamptz": TIMESTAMP_SCHEMA,
}
_TYPES: Final = {
    Kind.INT8: "SMALLINT",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INT",
    Kind.INT64: "BIGINT",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.FLOAT32: "REAL",
    Kind.FLOAT64: "DOUBLE PRECISION",
    Kind.STRING: "TEXT",
    Kind.BYTES: "BYTEA",
}
_LOGICAL: Final = {DECIMAL: "DECIMAL", DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP"}


class PostgresDatabase(Database):
    mark = "%s"

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        parts = urlsplit(url)
        asked = dict(parse_qsl(parts.query))
        # Java's driver has a schema of its own for this.
        search_path = asked.pop("currentSchema", None)
        options = "-c TimeZone=UTC" + (f" -c search_path={search_path}" if search_path else "")
        if asked.pop("ssl", "false").lower() in {"true", ""}:
            # As Java's driver has it.
            asked.setdefault("sslmode", "verify-full")
        known = {key: value for key, value in asked.items() if key in _ASKED}
        for name in asked.keys() - _ASKED:
            _log.warning("connection.url: %s is not known here, and left out", name)
        wanted: dict[str, str | int | None] = {
            "host": parts.hostname or "localhost",
            "port": parts.port or 5432,
            "dbname": parts.path.lstrip("/") or user or "postgres",
            "connect_timeout": 10,
            "keepalives_idle": 10,
            "options": options,
            **known,
            **({"user": user} if user else {}),
            **({"password": password} if password else {}),
        }
        self._info = make_conninfo("", **wanted)
        self._connection: psycopg.Connection[Any] | None = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self._info, autocommit=False)
                # As it stands in the table: numbers of Python are not as exact.
                set_json_loads(_text, self._connection)
            except psycopg.OperationalError as error:
                reason, place = str(error).strip(), conninfo_to_dict(self._info)
                where = f"PostgreSQL at {place['host']}:{place['port']}, database {place['dbname']}"
                is_final = "FATAL" in reason or "could not translate host name" in reason
                if is_final and not any(each in reason for each in _PASSING):
                    raise ConnectError(
                        f"{where} refuses: {reason}. Put connection.url, connection.user and "
                        "connection.password right, or let the user in"
                    ) from error
                raise DatabaseAway(f"{where}: {reason}") from error
        return self._connection

    def _done(self, work: Callable[[psycopg.Connection[Any]], Any]) -> Any:
        try:
            return work(self._connected())
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseAway(str(error).strip()) from error
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            raise ConnectError(
                f"PostgreSQL refuses: {str(error).strip()}. Create what is missing, or set auto.create and "
                "auto.evolve of a sink; then restart the task"
            ) from error
        except psycopg.errors.InvalidColumnReference as error:
            # What ON CONFLICT names: no row would fit, so it is not the row's fault.
            raise ConnectError(
                f"PostgreSQL refuses: {str(error).strip()}. Give the table a primary key of the columns of "
                "pk.fields, or another insert.mode; then restart the task"
            ) from error
        except (psycopg.errors.SyntaxError, psycopg.errors.InsufficientPrivilege) as error:
            raise ConnectError(f"PostgreSQL refuses: {str(error).strip()}") from error

    def tables(self, schema: str | None, kinds: Sequence[str]) -> list[Table]:
        wanted = [_KINDS.get(kind.upper(), kind) for kind in kinds]
        rows = self._done(lambda it: it.execute(_TABLES, [wanted, schema or "%"]).fetchall())
        self.commit()
        return [Table(*row) for row in rows]

    def columns(self, table: Table) -> list[TableColumn]:
        rows = self._done(lambda it: it.execute(_COLUMNS, [self.quoted_table(table)]).fetchall())
        return [TableColumn(*row) for row in rows]

    def query(self, sql: str, arguments: Sequence[Any]) -> Cursor:
        def open_cursor(connection: psycopg.Connection[Any]) -> Any:
            cursor = connection.cursor(name="ottla")
            cursor.execute(sql, list(arguments) or None)
            return _Fetching(cursor)

        found: Cursor = self._done(open_cursor)
        return found

    def field_schema(self, described: Any, column: TableColumn | None, numeric: str, sample: Any) -> Schema:
        kind = psycopg.adapters.types.get(described.type_code)
        # An array goes by the type of what is in it, and is read as text.
        name = "" if kind is None or described.type_code == kind.array_oid else kind.name
        if name == "numeric":
            found = _numeric(described.precision, described.scale, numeric)
        else:
            found = _SCHEMAS.get(name, STRING)
        return found.but(optional=column is None or not column.is_required)

    def read_value(self, schema: Schema, value: Any) -> Any:
        if value is None:
            return None
        match value:
            case Decimal() if schema.kind in {Kind.FLOAT64, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64}:
                return float(value) if schema.kind is Kind.FLOAT64 else int(value)
            case datetime():
                return self.as_moment(value)
            case list() if schema.kind is Kind.STRING:
                return json.dumps(value, default=to_text, ensure_ascii=False)
            case _ if schema.kind is Kind.STRING:
                return str(value)
            case _:
                return value

    def now(self) -> datetime:
        found: datetime = self._done(lambda it: it.execute("SELECT clock_timestamp()").fetchone())[0]
        return found

    def moment(self, column: str) -> str:
        return column

    def moment_argument(self, moment: datetime) -> Any:
        return moment

    def as_moment(self, value: Any) -> datetime:
        assert isinstance(value, datetime)
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def run(self, sql: str, arguments: Sequence[Any] = ()) -> int:
        return int(self._done(lambda it: it.execute(sql, list(arguments) or None).rowcount))

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        def run(connection: psycopg.Connection[Any]) -> None:
            with connection.cursor() as cursor:
                cursor.executemany(sql, rows)

        self._done(run)

    def column_type(self, schema: Schema) -> str:
        if schema.kind is Kind.ARRAY and schema.values is not None:
            return f"{self.column_type(schema.values)}[]"
        found = _LOGICAL.get(schema.name or "") or _TYPES.get(schema.kind)
        if found is None:
            raise ConnectError(
                f"PostgreSQL has no column for {schema.kind.value}: flatten it, or leave it out in "
                "fields.whitelist"
            )
        return found

    def written_value(self, schema: Schema | None, value: Any) -> Any:
        # Timestamps of Kafka Connect are in UTC, and columns of them without a zone.
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value

    def is_fault_of_row(self, error: Exception) -> bool:
        return isinstance(error, psycopg.DataError | psycopg.IntegrityError | psycopg.ProgrammingError)

    def commit(self) -> None:
        if self._connection is not None and not self._connection.closed:
            self._done(lambda it: it.commit())

    def rollback(self) -> None:
        if self._connection is not None and not self._connection.closed:
            self._done(lambda it: it.rollback())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _text(data: str | bytes) -> str:
    return data if isinstance(data, str) else data.decode()


class _Fetching:
    """A cursor of the server whose errors are told as all others are."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.description: Sequence[Any] | None = cursor.description

    def fetchmany(self, size: int = 1) -> Sequence[Any]:
        try:
            rows: Sequence[Any] = self._cursor.fetchmany(size)
            return rows
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseAway(str(error).strip()) from error
        except psycopg.DataError as error:
            raise ConnectError(
                f"a row cannot be read: {str(error).strip()}. Leave it or its column out with a query, and "
                "restart the task"
            ) from error

    def close(self) -> None:
        self._cursor.close()


def _numeric(precision: int | None, scale: int | None, mapping: str) -> Schema:
    if precision is not None and mapping != "none":
        if scale == 0 and precision < 19:
            for digits, kind in ((3, Kind.INT8), (5, Kind.INT16), (10, Kind.INT32)):
                if precision < digits:
                    return Schema(kind)
            return INT64
        if mapping.startswith("best_fit") and (precision < 19 or mapping == "best_fit_eager_double"):
            return FLOAT64
    if precision is None and mapping == "best_fit_eager_double":
        return FLOAT64
    return decimal_of(_UNSET_SCALE if scale is None else scale)
