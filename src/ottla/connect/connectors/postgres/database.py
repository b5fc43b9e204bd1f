"""Connections to PostgreSQL, what their errors mean, and the stream of a replication slot."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ottla.connect.connectors.postgres.pgoutput import Data, Keepalive, read_frame, status_update
from ottla.connect.errors import ConnectError

# Whatever the server's own settings are: values look the same on all connections.
_OUTPUT: Final = (
    "-c DateStyle=ISO -c IntervalStyle=postgres -c TimeZone=UTC -c extra_float_digits=1 "
    "-c bytea_output=hex -c lc_monetary=C"
)
_PASSING: Final = (
    "starting up",
    "shutting down",
    "recovery mode",
    "too many clients",
    "remaining connection slots",
)
_IN_USE: Final = "55006"


class ConnectionLost(Exception):
    """The server is away for now, or has ended the connection: it may be asked again."""


class SlotInUse(Exception):
    """Another process reads from the slot."""


def conninfo(config: Mapping[str, Any], name: str) -> str:
    wanted = {
        "host": config["database.hostname"],
        "port": config["database.port"],
        "user": config["database.user"],
        "password": config["database.password"] or "",
        "dbname": config["database.dbname"],
        "sslmode": config["database.sslmode"],
        "sslcert": config["database.sslcert"],
        "sslkey": config["database.sslkey"],
        "sslpassword": config["database.sslpassword"],
        "sslrootcert": config["database.sslrootcert"],
        "application_name": f"ottla connect {name}",
        "client_encoding": "UTF8",
        "options": _OUTPUT,
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    return make_conninfo("", **{key: value for key, value in wanted.items() if value is not None})


def connected(info: str) -> psycopg.Connection[Any]:
    """Raises ConnectionLost where trying again may help, ConnectError where it does not."""
    try:
        return psycopg.connect(info, autocommit=True)
    except psycopg.OperationalError as error:
        raise refusal(info, str(error)) from error


def refusal(info: str, reason: str) -> Exception:
    """The server's own refusals stay what they are until somebody changes something."""
    place = conninfo_to_dict(info)
    where = f"PostgreSQL at {place['host']}:{place['port']}, database {place['dbname']}"
    is_final = "FATAL" in reason or "could not translate host name" in reason
    if is_final and not any(each in reason for each in _PASSING):
        return ConnectError(
            f"{where} refuses the user {place['user']}: {reason.strip()}. Put database.hostname, "
            "database.port, database.dbname, database.user and database.password right, or let the user in "
            "(pg_hba.conf, and ALTER ROLE … REPLICATION)"
        )
    return ConnectionLost(f"{where}: {reason.strip()}")


class ReplicationStream:
    """The changes of a slot, from a place on. Every method raises ConnectionLost when the connection is."""

    def __init__(self, info: str) -> None:
        self._info = info
        self._connection = pq.PGconn.connect(make_conninfo(info, replication="database").encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise refusal(info, self._error())

    def create_slot(self, slot: str) -> tuple[int, str]:
        """Where it begins, and the name of a snapshot of the data at just that place. The snapshot is
        there until the next command."""
        found = self._run(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput')
        return lsn_of((found.get_value(0, 1) or b"").decode()), (found.get_value(0, 2) or b"").decode()

    def start(self, slot: str, lsn: int, publication: str) -> None:
        quoted = publication.replace('"', '""').replace("'", "''")
        self._run(
            f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(lsn)} '
            f"(proto_version '1', publication_names '\"{quoted}\"')"
        )

    def read(self) -> Data | Keepalive | None:
        """None while there is nothing."""
        try:
            length, data = self._connection.get_copy_data(1)
            if length == 0:
                self._connection.consume_input()
                length, data = self._connection.get_copy_data(1)
        except psycopg.OperationalError as error:
            raise self._ended(str(error)) from error
        if length == 0:
            return None
        if length < 0:
            raise self._ended(self._error())
        return read_frame(bytes(data))

    def wait(self, seconds: float) -> None:
        """Until there may be something to read."""
        select.select([self._connection.socket], [], [], seconds)

    def confirm(self, lsn: int) -> None:
        try:
            self._connection.put_copy_data(status_update(lsn, time.time_ns() // 1000))
            while self._connection.flush():
                select.select([], [self._connection.socket], [], 1.0)
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error

    def close(self) -> None:
        self._connection.finish()

    def _run(self, command: str) -> pq.abc.PGresult:
        try:
            found = self._connection.exec_(command.encode())
        except psycopg.OperationalError as error:
            raise ConnectionLost(str(error)) from error
        if found.status in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH}:
            return found
        reason = found.error_message.decode(errors="replace").strip()
        code = (found.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if code == _IN_USE:
            raise SlotInUse(reason)
        if self._connection.status != pq.ConnStatus.OK or code.startswith("57"):
            raise ConnectionLost(reason)
        raise ConnectError(f"PostgreSQL does not take {command.partition(' (')[0]}: {reason}")

    def _ended(self, reason: str) -> Exception:
        """A stream that ends by itself has a result that says why."""
        try:
            result = self._connection.get_result()
        except psycopg.OperationalError:
            result = None
        said = result.error_message.decode(errors="replace").strip() if result is not None else ""
        code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result is not None else ""
        # Classes 08 and 57: connections and the operator; without a code nobody said anything.
        if code and not code.startswith(("08", "57")):
            return ConnectError(f"PostgreSQL ended the replication: {said or reason.strip()}")
        return ConnectionLost(said or reason.strip() or "the server has ended the replication")

    def _error(self) -> str:
        return self._connection.error_message.decode(errors="replace")


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
