"""Joins that look up a table: table-table by key, stream-table, stream-global table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output, View
from ottla.streams.records import Change, Record


@dataclass(frozen=True, slots=True)
class TableJoinSide:
    """One side of a table-table join: an update of this side meets the current row of the other."""

    is_left: bool
    other: View
    joiner: Callable[[Any, Any, Any], Any]
    # Whether a row of this side, and of the other side, stands in the result without a partner.
    mine_alone: bool
    other_alone: bool
    send_old: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a join")
            return ()
        change: Change = record.value
        found = self.other.get(record.key, context)
        other = None if found is None else found.value
        if other is None and (not self.mine_alone or (change.new is None and change.old is None)):
            return ()
        timestamp_ms = record.timestamp_ms if found is None else max(record.timestamp_ms, found.timestamp_ms)
        new = self._join(record.key, change.new, other)
        old = self._join(record.key, change.old, other) if self.send_old else None
        return (Record(record.key, Change(new, old), timestamp_ms, record.headers),)

    def _join(self, key: Any, mine: Any, other: Any) -> Any:
        if mine is None and (other is None or not self.other_alone):
            return None
        if other is None and not self.mine_alone:
            return None
        return self.joiner(key, mine, other) if self.is_left else self.joiner(key, other, mine)


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """A record of a stream meets the current row of a table, by its own key or by one taken from the
    record."""

    table: View
    joiner: Callable[[Any, Any, Any], Any]
    left: bool
    key_selector: Callable[[Any, Any], Any] | None = None

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.value is None:
            context.drop("null value in a join")
            return ()
        key = record.key if self.key_selector is None else self.key_selector(record.key, record.value)
        if key is None and not self.left:
            context.drop("null key in a join")
            return ()
        found = None if key is None else self.table.get(key, context)
        if found is None and not self.left:
            return ()
        row = None if found is None else found.value
        return (record.with_value(self.joiner(record.key, record.value, row)),)
