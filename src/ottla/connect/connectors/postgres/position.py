"""How far a task is: what is stored with each record, and where to go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.connect.errors import ConnectError


@dataclass(frozen=True, slots=True)
class Position:
    completed_lsn: int
    """The end of the last transaction that was given as a whole."""
    transaction_lsn: int = 0
    """The commit of one that was given in part, 0 without one …"""
    events: int = 0
    """… and how many of its messages were given, of those that may become records."""
    read_tables: frozenset[str] | None = None
    """While the tables are read for the first time: those that are done."""

    def as_offset(self) -> dict[str, Any]:
        offset: dict[str, Any] = {"lsn_proc": self.completed_lsn, "lsn_commit": self.completed_lsn}
        if self.transaction_lsn:
            offset |= {"transaction_lsn": self.transaction_lsn, "transaction_events": self.events}
        if self.read_tables is not None:
            offset |= {
                "snapshot": "INITIAL",
                "snapshot_completed": False,
                "snapshot_tables": sorted(self.read_tables),
            }
        return offset


def position_of(offset: Mapping[str, Any]) -> Position:
    """Also of offsets that Debezium has stored: it says up to where transactions are complete. Raises
    ConnectError."""
    completed = offset.get("lsn_commit", offset.get("lsn_proc", offset.get("lsn")))
    numbers = (completed, offset.get("transaction_lsn", 0), offset.get("transaction_events", 0))
    if any(not isinstance(number, int) or isinstance(number, bool) or number < 0 for number in numbers):
        raise ConnectError(
            f"{dict(offset)} is not a place in PostgreSQL's log: lsn_commit has to be a number, the end of "
            "the last transaction that is done (SELECT pg_current_wal_lsn() - '0/0')"
        )
    is_reading = "snapshot" in offset and not offset.get("snapshot_completed", False)
    tables = frozenset(offset.get("snapshot_tables", ())) if is_reading else None
    return Position(*numbers, tables)
