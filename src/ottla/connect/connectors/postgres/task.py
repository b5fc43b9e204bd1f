"""The task: reads the tables if that is wanted, then follows the changes, over lost connections.

What is given is confirmed to the server after it is in its topics, and never before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg

from ottla.connect.columns import SourceColumns
from ottla.connect.connectors.postgres.catalog import Catalog, Published, Slot
from ottla.connect.connectors.postgres.changes import Changes
from ottla.connect.connectors.postgres.columns import Modes
from ottla.connect.connectors.postgres.database import (
    ConnectionLost,
    ReplicationStream,
    SlotInUse,
    connected,
    conninfo,
)
from ottla.connect.connectors.postgres.envelope import Envelopes, Shapes, matcher
from ottla.connect.connectors.postgres.position import Position, position_of
from ottla.connect.connectors.postgres.settings import SETTINGS
from ottla.connect.connectors.postgres.snapshot import Snapshot
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Config, SourceTask
from ottla.connect.records import SourceRecord

_FIRST_DELAY_S: Final = 0.3
_IDLE_S: Final = 0.5
_NO_SNAPSHOT: Final = {"never", "no_data"}
_log = logging.getLogger(__name__)


class PostgresSourceTask(SourceTask):
    def __init__(self) -> None:
        self._catalog_connection: psycopg.Connection[Any] | None = None
        self._snapshot: Snapshot | None = None
        self._stream: ReplicationStream | None = None
        self._changes: Changes | None = None
        self._position: Position | None = None
        self._failures = 0
        self._in_use_since_s: float | None = None
        self._beat_s = time.monotonic()

    def start(self, given: Config) -> None:
        config = self._config = SETTINGS.parse(given)
        prefix = config["topic.prefix"]
        self._info = conninfo(config, prefix)
        self._slot = config["slot.name"]
        self._publication = config["publication.name"]
        self._mode = config["snapshot.mode"]
        self._is_schema_wanted = matcher(config["schema.include.list"], config["schema.exclude.list"])
        self._is_table_wanted = matcher(config["table.include.list"], config["table.exclude.list"])
        modes = Modes(
            config["decimal.handling.mode"],
            config["time.precision.mode"],
            config["binary.handling.mode"],
            config["interval.handling.mode"],
            config["hstore.handling.mode"],
            config["money.fraction.digits"],
            config["unavailable.value.placeholder"],
            config["include.unknown.datatypes"],
        )
        columns = matcher(config["column.include.list"], config["column.exclude.list"])
        self._shapes = Shapes(prefix, modes, columns)
        self._envelopes = Envelopes(prefix, config["database.dbname"], config)
        stored = self.context.offset(self._envelopes.partition)
        self._position = None if stored is None else position_of(stored)
        self._reads_tables = self._mode not in _NO_SNAPSHOT and (
            self._mode == "always" or self._position is None or self._position.read_tables is not None
        )

    def poll(self) -> Sequence[SourceRecord] | SourceColumns:
        try:
            records = self._read()
        except (ConnectionLost, psycopg.OperationalError, psycopg.InterfaceError) as error:
            self._wait_for_server(error)
            return ()
        except SlotInUse as error:
            self._wait_for_slot(error)
            return ()
        except psycopg.Error as error:
            raise ConnectError(f"PostgreSQL refuses what change capture asks of it: {error}") from error
        self._failures, self._in_use_since_s = 0, None
        return records

    def commit(self) -> None:
        if self._changes is not None:
            try:
                self._changes.confirm()
            except ConnectionLost as error:
                # Told again after the next connect; until then the server keeps more than it needs.
                _log.debug("not confirmed: %s", error)

    def stop(self) -> None:
        self._disconnect()
        if self._config["slot.drop.on.stop"]:
            try:
                with connected(self._info) as connection:
                    Catalog(connection).drop_slot(self._slot)
            except (psycopg.Error, ConnectionLost, ConnectError) as error:
                _log.warning("the slot %s is not dropped: %s", self._slot, error)

    # Reading

    def _read(self) -> Sequence[SourceRecord] | SourceColumns:
        if self._snapshot is None and self._changes is None:
            self._connect()
        records_max = self._config["max.batch.size"]
        if self._snapshot is not None:
            rows = self._snapshot.read(records_max)
            self._position = self._snapshot.position
            if rows:
                return rows
            self._snapshot.close()
            self._snapshot = None
            self._reads_tables = False
            _log.info("%s: all tables are read", self._slot)
            if self._mode != "initial_only":
                self._follow()
        if self._changes is None:
            self.context.wait(_IDLE_S)
            return ()
        records = self._changes.read(records_max)
        self._position = self._changes.position
        return [*records, *self._heartbeat()]

    def _heartbeat(self) -> Sequence[SourceRecord]:
        interval_s = self._config["heartbeat.interval.ms"] / 1000
        if not interval_s or time.monotonic() - self._beat_s < interval_s:
            return ()
        self._beat_s = time.monotonic()
        query = self._config["heartbeat.action.query"]
        if query:
            assert self._catalog_connection is not None
            self._catalog_connection.execute(query)
        assert self._position is not None
        return [self._envelopes.heartbeat(self._position)]

    # Connecting

    def _connect(self) -> None:
        self._disconnect()
        self._catalog_connection = connected(self._info)
        catalog = self._catalog = Catalog(self._catalog_connection)
        catalog.check_server()
        self._publish(catalog)
        slot = self._usable_slot(catalog)
        exported: str | None = None
        if slot is None:
            self._stream = ReplicationStream(self._info)
            lsn, exported = self._stream.create_slot(self._slot)
            self._position = Position(lsn)
        elif self._position is None:
            self._position = Position(slot.confirmed_lsn)
        assert self._position is not None
        if self._reads_tables:
            tables = [
                each for each in catalog.published(self._publication) if self._is_wanted(each.full_name)
            ]
            self._check_tables(tables)
            connection = connected(self._info)
            self._snapshot = Snapshot(
                connection, tables, self._shapes, self._envelopes, self._position, exported
            )
        elif self._mode != "initial_only":
            self._follow()

    def _follow(self) -> None:
        assert self._position is not None
        if self._stream is None:
            self._stream = ReplicationStream(self._info)
        self._stream.start(self._slot, self._position.completed_lsn, self._publication)
        self._changes = Changes(
            self._stream,
            self._catalog,
            self._shapes,
            self._envelopes,
            self._position,
            self._is_wanted,
            tells_transactions=self._config["provide.transaction.metadata"],
            report_s=self._config["status.update.interval.ms"] / 1000,
        )

    def _disconnect(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        if self._stream is not None:
            self._stream.close()
        if self._catalog_connection is not None:
            self._catalog_connection.close()
        self._snapshot = self._stream = self._changes = self._catalog_connection = None

    def _usable_slot(self, catalog: Catalog) -> Slot | None:
        """None if one is to be made. Raises ConnectError for one that has lost what is to come next."""
        slot = catalog.slot(self._slot)
        if slot is not None and not slot.is_lost:
            if slot.plugin != "pgoutput" or slot.database != self._config["database.dbname"]:
                raise ConnectError(
                    f"the slot {self._slot} is of the plugin {slot.plugin} and the database {slot.database}, "
                    "and not of pgoutput and this one: name another in slot.name"
                )
            return slot
        is_first = self._position is None or self._position.read_tables is not None
        if not is_first and self._mode != "when_needed":
            raise ConnectError(
                f"the slot {self._slot} {'is gone' if slot is None else 'has lost its log'}, and with it the "
                f"changes since {self._position}. Read the tables anew: stop the connector, DELETE its "
                "offsets, and resume it (or set snapshot.mode=when_needed)"
            )
        if slot is not None:
            catalog.drop_slot(self._slot)
        self._reads_tables = self._mode not in _NO_SNAPSHOT
        self._position = None
        return None

    # Tables

    def _is_wanted(self, table: str) -> bool:
        return self._is_schema_wanted(table.partition(".")[0]) and self._is_table_wanted(table)

    def _publish(self, catalog: Catalog) -> None:
        mode, name = self._config["publication.autocreate.mode"], self._publication
        wanted = [table for table in catalog.user_tables() if self._is_wanted(".".join(table))]
        if not catalog.has_publication(name):
            match mode:
                case "disabled":
                    raise ConnectError(
                        f"there is no publication {name}: CREATE PUBLICATION {name} FOR TABLE …, or set "
                        "publication.autocreate.mode"
                    )
                case "all_tables":
                    catalog.create_publication(name, None)
                case "filtered":
                    self._check_tables(wanted)
                    catalog.create_publication(name, wanted)
                case _:
                    catalog.create_publication(name, ())
        elif mode == "filtered":
            present = {(each.schema, each.name) for each in catalog.published(name)}
            if wanted and present != set(wanted):
                catalog.set_published(name, wanted)

    def _check_tables(self, tables: Sequence[Published] | Sequence[tuple[str, str]]) -> None:
        if not tables and self._config["table.include.list"]:
            raise ConnectError(
                f"table.include.list={','.join(self._config['table.include.list'])}: there is no such table "
                f"in the publication {self._publication} of the database "
                f"{self._config['database.dbname']}. Name them as schema.table, or create them"
            )

    # Waiting

    def _wait_for_server(self, error: Exception) -> None:
        self._disconnect()
        retries_max = self._config["errors.max.retries"]
        if 0 <= retries_max <= self._failures:
            raise ConnectError(
                f"PostgreSQL cannot be reached after {self._failures} retries (errors.max.retries): "
                f"{str(error).strip()}"
            ) from error
        delay_s = min(
            _FIRST_DELAY_S * 2.0 ** min(self._failures, 10),
            self._config["retriable.restart.connector.wait.ms"] / 1000,
        )
        self._failures += 1
        _log.warning(
            "%s: %s; connecting again in %g s, nothing is lost", self._slot, str(error).strip(), delay_s
        )
        self.context.wait(delay_s)

    def _wait_for_slot(self, error: SlotInUse) -> None:
        """A worker that died may keep its slot for as long as the server has not noticed."""
        self._disconnect()
        delay_s = self._config["slot.retry.delay.ms"] / 1000
        now_s = time.monotonic()
        if self._in_use_since_s is None:
            self._in_use_since_s = now_s
        if now_s - self._in_use_since_s > self._config["slot.max.retries"] * delay_s:
            raise ConnectError(
                f"{error}. Another connector has the same slot.name, or a worker that died still holds it: "
                "name another slot, or end that process (SELECT pg_terminate_backend(pid))"
            ) from error
        _log.info("%s; trying again", error)
        self.context.wait(min(delay_s, 1.0))
