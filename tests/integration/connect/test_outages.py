"""A worker whose brokers are away for long, and failures that are too large to be told."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from test_moving_records import PLAIN, create, task_state, until
from worker_process import ask, our_worker, settings_of

from ottla.connect import DataError, Settings, SinkConnector, SinkRecord, SinkTask, state_log
from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.testing import BrokerProcess, InProcessBroker


class LoudSink(SinkTask):
    """Shows in its error all that it was given."""

    def start(self, given: Mapping[str, str]) -> None: ...

    def put(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            raise DataError(f"{record.value * 5} is too much")


class LoudSinkConnector(SinkConnector):
    settings = Settings()
    task_class = LoudSink

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.given]


PLUGINS = Plugins([*installed().of(*Kind), Listed(Kind.SINK, "LoudSink", f"{__name__}:LoudSinkConnector")])


def test_statuses_are_told_when_brokers_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_log, "_WRITE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(state_log, "_TOLD_S", 0.1)
    caplog.set_level(logging.WARNING)
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    with BrokerProcess() as broker:
        # A worker that stays in its group for as long as the broker is away.
        given = settings_of(broker.bootstrap_servers) | PLAIN | {"session.timeout.ms": "45000"}
        with our_worker(given) as worker:
            create(worker.address, "lines", "FileStreamSource", file=str(source), topic="lines")
            until(lambda: task_state(worker.address, "lines")["state"] == "RUNNING")
            until(lambda: ask(worker.address, "GET", "/connectors/lines/offsets")["offsets"])
            broker.kill9()
            source.write_text("x")
            until(lambda: "statuses are not told yet" in caplog.text)
            broker.start()
            until(lambda: task_state(worker.address, "lines")["state"] == "FAILED")
            source.write_text("one\ntwo\nthree\n")
            ask(worker.address, "POST", "/connectors/lines/restart?includeTasks=true")
            until(lambda: task_state(worker.address, "lines")["state"] == "RUNNING")


def test_a_failure_larger_than_a_record_is_told_and_so_are_those_after_it(tmp_path: Path) -> None:
    with InProcessBroker() as broker, our_worker(settings_of(broker.bootstrap_servers), PLUGINS) as worker:
        source = tmp_path / "in.txt"
        source.write_text("x" * 900_000 + "\n")
        text = {"value_converter": "StringConverter", "key_converter": "StringConverter"}
        create(worker.address, "lines", "FileStreamSource", file=str(source), topic="lines", **text)
        create(worker.address, "loud", "LoudSink", topics="lines", **text)
        failed = until(lambda: (task := task_state(worker.address, "loud"))["state"] == "FAILED" and task)
        assert "is too much" in failed["trace"]
        ask(worker.address, "PUT", "/connectors/lines/pause")
        until(lambda: task_state(worker.address, "lines")["state"] == "PAUSED")
