"""The rows that a sink takes: which columns, of which types, and what they are as Arrow columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.arrow_encode import RecordColumns

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
COLUMN_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": (HEADERS_TYPE,),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
}


class SchemaMismatch(ValueError):
    """The rows cannot be records; the text names the column and the type that is expected."""


def sink_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> list[str]:
    """Which of a data frame's columns, given as (name, type), are written. Raises SchemaMismatch."""
    types = dict(columns)
    if "value" not in types:
        raise SchemaMismatch(
            f"The data has no column value (binary or string); its columns are {', '.join(types) or 'none'}. "
            "Rename or compute one, for instance with to_json(struct('*')).alias('value')."
        )
    if topic is None and "topic" not in types:
        raise SchemaMismatch(
            "The data has no column topic (string) and the option topic is not set: "
            "set the option to write all rows to one topic."
        )
    for name, expected in COLUMN_TYPES.items():
        found = types.get(name)
        if found is not None and found not in expected and not (name == "topic" and topic is not None):
            raise SchemaMismatch(
                f"The column {name} is of type {found}, expected is {' or '.join(expected)}: cast it."
            )
    return [name for name in COLUMN_TYPES if name in types and not (name == "topic" and topic is not None)]


def record_columns(rows: Any, now_ms: int) -> RecordColumns:
    """What the records say, of a pa.RecordBatch; rows without a timestamp get `now_ms`."""
    return RecordColumns(
        _binary(rows, "key"), _binary(rows, "value"), _timestamps_ms(rows, now_ms), _column(rows, "headers")
    )


def _column(rows: Any, name: str) -> Any:
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)


def _binary(rows: Any, name: str) -> Any:
    column = _column(rows, name)
    if column is None or column.null_count == len(column):
        return None
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _timestamps_ms(rows: Any, now_ms: int) -> npt.NDArray[np.int64]:
    column = _column(rows, "timestamp")
    if column is None:
        return np.full(rows.num_rows, now_ms, np.int64)
    microseconds = column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64())
    if microseconds.null_count:
        microseconds = pc.fill_null(microseconds, now_ms * 1000)
    milliseconds: npt.NDArray[np.int64] = microseconds.to_numpy(zero_copy_only=False) // 1000
    return milliseconds
