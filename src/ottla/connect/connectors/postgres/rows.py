"""Rows as COPY gives them in CSV, all values quoted: as columns of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyarrow import csv

from ottla.records.arrow_arrays import as_text, binaries_of

_PARSED = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


@dataclass(frozen=True, slots=True)
class Rows:
    count: int
    columns: Sequence[Any]
    """pa.StringArrays."""

    def every(self) -> Sequence[Sequence[str | None]]:
        if not self.columns:
            return list(repeat((), self.count))
        return list(zip(*(column.to_pylist() for column in self.columns), strict=True))


def rows_of(lines: Sequence[bytes], column_count: int) -> Rows:
    """What is not quoted is null, and what is empty and quoted is empty."""
    if not column_count:
        return Rows(len(lines), ())
    data = b"".join(lines)
    names = [str(number) for number in range(column_count)]
    table = csv.read_csv(
        pa.py_buffer(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        _PARSED,
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return Rows(len(lines), [column.combine_chunks() for column in table.columns])


def texts_of(texts: Sequence[str]) -> Any:
    return as_text(binaries_of([text.encode() for text in texts]))
