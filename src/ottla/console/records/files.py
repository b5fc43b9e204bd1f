"""Records as files: lines of JSON, CSV for spreadsheets, Parquet for programs. Written a piece at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla.console.problems import Refused

# Some spreadsheets skip what is blank, or take the wide form of a sign for the sign.
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", " ", "\u00a0", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


class Writer(Protocol):
    media_type: str

    def rows(self, records: Sequence[dict[str, Any]]) -> bytes: ...

    def end(self) -> bytes: ...


def writer_of(kind: str) -> Writer:
    match kind:
        case "csv":
            return _Csv()
        case "parquet":
            return _Parquet()
        case _:
            return _JsonLines()


class _JsonLines:
    media_type = "application/x-ndjson"

    def rows(self, records: Sequence[dict[str, Any]]) -> bytes:
        return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()

    def end(self) -> bytes:
        return b""


class _Csv:
    media_type = "text/csv; charset=utf-8"

    def __init__(self) -> None:
        self._head = _row(_COLUMNS)

    def rows(self, records: Sequence[dict[str, Any]]) -> bytes:
        head, self._head = self._head, b""
        return head + b"".join(
            _row(
                (
                    record["partition"],
                    record["offset"],
                    record["timestamp"],
                    record["key"]["text"],
                    record["value"]["text"],
                    json.dumps(
                        {each["name"]: each["text"] for each in record["headers"]}, ensure_ascii=False
                    ),
                )
            )
            for record in records
        )

    def end(self) -> bytes:
        return self._head


def _row(cells: Iterable[Any]) -> bytes:
    """What a spreadsheet would take for a formula gets a quote in front."""
    text = io.StringIO()
    safe = (f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULAS) else cell for cell in cells)
    csv.writer(text).writerow(safe)
    return text.getvalue().encode()


class _Parquet:
    """Row groups as they come: what is written is handed out and forgotten, whatever the size of the file."""

    media_type = "application/vnd.apache.parquet"

    def __init__(self) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise Refused("Parquet needs a package more: pip install pyarrow", 501) from None
        header = pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.string())])
        self._schema = pyarrow.schema(
            [
                ("partition", pyarrow.int32()),
                ("offset", pyarrow.int64()),
                ("timestamp", pyarrow.timestamp("ms", "UTC")),
                ("key", pyarrow.string()),
                ("value", pyarrow.string()),
                ("headers", pyarrow.list_(header)),
            ]
        )
        self._table = pyarrow.Table.from_pylist
        self._out = _Drained()
        self._writer = parquet.ParquetWriter(pyarrow.PythonFile(self._out, "w"), self._schema)

    def rows(self, records: Sequence[dict[str, Any]]) -> bytes:
        if records:
            self._writer.write_table(self._table([_plain_row(each) for each in records], self._schema))
        return self._out.drain()

    def end(self) -> bytes:
        self._writer.close()
        return self._out.drain()


def _plain_row(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": record["partition"],
        "offset": record["offset"],
        "timestamp": record["timestamp"] if record["timestamp"] >= 0 else None,
        "key": record["key"]["text"],
        "value": record["value"]["text"],
        "headers": [{"name": each["name"], "value": each["text"]} for each in record["headers"]],
    }


class _Drained(io.RawIOBase):
    """A file that is only ever written on, and emptied in between."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def drain(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
