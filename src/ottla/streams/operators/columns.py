"""Operators given as Spark column expressions.

On Spark these never run as Python: the expression becomes part of the query. The test driver evaluates them
record by record on a local session, which is slow and exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ottla.streams.operators.base import Context, Output
from ottla.streams.records import Record
from ottla.streams.serdes import Serde


@dataclass(frozen=True, slots=True)
class ColumnOperator:
    """What all column operators know: the expression and how key and value of their input are written."""

    expression: Any
    key: Serde
    value: Serde

    def evaluate(self, record: Record, context: Context) -> list[Any]:
        """The value of the expression, one for each row it gives (``explode`` gives several)."""
        rows: list[Any] = context.columns().evaluate(self, record)
        return rows


@dataclass(frozen=True, slots=True)
class ColumnFilter(ColumnOperator):
    negate: bool = False

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        (passes,) = self.evaluate(record, context)
        # As in SQL, a condition that is null does not hold, negated or not.
        return () if passes is None or passes is self.negate else (record,)


@dataclass(frozen=True, slots=True)
class ColumnMapValues(ColumnOperator):
    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return [record.with_value(value) for value in self.evaluate(record, context)]


@dataclass(frozen=True, slots=True)
class ColumnSelectKey(ColumnOperator):
    def process(self, record: Record, context: Context) -> Iterable[Output]:
        return [record.with_key(key) for key in self.evaluate(record, context)]
