"""Column expressions: Spark SQL over the columns of a record, in place of a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Expression:
    """A Spark SQL expression over the columns ``key``, ``value``, ``timestamp`` and ``headers``."""

    sql: str


def expr(sql: str) -> Expression:
    """A column expression as SQL text, such as ``expr("upper(value)")``: no Spark is needed to write it
    down."""
    return Expression(sql)


def is_expression(candidate: Any) -> bool:
    """Whether this is a column expression: ours, or a Column of PySpark (recognised without importing it)."""
    if isinstance(candidate, Expression):
        return True
    return any(
        base.__name__ == "Column" and base.__module__.startswith("pyspark.sql")
        for base in type(candidate).__mro__
    )
