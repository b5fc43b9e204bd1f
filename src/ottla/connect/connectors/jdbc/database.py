"""What the connectors ask of a database, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

from ottla.connect.data import Schema
from ottla.connect.errors import ConnectError, SettingError


class DatabaseAway(Exception):
    """The server is away for now, or has ended the connection: it may be asked again."""


@dataclass(frozen=True, slots=True)
class Table:
    schema: str | None
    name: str

    @property
    def full_name(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: str
    is_required: bool
    has_default: bool
    is_counting: bool
    """The database itself gives it ever larger numbers."""
    is_key: bool


class Cursor(Protocol):
    @property
    def description(self) -> Sequence[Any] | None: ...

    def fetchmany(self, size: int = ...) -> Sequence[Any]: ...

    def close(self) -> None: ...


class Database(ABC):
    """A connection, made when it is needed. All methods raise DatabaseAway or ConnectError."""

    mark: str
    """Where an argument stands in a statement."""

    # Asking

    @abstractmethod
    def tables(self, schema: str | None, kinds: Sequence[str]) -> list[Table]: ...

    @abstractmethod
    def columns(self, table: Table) -> list[TableColumn]:
        """Nothing for a table that is not there."""

    @abstractmethod
    def query(self, sql: str, arguments: Sequence[Any]) -> Cursor:
        """A cursor over rows that are fetched as they are read; ends with `commit`."""

    @abstractmethod
    def field_schema(self, described: Any, column: TableColumn | None, numeric: str, sample: Any) -> Schema:
        """Of a column of a result, optional where nobody said that it is required."""

    @abstractmethod
    def read_value(self, schema: Schema, value: Any) -> Any: ...

    @abstractmethod
    def now(self) -> datetime:
        """The database's clock."""

    @abstractmethod
    def moment(self, column: str) -> str:
        """A quoted column as an expression that can be compared with `moment_argument`."""

    @abstractmethod
    def moment_argument(self, moment: datetime) -> Any: ...

    @abstractmethod
    def as_moment(self, value: Any) -> datetime: ...

    # Writing

    @abstractmethod
    def run(self, sql: str, arguments: Sequence[Any] = ()) -> int:
        """How many rows it was about."""

    @abstractmethod
    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...

    @abstractmethod
    def column_type(self, schema: Schema) -> str:
        """For CREATE TABLE. Raises ConnectError for schemas that no column has."""

    @abstractmethod
    def written_value(self, schema: Schema | None, value: Any) -> Any: ...

    @abstractmethod
    def is_fault_of_row(self, error: Exception) -> bool:
        """Whether another row might do, and this one never does."""

    # Transactions

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def quoted_table(self, table: Table) -> str:
        if table.schema is None:
            return self.quoted(table.name)
        return f"{self.quoted(table.schema)}.{self.quoted(table.name)}"


_KNOWN = "known here are PostgreSQL (jdbc:postgresql://host:5432/database) and SQLite (jdbc:sqlite:/path)"


def database_of(config: Mapping[str, Any], *, may_be_made: bool = False) -> Database:
    """Raises ConnectError. `may_be_made` is for databases that are files."""
    url = config["connection.url"].removeprefix("jdbc:")
    if url.startswith(("postgresql:", "postgres:")):
        try:
            from ottla.connect.connectors.jdbc.postgresql import PostgresDatabase
        except ModuleNotFoundError as error:
            raise ConnectError(
                f"PostgreSQL needs the Python module {error.name}: pip install 'ottla[postgres]'"
            ) from error
        return PostgresDatabase(url, config["connection.user"], config["connection.password"])
    from ottla.connect.connectors.jdbc.sqlite import SqliteDatabase

    return SqliteDatabase(url.removeprefix("sqlite:"), may_be_made=may_be_made)


def known_url(name: str, value: Any) -> None:
    if value is not None and not str(value).removeprefix("jdbc:").startswith(
        ("postgresql:", "postgres:", "sqlite:")
    ):
        raise SettingError.of(name, value, f"No database of that kind is known; {_KNOWN}")
    url = str(value or "sqlite:/").removeprefix("jdbc:")
    if url.startswith("sqlite:"):
        # Would be a database that ends with the connection.
        if url.removeprefix("sqlite:") in {"", ":memory:"}:
            raise SettingError.of(name, value, "There is no path in it: jdbc:sqlite:/path")
        return
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        raise SettingError.of(name, value, f"It is no address: {error}") from None
