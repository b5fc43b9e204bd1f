"""Files of CSV: what a sink writes, a source reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.columns import SourceColumns
from ottla.connect.connectors.files import FileSinkTask, FileSourceTask
from ottla.connect.errors import DataError
from ottla.connect.records import SinkRecord, SourceRecord

VALUES = ['a "quoted" word', "two\nlines,\n\nand more", "", 'in"ches', "\n", "last"]


def source_of(path: Path, position: int | None = None, batch: int = 4, form: str = "csv") -> FileSourceTask:
    task = FileSourceTask()
    stored = None if position is None else {"position": position}
    task.context = SimpleNamespace(offset=lambda _: stored, wait=lambda _: False)
    task.start({"file": str(path), "topic": "t", "format": form, "batch.size": str(batch)})
    return task


def polled(task: FileSourceTask) -> list[SourceRecord]:
    found: list[SourceRecord] = []
    while more := task.poll():
        assert isinstance(more, list)
        found += more
    return found


def values_of(records: list[SourceRecord]) -> list[Any]:
    return [record.value["text"] for record in records]


def test_values_of_several_lines_are_one_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    sink = FileSinkTask()
    sink.start({"file": str(path), "format": "csv"})
    rows = [{"n": number, "text": text} for number, text in enumerate(VALUES)]
    sink.put([SinkRecord(topic="t", value=row) for row in rows])
    sink.stop()
    records = polled(source_of(path))
    assert values_of(records) == VALUES
    # From wherever a worker goes on, the rest comes.
    for number, record in enumerate(records):
        assert record.source_offset is not None
        task = source_of(path, record.source_offset["position"])
        assert values_of(polled(task)) == VALUES[number + 1 :]


def test_a_row_is_given_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text\nfirst\n"begun\n')
    task = source_of(path)
    assert values_of(polled(task)) == ["first"]
    with path.open("a") as more:
        more.write('and ended"\n')
    (record,) = polled(task)
    assert record.value["text"] == "begun\nand ended"
    assert record.source_offset == {"position": path.stat().st_size}


def test_a_quote_that_nobody_closes_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('text\n5" pipe\n"never closed\n' + "x\n" * 200_000)
    with pytest.raises(DataError, match=r"up to byte \d+: not CSV: field larger.*quote may be missing"):
        polled(source_of(path))


@pytest.mark.parametrize("size", [0, -1, -5])
def test_a_batch_has_one_line_at_least(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("one\ntwo\nthree\n")
    task = source_of(path, batch=size, form="lines")
    for number, line in enumerate(["one", "two", "three"]):
        given = task.poll()
        assert isinstance(given, SourceColumns)
        assert given.value.values() == [line]
        assert given.source_offset == {"position": [4, 8, 14][number]}
    assert not task.poll()


def test_a_line_that_was_cut_off_spoils_none_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("whole\ncut o")
    for line in ("next", "and next"):
        sink = FileSinkTask()
        sink.start({"file": str(path)})
        sink.put([SinkRecord(topic="t", value=line)])
        sink.flush()
        sink.stop()
    assert path.read_text() == "whole\ncut o\nnext\nand next\n"
