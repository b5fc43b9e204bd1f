"""Files: lines, JSON objects or CSV rows of one file into a topic, and a topic into a file.

The source remembers where it is in the file, so that it goes on behind the last line whose record is
written; with `exactly.once.source.support` each line is in the topic once, as long as the file is only
appended to. The sink appends, and writes again what was not committed when it stopped: at least once.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, ClassVar, Final

from ottla.connect.columns import Flat, SinkColumns, SourceColumns
from ottla.connect.connectors.lines import as_lines, lines_of
from ottla.connect.data import STRING, Kind, Schema, Struct, plain, struct_of
from ottla.connect.errors import ConnectError, DataError
from ottla.connect.plugin import Config, SinkConnector, SinkTask, SourceConnector, SourceTask
from ottla.connect.records import SinkRecord, SourceRecord
from ottla.connect.settings.definition import REQUIRED, Importance, Setting, Settings, Type
from ottla.connect.settings.validators import one_of, topic_name
from ottla.connect.text import to_text

_FORMATS: Final = ("lines", "json", "csv")
_IDLE_S: Final = 0.5
_READ_BYTES: Final = 1 << 20
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
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
        self._is_first = True
        self._rest = b""
        """What was read behind the last whole line."""
        self._lines: deque[tuple[bytes, int]] = deque()
        """Read and not given yet, each with where it ends."""
        self._texts: Any = None
        self._ends: Any = ()
        """The same as columns, of which so many were given:"""
        self._given = 0
        self._read_to = 0
        self._begun: list[str] = []
        """Of CSV, the lines of a row that goes on."""
        self._begun_size = 0
        self._row: list[str] = []
        self._columns: list[str] | None = None
        self._schema: Schema | None = None

    def start(self, given: Config) -> None:
        config = FileStreamSource.settings.parse(given)
        self._path = config["file"] or ""
        self._topic = config["topic"]
        self._place = {"filename": self._path} if self._path else None
        # As Kafka's does, which takes any number.
        self._rows_max = max(1, config["batch.size"])
        self._format = config["format"]
        self._takes_columns = self._format == "lines" and bool(self._path)

    def poll(self) -> Sequence[SourceRecord] | SourceColumns:
        if self._file is None and not self._open():
            self.context.wait(_IDLE_S)
            return ()
        records = self._given_lines() if self._takes_columns else self._read_records()
        if not records:
            self.context.wait(_IDLE_S)
        return records or ()

    def _given_lines(self) -> SourceColumns | None:
        """Lines without an object for each."""
        if self._given == len(self._ends) and not self._read_lines():
            return None
        begin = self._given
        end = self._given = min(begin + self._rows_max, len(self._ends))
        self._position = int(self._ends[end - 1])
        return SourceColumns(
            self._topic,
            None,
            Flat(STRING, self._texts.slice(begin, end - begin)),
            time.time_ns() // 1_000_000,
            self._place,
            {"position": self._position},
        )

    def _read_lines(self) -> bool:
        """Whether there is a whole line now."""
        self._given, self._ends, self._texts = 0, (), None
        while True:
            if not (more := self._read()):
                return False
            begin = self._read_to - len(self._rest) - len(more)
            found = lines_of(self._rest + more)
            self._rest = found.rest
            if len(found.ends):
                self._texts, self._ends = found.texts, found.ends + begin
                return True

    def _read_records(self) -> list[SourceRecord]:
        records: list[SourceRecord] = []
        now_ms = time.time_ns() // 1_000_000
        # More of standard input may be long in coming.
        while len(records) < self._rows_max and (
            self._lines or ((self._path or not records) and self._read_more())
        ):
            line, end = self._lines.popleft()
            text = line.decode(errors="replace")
            if self._format == "csv" and not self._ends_row(text, end):
                continue
            self._position = end
            record = self._record(text, now_ms)
            if record is not None:
                records.append(record)
        return records

    def _ends_row(self, text: str, end: int) -> bool:
        """False where a value in quotes goes on in the next line."""
        self._begun.append(f"{text}\n")
        self._begun_size += len(text)
        if len(self._begun) > 1 and '"' not in text and self._begun_size < csv.field_size_limit():
            return False
        lines = iter(("".join(self._begun), ""))
        try:
            self._row = next(csv.reader(lines))
        except csv.Error as error:
            raise DataError(
                f"{self._path} up to byte {end}: not CSV: {error}. A quote may be missing"
            ) from None
        if next(lines, None) is None:
            return False
        self._begun, self._begun_size = [], 0
        return True

    def stop(self) -> None:
        if self._file is not None and self._path:
            self._file.close()

    def _open(self) -> bool:
        if not self._path:
            self._file = sys.stdin.buffer
            return True
        try:
            self._file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return False
        if self._is_first:
            assert self._place is not None
            stored = self.context.offset(self._place)
            self._position = int(stored["position"]) if stored is not None else 0
            self._is_first = False
        self._check_size(os.fstat(self._file.fileno()).st_size, self._position)
        if self._format == "csv":
            self._columns = self._header()
            self._position = max(self._position, self._file.tell())
        self._file.seek(self._position)
        self._read_to, self._begun, self._begun_size = self._position, [], 0
        return True

    def _check_size(self, size: int, read_to: int) -> None:
        if size < read_to:
            raise ConnectError(
                f"{self._path} has {size} bytes, and {read_to} of it were read: cut off or replaced, and "
                "a file may only be appended to. To read it from its beginning stop the connector, DELETE "
                "its offsets and resume it"
            )

    def _header(self) -> list[str] | None:
        assert self._file is not None
        first = self._file.readline()
        return next(csv.reader([_text(first)]), None) if first.endswith(b"\n") else None

    def _read_more(self) -> bool:
        """Whether there is a whole line now."""
        while not self._lines:
            if not (more := self._read()):
                return False
            begin = self._read_to - len(self._rest) - len(more)
            self._rest = _split(self._rest + more, begin, self._lines)
        return True

    def _read(self) -> bytes:
        assert self._file is not None
        more = self._file.readline() if not self._path else self._file.read(_READ_BYTES)
        if not more:
            self._look_at_file()
        self._read_to += len(more)
        return more

    def _look_at_file(self) -> None:
        """It may be another one by now, as editors make them: that one is read from the same place on."""
        if not self._path or self._file is None:
            return
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return
        held = os.fstat(self._file.fileno())
        self._check_size(there.st_size, self._position)
        if stat.S_ISREG(held.st_mode) and (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            self._file.close()
            self._file, self._rest = None, b""

    def _record(self, line: str, now_ms: int) -> SourceRecord | None:
        value, schema = self._value(line)
        if value is None:
            return None
        return SourceRecord(
            topic=self._topic,
            value_schema=schema,
            value=value,
            timestamp_ms=now_ms,
            source_partition=self._place,
            source_offset={"position": self._position} if self._path else None,
        )

    def _value(self, line: str) -> tuple[Any, Schema | None]:
        if self._format == "lines":
            return line, STRING
        if not line.strip() and not any(self._row):
            return None, None
        if self._format == "json":
            try:
                return json.loads(line), None
            except ValueError as error:
                raise DataError(f"{self._path} up to byte {self._position}: not JSON: {error}") from None
        row = self._row
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


def _split(data: bytes, begin: int, lines: deque[tuple[bytes, int]]) -> bytes:
    """Adds the whole lines, each with where it ends, and returns the rest. A line ends with \\n, \\r\\n or
    \\r."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n")
        for line in whole:
            begin += len(line) + 1
            lines.append((line, begin))
        return rest
    done = 0
    for end in _LINE_END.finditer(data):
        # Behind the last character a line feed may follow that is not there yet.
        if end[0] == b"\r" and end.end() == len(data):
            break
        lines.append((data[done : end.start()], begin + end.end()))
        done = end.end()
    return data[done:]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


