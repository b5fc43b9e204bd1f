"""Files: lines, JSON objects or CSV rows of one file into a topic, and a topic into a file.

The source remembers where it is in the file, so that it goes on behind the last line whose record is
written; with `exactly.once.source.support` each line is in the topic once, as long as the file is only
appended to. The sink appends, and writes again what was not committed when it stopped: at least once.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final, TextIO

from ottla.connect.data import STRING, Schema, Struct, plain, struct_of
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.plugin import Config, SinkConnector, SinkTask, SourceConnector, SourceTask
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import not_empty, one_of
from ottla.connect.text import to_text

_FORMATS: Final = ("lines", "json", "csv")
_IDLE_S: Final = 0.5
_READ_BYTES: Final = 1 << 20
_FORMAT = Setting(
    "format",
    Type.STRING,
    "lines",
    Importance.MEDIUM,
    "lines: a record per line; json: each line is a JSON value; csv: rows under a first line of names.",
    one_of(*_FORMATS),
)


class FileSourceTask(SourceTask):
    """Only whole lines are read: what is behind the last line feed may still be written."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._position = 0
        self._rest = b""
        self._columns: list[str] | None = None
        self._schema: Schema | None = None

    def start(self, given: Config) -> None:
        config = FileStreamSource.settings.parse(given)
        self._path = config["file"] or ""
        self._topic = config["topic"]
        self._rows_max = config["batch.size"]
        self._format = config["format"]

    def poll(self) -> Sequence[SourceRecord]:
        if self._file is None and not self._open():
            self.context.wait(_IDLE_S)
            return ()
        records: list[SourceRecord] = []
        while len(records) < self._rows_max:
            line = self._line()
            if line is None:
                break
            record = self._record(line)
            if record is not None:
                records.append(record)
        if not records:
            self.context.wait(_IDLE_S)
        return records

    def stop(self) -> None:
        if self._file is not None and self._path:
            self._file.close()

    @property
    def _place(self) -> dict[str, str]:
        return {"filename": self._path}

    def _open(self) -> bool:
        if not self._path:
            self._file = sys.stdin.buffer
            return True
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return False
        stored = self.context.offset(self._place)
        self._position = int(stored["position"]) if stored is not None else 0
        if self._format == "csv":
            self._columns = self._header()
            self._position = max(self._position, self._file.tell())
        self._file.seek(self._position)
        return True

    def _header(self) -> list[str] | None:
        assert self._file is not None
        first = self._file.readline()
        return next(csv.reader([_text(first)]), None) if first.endswith(b"\n") else None

    def _line(self) -> str | None:
        """The next one, or None while there is no whole one. Ends with \\n, \\r\\n or \\r."""
        assert self._file is not None
        while True:
            end = _line_end(self._rest)
            if end is not None:
                line, self._rest = self._rest[: end[0]], self._rest[end[1] :]
                self._position += end[1]
                return _text(line)
            more = self._file.readline() if not self._path else self._file.read(_READ_BYTES)
            if not more:
                return None
            self._rest += more

    def _record(self, line: str) -> SourceRecord | None:
        value, schema = self._value(line)
        if value is None:
            return None
        return SourceRecord(
            topic=self._topic,
            value_schema=schema,
            value=value,
            timestamp_ms=time.time_ns() // 1_000_000,
            source_partition=self._place if self._path else None,
            source_offset={"position": self._position} if self._path else None,
        )

    def _value(self, line: str) -> tuple[Any, Schema | None]:
        if self._format == "lines":
            return line, STRING
        if not line.strip():
            return None, None
        if self._format == "json":
            try:
                return json.loads(line), None
            except ValueError as error:
                raise DataError(f"{self._path} up to byte {self._position}: not JSON: {error}") from None
        row = next(csv.reader([line]))
        if self._columns is None:
            self._columns = row
            return None, None
        if len(row) != len(self._columns):
            raise DataError(
                f"{self._path} up to byte {self._position}: {len(row)} values under "
                f"{len(self._columns)} names"
            )
        if self._schema is None:
            self._schema = struct_of(*((name, STRING.but(optional=True)) for name in self._columns))
        return Struct(self._schema, dict(zip(self._columns, row, strict=True))), self._schema


def _line_end(data: bytes) -> tuple[int, int] | None:
    """Where a line ends and the next begins."""
    feed, carriage = data.find(b"\n"), data.find(b"\r")
    if carriage >= 0 and (feed < 0 or carriage < feed):
        # A line feed may follow that is not there yet.
        if carriage + 1 >= len(data):
            return None
        return carriage, carriage + (2 if data[carriage + 1] == ord("\n") else 1)
    return None if feed < 0 else (feed, feed + 1)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


