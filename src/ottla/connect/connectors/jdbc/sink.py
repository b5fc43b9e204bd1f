"""The sink: records as rows of tables, in the order in which they came.

What `put` was given is in the database when it returns. After a failure records come again: an upsert changes
nothing then, an insert adds the row once more.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ottla.connect.connectors.jdbc.database import Database, DatabaseAway, Table, database_of
from ottla.connect.connectors.jdbc.settings import SINK_SETTINGS
from ottla.connect.data import INT32, INT64, STRING, Kind, Schema, Struct
from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.plugin import Config, SinkConnector, SinkTask
from ottla.connect.records import SinkRecord
from ottla.connect.settings.definition import Settings

_KAFKA: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Statement:
    """One kind of row: those that follow each other with the same are written together."""

    table: Table
    keys: tuple[str, ...]
    others: tuple[str, ...]
    is_delete: bool


@dataclass(frozen=True, slots=True)
class Row:
    statement: Statement
    schemas: Mapping[str, Schema]
    values: Mapping[str, Any]
    record: SinkRecord


class JdbcSinkTask(SinkTask):
    def __init__(self) -> None:
        self._columns: dict[Table, set[str]] = {}
        self._failures = 0

    def start(self, given: Config) -> None:
        config = self._config = SINK_SETTINGS.parse(given)
        self._mode, self._key_mode = config["insert.mode"], config["pk.mode"]
        self._wanted = set(config["fields.whitelist"])
        self._database: Database = database_of(config, may_be_made=True)

    def put(self, records: Sequence[SinkRecord]) -> None:
        rows = [row for record in records if (row := self._row(record)) is not None]
        try:
            for _, group in itertools.groupby(rows, key=lambda row: row.statement):
                self._write(list(group))
            self._database.commit()
        except DatabaseAway as error:
            self._database.close()
            # What a table looks like may be another story when the database is back.
            self._columns.clear()
            self._failures += 1
            if self._failures > self._config["max.retries"]:
                raise ConnectError(
                    f"not written after {self._config['max.retries']} retries (max.retries): {error}. "
                    "Nothing is lost: restart the task when the database is back"
                ) from error
            self.context.wait(self._config["retry.backoff.ms"] / 1000)
            raise RetriableError(f"the database is away: {error}") from error
        self._failures = 0

    def stop(self) -> None:
        self._database.close()

    # Records as rows

    def _row(self, record: SinkRecord) -> Row | None:
        try:
            return self._made(record)
        except DataError as error:
            self.context.report(record, error)
            return None

    def _made(self, record: SinkRecord) -> Row:
        table = self._table(record.topic)
        keys, schemas = self._key(record)
        if record.value is None:
            if not self._config["delete.enabled"]:
                raise DataError(
                    "the record has no value: set delete.enabled=true to delete the row of its key"
                )
            return Row(Statement(table, tuple(keys), (), True), schemas, keys, record)
        if not isinstance(record.value, Struct):
            raise DataError(
                "the value is no struct with a schema, which says what the columns are: use a converter with "
                "schemas (JsonConverter with schemas.enable=true, Avro, …)"
            )
        values, fields = dict(keys), dict(schemas)
        for field in record.value.schema.fields:
            if field.name not in keys and (not self._wanted or field.name in self._wanted):
                values[field.name] = record.value.get(field.name)
                fields[field.name] = field.schema
        others = tuple(name for name in values if name not in keys)
        return Row(Statement(table, tuple(keys), others, False), fields, values, record)

    def _table(self, topic: str) -> Table:
        """Dots of a topic's name are no dots of ours."""
        schema, dot, name = self._config["table.name.format"].rpartition(".")
        return Table(schema.replace("${topic}", topic) if dot else None, name.replace("${topic}", topic))

    def _key(self, record: SinkRecord) -> tuple[dict[str, Any], dict[str, Schema]]:
        names = self._config["pk.fields"]
        match self._key_mode:
            case "kafka":
                topic, partition, offset = names or _KAFKA
                return (
                    {
                        topic: record.original_topic,
                        partition: record.original_partition,
                        offset: record.offset,
                    },
                    {topic: STRING, partition: INT32, offset: INT64},
                )
            case "record_key":
                return _chosen("key", record.key_schema, record.key, names)
            case "record_value" if record.value is not None:
                return _chosen("value", record.value_schema, record.value, names)
            case _:
                return {}, {}

    # Rows into tables

    def _write(self, rows: list[Row]) -> None:
        first = rows[0]
        if not self._is_ready(first):
            return
        sql, names = self._sql(first.statement)
        for start in range(0, len(rows), self._config["batch.size"]):
            batch = rows[start : start + self._config["batch.size"]]
            arguments = [
                [self._database.written_value(row.schemas[name], row.values[name]) for name in names]
                for row in batch
            ]
            self._database.run("SAVEPOINT batch")
            try:
                self._database.run_many(sql, arguments)
            except (DatabaseAway, ConnectError):
                raise
            except Exception as error:
                if not self._database.is_fault_of_row(error):
                    raise
                self._database.run("ROLLBACK TO SAVEPOINT batch")
                self._write_each(sql, batch, arguments)
            self._database.run("RELEASE SAVEPOINT batch")

    def _write_each(self, sql: str, rows: Sequence[Row], arguments: Sequence[Sequence[Any]]) -> None:
        """One of them cannot be written: that one is reported, the others are not to suffer."""
        for row, values in zip(rows, arguments, strict=True):
            self._database.run("SAVEPOINT one")
            try:
                self._database.run(sql, values)
            except (DatabaseAway, ConnectError):
                raise
            except Exception as error:
                if not self._database.is_fault_of_row(error):
                    raise
                self._database.run("ROLLBACK TO SAVEPOINT one")
                self.context.report(row.record, DataError(f"{row.statement.table.full_name}: {error}"))
            self._database.run("RELEASE SAVEPOINT one")

    def _sql(self, statement: Statement) -> tuple[str, tuple[str, ...]]:
        """And the columns in the order of its arguments."""
        database = self._database
        table, hole = database.quoted_table(statement.table), database.mark
        keys, others = statement.keys, statement.others
        where = " AND ".join(f"{database.quoted(name)} = {hole}" for name in keys)
        if statement.is_delete:
            return f"DELETE FROM {table} WHERE {where}", keys  # noqa: S608
        if self._mode == "update":
            changes = ", ".join(f"{database.quoted(name)} = {hole}" for name in others)
            return f"UPDATE {table} SET {changes} WHERE {where}", (*others, *keys)  # noqa: S608
        names = (*keys, *others)
        columns = ", ".join(database.quoted(name) for name in names)
        sql = f"INSERT INTO {table} ({columns}) VALUES ({', '.join([hole] * len(names))})"  # noqa: S608
        if self._mode == "upsert":
            changes = ", ".join(
                f"{database.quoted(name)} = EXCLUDED.{database.quoted(name)}" for name in others
            )
            conflict = ", ".join(database.quoted(name) for name in keys)
            sql += f" ON CONFLICT ({conflict}) DO " + (f"UPDATE SET {changes}" if others else "NOTHING")
        return sql, names

    # Tables as records want them

    def _is_ready(self, row: Row) -> bool:
        """False where a row is to be deleted from a table that is still to be created."""
        table = row.statement.table
        known = self._columns.get(table)
        if known is not None and known.issuperset(row.values):
            return True
        known = {column.name for column in self._database.columns(table)}
        if not known:
            if not self._config["auto.create"]:
                raise ConnectError(
                    f"there is no table {table.full_name}: create it, or set auto.create=true; then restart "
                    "the task"
                )
            if row.statement.is_delete:
                return False
            self._create(row)
        elif lacking := [name for name in row.values if name not in known]:
            if not self._config["auto.evolve"]:
                raise ConnectError(
                    f"the table {table.full_name} has no column {', '.join(lacking)}: add it, leave the "
                    "field out in fields.whitelist, or set auto.evolve=true; then restart the task"
                )
            self._evolve(row, lacking)
        self._database.commit()
        self._columns[table] = {column.name for column in self._database.columns(table)}
        return True

    def _create(self, row: Row) -> None:
        database, statement = self._database, row.statement
        columns = [
            f"{database.quoted(name)} {database.column_type(schema)}"
            f"{'' if schema.optional and name not in statement.keys else ' NOT NULL'}"
            for name, schema in row.schemas.items()
        ]
        if statement.keys:
            columns.append(f"PRIMARY KEY ({', '.join(database.quoted(name) for name in statement.keys)})")
        sql = f"CREATE TABLE IF NOT EXISTS {database.quoted_table(statement.table)} ({', '.join(columns)})"
        _log.info("%s", sql)
        database.run(sql)

    def _evolve(self, row: Row, lacking: Sequence[str]) -> None:
        database = self._database
        for name in lacking:
            schema = row.schemas[name]
            if not schema.optional and schema.default is None:
                raise ConnectError(
                    f"the column {name} cannot be added to {row.statement.table.full_name}: it is required, "
                    "and the rows that are there have no value for it. Make it optional, or add the column"
                )
            sql = (
                f"ALTER TABLE {database.quoted_table(row.statement.table)} "
                f"ADD COLUMN {database.quoted(name)} {database.column_type(schema)}"
            )
            _log.info("%s", sql)
            database.run(sql)