class FileStreamSource(SourceConnector):
    guarantee: ClassVar[str] = (
        "Exactly once with `exactly.once.source.support`, else at least once: the offset is the position "
        "behind the last whole line. The file may only be appended to. Standard input is not remembered."
    )
    settings: ClassVar[Settings] = Settings(
        Setting("file", Type.STRING, None, Importance.HIGH, "The file to read; without one, standard input."),
        Setting("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", topic_name),
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
        self._file: BinaryIO | None = None

    def start(self, given: Config) -> None:
        config = FileStreamSink.settings.parse(given)
        self._path = config["file"]
        self._write = {"lines": self._line, "json": self._json, "csv": self._csv}[config["format"]]
        self.takes_columns = config["format"] == "lines"
        self._columns: list[str] | None = None
        if not self._path:
            self._file = sys.stdout.buffer
            return
        try:
            self._file = open(self._path, "ab+")  # noqa: SIM115
            if config["format"] == "csv":
                self._file.seek(0)
                self._columns = next(csv.reader([_text(self._file.readline())]), None) or None
            self._end_line()
        except OSError as error:
            raise ConnectError(
                f"Couldn't find or create file '{self._path}' for FileStreamSinkTask: {error}"
            ) from error

    def _end_line(self) -> None:
        """A full disk may have cut the last line off: the next one is not to stand behind it."""
        assert self._file is not None
        if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode) and self._file.seek(0, io.SEEK_END):
            self._file.seek(-1, io.SEEK_END)
            if self._file.read(1) != b"\n":
                self._append(b"\n")

    def put(self, records: Sequence[SinkRecord]) -> None:
        texts = []
        for record in records:
            try:
                texts.append(self._write(record))
            except DataError as error:
                self.context.report(record, error)
        self._append("".join(texts).encode())

    def put_columns(self, records: SinkColumns) -> None:
        value = records.value
        if not isinstance(value, Flat) or value.schema.kind is not Kind.STRING:
            raise DataError("only text is a line as it is")
        self._append(as_lines(value.array))

    def _append(self, data: bytes | memoryview) -> None:
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def flush(self) -> None:
        assert self._file is not None
        try:
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def stop(self) -> None:
        if self._file is not None and self._path:
            # What cannot be written even now comes again: its offsets are not committed.
            with suppress(OSError):
                self._file.close()

    def _unwritable(self, error: OSError) -> ConnectError:
        return ConnectError(
            f"{self._path or 'standard output'} cannot be written: {error}; free some space and restart the "
            "task. Records whose offsets are not committed come again"
        )

    def _line(self, record: SinkRecord) -> str:
        value = record.value
        if type(value) is str:
            return value + "\n"
        return ("null" if value is None else to_text(value)) + "\n"

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
