"""What becomes of errors, and of tasks and workers around them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.connect.running.failures import Failures, Letter, Origin, Skipped, Stage, trace_of
from ottla.connect.running.sink_task import SinkRunner
from ottla.connect.running.source_task import SourceRunner
from ottla.connect.state.entries import Entry, TaskId
from ottla.connect.state_log import LocalFile

RECORD_BYTES_MAX = 1_000_000
"""Of most topics."""


def failures(sent: list[Letter], **given: Any) -> Failures:
    settings = {
        "errors.tolerance": "none",
        "errors.retry.timeout": 0,
        "errors.retry.delay.max.ms": 1000,
        "errors.log.enable": False,
        "errors.log.include.messages": False,
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": True,
    }
    settings |= {f"errors.{name}": value for name, value in given.items()}
    return Failures(TaskId("c", 0), settings, lambda _: False, lambda: 0.0, sent.append)


def test_what_is_told_of_an_error_fits_into_a_record() -> None:
    huge = DataError("x" * 5_000_000 + " has no place here")

    def fail() -> None:
        raise huge

    with pytest.raises(ConnectError, match=r"set errors\.tolerance=all") as failed:
        failures([]).attempt(Stage.VALUE_CONVERTER, fail, Origin("t", 0, 1))
    trace = trace_of(failed.value)
    assert len(trace) < RECORD_BYTES_MAX / 2
    assert "a record of t-0@1 failed in VALUE_CONVERTER" in trace
    assert "has no place here. Put the record or the configuration right" in trace
    sent: list[Letter] = []
    with pytest.raises(Skipped):
        failures(sent, tolerance="all").attempt(Stage.VALUE_CONVERTER, fail, Origin("t", 0, 1, None, b"v"))
    assert sum(len(value or b"") for _, value in sent[0].headers) < RECORD_BYTES_MAX / 2
    message = dict(sent[0].headers)["__connect.errors.exception.message"]
    assert message is not None
    assert message.endswith(b"has no place here")


def test_a_source_that_is_not_ready_is_asked_again_where_that_is_tolerated() -> None:
    def poll() -> None:
        raise RetriableError("not yet")

    with pytest.raises(RetriableError, match="not yet"):
        failures([]).attempt(Stage.TASK_POLL, poll, Origin(""))
    runner = SourceRunner.__new__(SourceRunner)
    runner._failures = failures([], tolerance="all")
    runner._source = SimpleNamespace(poll=poll)  # type: ignore[assignment]
    runner._producer = type("Producer", (), {"poll": lambda _, __: 0, "__len__": lambda _: 0})()
    runner._failure, runner._is_commit_due, runner._flushes_each_poll = None, False, False
    runner._flushed_s, runner._flush_s = 0.0, float("inf")
    runner.turn()


def test_offsets_that_cannot_be_stored_in_time_are_stored_later() -> None:
    stored: list[Any] = []
    trouble: list[Exception] = [TimeoutError(), RetriableError("no brokers")]

    def store(entries: Any, _: float) -> None:
        if trouble:
            raise trouble.pop()
        stored.extend(entries)

    runner = SourceRunner.__new__(SourceRunner)
    runner.task = TaskId("c", 0)
    runner._stopping = SimpleNamespace(is_set=lambda: False)  # type: ignore[assignment]
    runner._producer = SimpleNamespace(flush=lambda _: 0)
    runner._column_producer, runner._failure = None, None
    runner._is_in_transaction = runner._is_commit_due = False
    runner._offsets = {"p": ({"p": 1}, {"o": 2})}
    runner._source = SimpleNamespace(commit=lambda: stored.append("told"))  # type: ignore[assignment]
    runner._worker = SimpleNamespace(
        offset_entry=lambda name, partition, offset: (name, partition, offset), store_offsets=store
    )
    for _ in range(2):
        runner._flush(1)
        assert not stored
    runner._flush(1)
    assert stored == [("c", {"p": 1}, {"o": 2}), "told"]
    assert not runner._offsets
    runner._offsets, trouble[:] = {"p": ({"p": 1}, {"o": 3})}, [TimeoutError()]
    runner._stopping = SimpleNamespace(is_set=lambda: True)  # type: ignore[assignment]
    with pytest.raises(ConnectError, match="offsets could not be stored: no answer in time"):
        runner._flush(1)


def test_a_sink_lets_go_of_everything_though_it_cannot_be_flushed() -> None:
    gone: list[str] = []

    def close() -> None:
        gone.append("consumer")
        raise ConnectError("the disk is full")

    def closing(name: str, method: str = "close") -> Any:
        return SimpleNamespace(**{method: lambda *_: gone.append(name)})

    runner = SinkRunner.__new__(SinkRunner)
    runner._consumer = SimpleNamespace(close=close)
    runner._reader, runner._letters = closing("reader"), closing("letters", "flush")
    runner._sink = closing("sink", "stop")
    with pytest.raises(ConnectError, match="disk is full"):
        runner.tear_down()
    assert gone == ["consumer", "reader", "sink", "letters"]
    assert runner._consumer is None


def test_the_file_of_offsets_is_whole_whatever_the_disk_does(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    file = LocalFile(str(path))
    file.write([Entry(b"a", b"1")])
    draft = Path(f"{path}.{os.getpid()}")
    draft.symlink_to("/dev/full")
    with pytest.raises(ConnectError, match=r"offsets cannot be written: .*No space left.*; free some space"):
        file.write([Entry(b"a", b"2")])
    assert not draft.is_symlink()
    assert LocalFile(str(path)).read() == [Entry(b"a", b"1")]
    file.write([Entry(b"b", b"3")])
    # What was refused is given again by whoever wants it kept.
    assert LocalFile(str(path)).read() == [Entry(b"a", b"1"), Entry(b"b", b"3")]


def test_every_trace_begins_with_the_cause() -> None:
    for error in (DataError("the column t.d: out of range"), ConnectError("refused"), ValueError("none")):
        assert trace_of(error).splitlines()[0].endswith(f"{type(error).__name__}: {error}")