def _chosen(
    what: str, schema: Schema | None, value: Any, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Schema]]:
    """The fields that make up the key of a row."""
    if value is None or schema is None:
        raise DataError(f"the record's {what} has no schema, and pk.mode=record_{what} needs one")
    if schema.kind is not Kind.STRUCT:
        if len(names) != 1:
            raise DataError(
                f"the record's {what} is a {schema.kind.value}: pk.fields has to name its one column"
            )
        return {names[0]: value}, {names[0]: schema}
    wanted = names or [field.name for field in schema.fields]
    fields = {field.name: field.schema for field in schema.fields}
    lacking = [name for name in wanted if name not in fields]
    if lacking:
        raise DataError(f"pk.fields: the record's {what} has no field {', '.join(lacking)}")
    return {name: value.get(name) for name in wanted}, {name: fields[name] for name in wanted}


class JdbcSink(SinkConnector):
    settings: ClassVar[Settings] = SINK_SETTINGS
    task_class = JdbcSinkTask
    guarantee: ClassVar[str] = (
        "At least once: rows are committed before the offsets are. With `insert.mode=upsert` exactly once in "
        "effect, since a record that comes again writes the same row; `pk.mode=kafka` makes any topic such "
        "records."
    )

    @classmethod
    def task_name(cls) -> str:
        return "io.confluent.connect.jdbc.sink.JdbcSinkTask"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given] * tasks_max

    def validate(self, given: Config) -> Mapping[str, Sequence[str]]:
        errors: dict[str, Sequence[str]] = {}
        mode, key_mode = given.get("insert.mode", "insert"), given.get("pk.mode", "none")
        if given.get("delete.enabled", "false").lower() == "true" and key_mode != "record_key":
            errors["delete.enabled"] = ["Deletes are only supported for pk.mode record_key"]
        if mode in {"upsert", "update"} and key_mode == "none":
            errors["pk.mode"] = [f"insert.mode={mode} needs a key: record_key, record_value or kafka"]
        if key_mode == "record_value" and not given.get("pk.fields"):
            errors["pk.fields"] = ["pk.mode=record_value needs the fields that make up the key"]
        if key_mode == "kafka" and len(str(given.get("pk.fields", "a,b,c")).split(",")) != 3:
            errors["pk.fields"] = ["pk.mode=kafka has three columns: topic, partition and offset"]
        return errors