class FileStreamSource(SourceConnector):
    guarantee: ClassVar[str] = (
        "Exactly once with `exactly.once.source.support`, else at least once: the offset is the position "
        "behind the last whole line. The file may only be appended to. Standard input is not remembered."
    )
    settings: ClassVar[Settings] = Settings(
        Setting("file", Type.STRING, None, Importance.HIGH, "The file to read; without one, standard input."),
        Setting("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", not_empty),
        Setting("batch.size", Type.INT, 2000, Importance.LOW, "The most records that are read at a time."),
        _FORMAT,
    )
    task_class = FileSourceTask

    @classmethod
    def task_name(cls) -> str:
        return "org.apache.kafka.connect.file.FileStreamSourceTask"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        return [self.given]

    def is_exactly_once(self, given: Config) -> bool:
        return bool(given.get("file"))

    def alter_offsets(
        self, given: Config, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        if not given.get("file"):
            raise ConnectError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is "
                "because stdin is "
                "used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue
            if "position" not in offset:
                raise ConnectError("Offset objects should either be null or contain the key 'position'")
            position = offset["position"]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConnectError(
                    "The value for the 'position' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise ConnectError(
                    "The value for the 'position' key in the offset should be a non-negative value"
                )
            if "filename" not in partition:
                raise ConnectError("Partition objects should contain the key 'filename'")


class FileSinkTask(SinkTask):
    def __init__(self) -> None:
        self._file: TextIO | None = None

    def start(self, given: Config) -> None:
        config = FileStreamSink.settings.parse(given)
        self._path = config["file"]
        self._write = {"lines": self._line, "json": self._json, "csv": self._csv}[config["format"]]
        self._columns: list[str] | None = None
        if not self._path:
            self._file = sys.stdout
            return
        try:
            self._file = open(self._path, "a+", encoding="utf-8", newline="")  # noqa: SIM115
            if config["format"] == "csv":
                self._file.seek(0)
                self._columns = next(csv.reader([self._file.readline()]), None) or None
                self._file.seek(0, io.SEEK_END)
        except OSError as error:
            raise ConnectError(
                f"Couldn't find or create file '{self._path}' for FileStreamSinkTask: {error}"
            ) from error

    def put(self, records: Sequence[SinkRecord]) -> None:
        assert self._file is not None
        for record in records:
            try:
                text = self._write(record)
            except DataError as error:
                self.context.report(record, error)
            else:
                self._file.write(text)

    def flush(self) -> None:
        assert self._file is not None
        try:
            self._file.flush()
        except OSError as error:
            raise ConnectError(
                f"{self._path} cannot be written: {error}; free some space and restart"
            ) from error

    def stop(self) -> None:
        if self._file is not None and self._path:
            self._file.close()

    def _line(self, record: SinkRecord) -> str:
        return ("null" if record.value is None else to_text(record.value)) + "\n"

    def _json(self, record: SinkRecord) -> str:
        return json.dumps(plain(record.value), ensure_ascii=False, default=to_text) + "\n"

    def _csv(self, record: SinkRecord) -> str:
        row = plain(record.value)
        if not isinstance(row, dict):
            raise DataError(
                f"CSV needs fields, and the value is {type(row).__name__}: use a transform such as HoistField"
            )
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if self._columns is None:
            self._columns = list(row)
            writer.writerow(self._columns)
        unknown = row.keys() - set(self._columns)
        if unknown:
            raise DataError(
                f"{sorted(unknown)[0]} is none of the columns of {self._path}: {', '.join(self._columns)}"
            )
        writer.writerow("" if row.get(name) is None else to_text(row[name]) for name in self._columns)
        return out.getvalue()


class FileStreamSink(SinkConnector):
    guarantee: ClassVar[str] = (
        "At least once: lines are appended, and offsets committed after the file is flushed; a worker that "
        "dies in between leaves lines that come again."
    )
    settings: ClassVar[Settings] = Settings(
        Setting(
            "file", Type.STRING, None, Importance.HIGH, "The file to append to; without one, standard output."
        ),
        _FORMAT,
    )
    task_class = FileSinkTask

    @classmethod
    def task_name(cls) -> str:
        return "org.apache.kafka.connect.file.FileStreamSinkTask"

    def task_configs(self, tasks_max: int) -> Sequence[Config]:
        """Each task appends lines of its own; a file takes them whole."""
        return [self.given for _ in range(tasks_max)]
