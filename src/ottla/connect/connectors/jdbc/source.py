"""The source: asks tables or a query again and again for what is new since the last row it gave."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

from ottla.connect.connectors.jdbc.database import (
    Cursor,
    Database,
    DatabaseAway,
    Table,
    TableColumn,
    database_of,
)
from ottla.connect.connectors.jdbc.settings import BOTH, BULK, INCREMENTING, SOURCE_SETTINGS, TIMESTAMP
from ottla.connect.data import EPOCH, Schema, Struct, from_millis, struct_of
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Config, SourceConnector, SourceTask
from ottla.connect.records import SourceRecord
from ottla.connect.settings.definition import Settings

_FIRST_DELAY_S: Final = 0.3
_LOOK_S: Final = 0.5
_TASK: Final = "ottla.task.number"
_TASKS: Final = "ottla.task.count"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mark:
    """The last row that was given, by what says that a row is new."""

    number: int | None = None
    moment: datetime | None = None

    def as_offset(self) -> dict[str, Any]:
        offset: dict[str, Any] = {}
        if self.number is not None:
            offset["incrementing"] = self.number
        if self.moment is not None:
            micros = (self.moment - EPOCH) // timedelta(microseconds=1)
            offset["timestamp"] = micros // 1000
            offset["timestamp_nanos"] = micros % 1_000_000 * 1000
        return offset


def mark_of(offset: Mapping[str, Any]) -> Mark:
    """Raises ConnectError."""
    number, millis = offset.get("incrementing"), offset.get("timestamp")
    nanos = offset.get("timestamp_nanos", (millis or 0) % 1000 * 1_000_000)
    for value in (number, millis, nanos):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise ConnectError(
                f"{dict(offset)} is not a place in a table: incrementing has to be a number, timestamp "
                "milliseconds since 1970"
            )
    if millis is None:
        return Mark(number)
    seconds = from_millis(millis // 1000 * 1000)
    return Mark(number, seconds + timedelta(microseconds=nanos // 1000))


class Question:
    """A table or the query: what it is asked, and the rows that came so far."""

    def __init__(
        self,
        database: Database,
        config: Mapping[str, Any],
        table: Table | None,
        stored: Mapping[str, Any] | None,
    ) -> None:
        self._database = database
        self._config = config
        self._table = table
        self._mode = config["mode"]
        self._mark = self._first_mark() if stored is None else mark_of(stored)
        self._columns: list[TableColumn] = []
        self._number = ""
        self._moments: list[str] = []
        self._cursor: Cursor | None = None
        self._schema: Schema | None = None
        self._ahead: list[Any] = []
        self.due_s = 0.0

    @staticmethod
    def partition_of(config: Mapping[str, Any], table: Table | None) -> dict[str, Any]:
        if table is None:
            return {"query": "query"}
        return {"protocol": "1", "table": table.full_name}

    @property
    def name(self) -> str:
        return "the query" if self._table is None else self._table.full_name

    def read(self, rows_max: int) -> list[SourceRecord]:
        """Nothing when all is given; it is due again then after a while."""
        if self._cursor is None:
            self.due_s = time.monotonic() + self._config["poll.interval.ms"] / 1000
            self._ask()
        assert self._cursor is not None
        rows = self._next_rows(self._cursor, rows_max)
        if not rows:
            self.stop()
            self._database.commit()
            return []
        return [self._record(row) for row in rows]

    def stop(self) -> None:
        """What was not given comes with the next question."""
        if self._cursor is not None:
            self._cursor.close()
        self._cursor, self._ahead = None, []

    def _first_mark(self) -> Mark:
        initial = self._config["timestamp.initial"]
        if self._mode not in {TIMESTAMP, BOTH} or initial is None:
            return Mark()
        return Mark(moment=self._database.now() if initial < 0 else from_millis(initial))

    def _ask(self) -> None:
        self._check_table()
        self._choose_columns()
        sql, arguments = self._statement()
        self._cursor = self._database.query(sql, arguments)
        self._schema = None
        self._ahead = []
        names = self._names()
        for name in (self._number, *self._moments):
            # SQLite takes a name that is none for a text.
            if name and name not in names:
                raise ConnectError(f"{self.name} has no column {name}: it has {', '.join(names)}")

    def _check_table(self) -> None:
        if self._table is not None:
            self._columns = self._database.columns(self._table)
            if not self._columns:
                raise ConnectError(
                    f"the table {self.name} is gone: create it, or take it out of table.whitelist, and "
                    "restart the task"
                )

    def _choose_columns(self) -> None:
        if self._mode in {INCREMENTING, BOTH}:
            counting = [column.name for column in self._columns if column.is_counting]
            self._number = self._config["incrementing.column.name"] or (counting[0] if counting else "")
            if not self._number:
                # It may have gone while it was asked about.
                self._check_table()
                raise ConnectError(
                    f"{self.name} has no column that the database counts: name one in "
                    "incrementing.column.name"
                )
        if self._mode in {TIMESTAMP, BOTH}:
            self._moments = self._config["timestamp.column.name"]
        known = {column.name: column for column in self._columns}
        if self._table is None:
            return
        for name in (self._number, *self._moments):
            if name and name not in known:
                raise ConnectError(f"{self.name} has no column {name}: it has {', '.join(known)}")
        nullable = [name for name in (self._number, *self._moments) if name and not known[name].is_required]
        one_is_enough = any(known[name].is_required for name in self._moments)
        if self._config["validate.non.null"] and (
            self._number in nullable or (set(nullable) & set(self._moments) and not one_is_enough)
        ):
            raise ConnectError(
                f"the column {nullable[0]} of {self.name} may be null, and rows without a value would never "
                "come: make it NOT NULL, or set validate.non.null=false"
            )

    def _statement(self) -> tuple[str, list[Any]]:
        database, mark, hole = self._database, self._mark, self._database.mark
        base = self._config["query"] or f"SELECT * FROM {database.quoted_table(self._table)}"  # type: ignore[arg-type]  # noqa: S608
        conditions: list[str] = []
        arguments: list[Any] = []
        number = database.quoted(self._number)
        columns = ", ".join(database.quoted(name) for name in self._moments)
        moment = database.moment(f"COALESCE({columns})" if len(self._moments) > 1 else columns)
        order = ""
        if self._mode == INCREMENTING:
            if mark.number is not None:
                conditions.append(f"{number} > {hole}")
                arguments.append(mark.number)
            order = number
        elif self._mode in {TIMESTAMP, BOTH}:
            until = database.now() - timedelta(milliseconds=self._config["timestamp.delay.interval.ms"])
            conditions.append(f"{moment} < {hole}")
            arguments.append(database.moment_argument(until))
            order = moment if self._mode == TIMESTAMP else f"{moment}, {number}"
            if mark.moment is not None:
                last = database.moment_argument(mark.moment)
                if self._mode == BOTH and mark.number is not None:
                    conditions.append(f"({moment} > {hole} OR ({moment} = {hole} AND {number} > {hole}))")
                    arguments += [last, last, mark.number]
                else:
                    conditions.append(f"{moment} > {hole}")
                    arguments.append(last)
        if arguments and hole == "%s":
            base = base.replace("%", "%%")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        ordered = f" ORDER BY {order} ASC" if order else ""
        suffix = f" {self._config['query.suffix']}" if self._config["query.suffix"] else ""
        return f"{base}{where}{ordered}{suffix}", arguments

    def _next_rows(self, cursor: Cursor, rows_max: int) -> list[Any]:
        """By time alone only whole groups of the same time: behind a part of one the rest would be lost."""
        rows = self._ahead
        self._ahead = []
        if len(rows) < rows_max:
            rows = [*rows, *cursor.fetchmany(rows_max - len(rows))]
        if self._mode != TIMESTAMP or not rows:
            return rows
        last = self._moment(rows[-1])
        while True:
            more = cursor.fetchmany(1)
            if not more:
                return rows
            if self._moment(more[0]) != last:
                self._ahead = list(more)
                return rows
            rows = [*rows, *more]

    def _names(self) -> list[str]:
        assert self._cursor is not None
        return [each[0] for each in self._cursor.description or ()]

    def _moment(self, row: Any) -> datetime | None:
        by_name = dict(zip(self._names(), row, strict=True))
        found = next((by_name[name] for name in self._moments if by_name.get(name) is not None), None)
        return None if found is None else self._database.as_moment(found)

    def _record(self, row: Any) -> SourceRecord:
        if self._schema is None:
            self._schema = self._described(row)
        schema, database = self._schema, self._database
        values = {}
        for field, value in zip(schema.fields, row, strict=True):
            try:
                values[field.name] = database.read_value(field.schema, value)
            except (ValueError, TypeError, OverflowError) as error:
                raise self._unreadable(field.name, f"is {value!r}: {error}") from error
        if self._number:
            number = values[self._number]
            if not isinstance(number, int | float | Decimal):
                raise self._unreadable(
                    self._number, "is null" if number is None else f"is {number!r}, no number"
                )
            self._mark = replace(self._mark, number=int(number))
        if self._moments:
            self._mark = replace(self._mark, moment=self._moment(row))
        prefix = self._config["topic.prefix"]
        return SourceRecord(
            topic=prefix if self._table is None else f"{prefix}{self._table.name}",
            value_schema=schema,
            value=Struct(schema, values),
            source_partition=self.partition_of(self._config, self._table),
            source_offset=self._mark.as_offset(),
        )

    def _unreadable(self, column: str, reason: str) -> ConnectError:
        return ConnectError(
            f"a row of {self.name}: {column} {reason}. Put the row right, or leave it out with a query, and "
            "restart the task"
        )

    def _described(self, row: Any) -> Schema:
        assert self._cursor is not None
        known = {column.name: column for column in self._columns}
        mapping = self._config["numeric.mapping"]
        fields = [
            (
                described[0],
                self._database.field_schema(described, known.get(described[0]), mapping, value),
            )
            for described, value in zip(self._cursor.description or (), row, strict=True)
        ]
        return struct_of(*fields, name=None if self._table is None else self._table.name)


class JdbcSourceTask(SourceTask):
    def __init__(self) -> None:
        self._questions: dict[Table | None, Question] = {}
        self._current: Question | None = None
        self._looked_s: float | None = None
        self._failures = 0
        self._was_connected = False

    def start(self, given: Config) -> None:
        self._config = SOURCE_SETTINGS.parse(given)
        self._number, self._count = int(given.get(_TASK, "0")), int(given.get(_TASKS, "1"))
        self._database = database_of(self._config)

    def poll(self) -> Sequence[SourceRecord]:
        try:
            records = self._read()
        except DatabaseAway as error:
            self._wait_for_database(error)
            return ()
        self._failures, self._was_connected = 0, True
        return records

    def stop(self) -> None:
        self._database.close()

    def _read(self) -> Sequence[SourceRecord]:
        self._look_for_tables()
        if self._current is None:
            due = min(self._questions.values(), key=lambda question: question.due_s, default=None)
            wait_s = _LOOK_S if due is None else due.due_s - time.monotonic()
            if due is None or wait_s > 0:
                self.context.wait(min(wait_s, _LOOK_S))
                return ()
            self._current = due
        records = self._current.read(self._config["batch.max.rows"])
        if not records:
            self._current = None
        return records

    def _look_for_tables(self) -> None:
        now_s = time.monotonic()
        interval_s = self._config["table.poll.interval.ms"] / 1000
        if self._current is not None or (
            self._looked_s is not None and (self._config["query"] or now_s - self._looked_s < interval_s)
        ):
            return
        wanted = [None] if self._config["query"] else self._own_tables()
        for table in wanted:
            if table not in self._questions:
                stored = self.context.offset(Question.partition_of(self._config, table))
                self._questions[table] = Question(self._database, self._config, table, stored)
        for table in self._questions.keys() - set(wanted):
            _log.warning("the table %s is gone, and is not asked any more", self._questions[table].name)
            del self._questions[table]
        self._looked_s = now_s

    def _own_tables(self) -> list[Table | None]:
        config = self._config
        wanted, unwanted = config["table.whitelist"], config["table.blacklist"]
        found = [
            table
            for table in self._database.tables(config["schema.pattern"], config["table.types"])
            if (not wanted or _is_named(table, wanted)) and not _is_named(table, unwanted)
        ]
        lacking = [name for name in wanted if not any(_is_named(table, [name]) for table in found)]
        if lacking and self._looked_s is None:
            raise ConnectError(
                f"table.whitelist={','.join(wanted)}: there is no table {', '.join(lacking)}. Create it, or "
                "name those that are there"
            )
        # Each task takes its own, by name: new ones find theirs without asking the others.
        return [
            table for table in found if zlib.crc32(table.full_name.encode()) % self._count == self._number
        ]

    def _wait_for_database(self, error: DatabaseAway) -> None:
        if self._current is not None:
            self._current.stop()
        self._current = None
        self._database.close()
        self._failures += 1
        if not self._was_connected and self._failures >= self._config["connection.attempts"]:
            raise ConnectError(
                f"no connection after {self._failures} tries (connection.attempts): {error}. Put "
                "connection.url right, or start the database, and restart the task"
            ) from error
        longest_s = self._config["connection.backoff.ms"] / 1000
        delay_s = min(_FIRST_DELAY_S * 2.0 ** min(self._failures, 10), longest_s)
        _log.warning("%s; asking again in %g s", error, delay_s)
        self.context.wait(delay_s)


def _is_named(table: Table, names: Sequence[str]) -> bool:
    """By its name, or by the end of database.schema.table."""
    return any(
        name in {table.name, table.full_name} or name.endswith(f".{table.full_name}") for name in names
    )


class JdbcSource(SourceConnector):
    settings: ClassVar[Settings] = SOURCE_SETTINGS
    task_class = JdbcSourceTask
    guarantee: ClassVar[str] = (
        "Each row that a query sees exactly once where the worker has `exactly.once.source.support=enabled` "
        "and the mode is not bulk, else at least once: a row and its number or time, behind which the next "
        "query goes on, are written in one transaction. Rows that become visible behind larger numbers or "
        "later times are not seen."
    )

    @classmethod
    def task_name(cls) -> str:
        return "io.confluent.connect.jdbc.source.JdbcSourceTask"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        count = 1 if self.config["query"] else tasks_max
        return [{**self.given, _TASK: str(number), _TASKS: str(count)} for number in range(count)]

    def is_exactly_once(self, given: Config) -> bool:
        return given.get("mode") != BULK

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        errors: dict[str, Sequence[str]] = {}
        if given.get("query") and (given.get("table.whitelist") or given.get("table.blacklist")):
            errors["query"] = ["query cannot be used with table.whitelist or table.blacklist"]
        if given.get("table.whitelist") and given.get("table.blacklist"):
            errors["table.blacklist"] = ["table.whitelist and table.blacklist are exclusive"]
        if given.get("mode") in {TIMESTAMP, BOTH} and not given.get("timestamp.column.name"):
            errors["timestamp.column.name"] = [f"mode={given['mode']} needs the name of the column"]
        named = given.get("incrementing.column.name")
        if given.get("mode") in {INCREMENTING, BOTH} and given.get("query") and not named:
            errors["incrementing.column.name"] = ["a query has no column that the database counts: name one"]
        return errors

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        for _, offset in offsets:
            if offset is not None:
                mark_of(offset)
