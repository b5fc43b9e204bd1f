"""Queries that fail are started again, unless what made them fail would only come again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.streams.application import supervisor
from ottla.streams.application.supervisor import Supervised

LATE = "org.apache.spark.SparkException: Python worker failed to connect back."


class FakeQuery:
    def __init__(self, failure: str | None) -> None:
        self.isActive = failure is None
        self.failure = failure

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> Exception | None:
        return None if self.failure is None else RuntimeError(self.failure)


def starting(*failures: str | None) -> tuple[Callable[[], FakeQuery], list[FakeQuery]]:
    started: list[FakeQuery] = []

    def start() -> FakeQuery:
        started.append(FakeQuery(failures[len(started)]))
        return started[-1]

    return start, started


def test_a_late_worker_costs_a_restart_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF_S", 0.0)
    start, started = starting(LATE, LATE, None)
    query = Supervised("app:lines", start, restarts_max=10)
    for _ in range(4):
        assert not query.is_over, "it was not looked at yet"
        query.look()
        assert not query.is_over
        query.look()
    assert len(started) == 3
    assert query.query.isActive


def test_it_is_given_up_after_so_many_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF_S", 0.0)
    start, started = starting(*[LATE] * 9)
    query = Supervised("app:lines", start, restarts_max=2)
    for _ in range(10):
        query.look()
    assert len(started) == 3
    assert query.is_over


def test_restarts_wait_longer_and_longer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: clock[0])
    start, started = starting(*[LATE] * 9)
    query = Supervised("app:lines", start, restarts_max=9)
    begun: list[float] = []
    for _ in range(100):
        before = len(started)
        query.look()
        begun += [clock[0] - 1000] if len(started) > before else []
        clock[0] += 0.25
    assert [round(second - first) for first, second in zip([0.0, *begun], begun, strict=False)] == [
        1,
        2,
        4,
        8,
    ]
    assert "app:lines failed and is started again in 1 s (1 of 9): " in caplog.text


def test_a_paused_query_is_neither_over_nor_started_again_until_it_is_resumed() -> None:
    start, started = starting(None, None)
    query = Supervised("app:lines", start, restarts_max=10)
    query.pause()
    query.look()
    assert not query.query.isActive
    assert not query.is_over
    query.resume()
    query.resume()
    assert query.query.isActive
    assert len(started) == 2


@pytest.mark.parametrize(
    "failure",
    [
        "ottla.streams.errors.RecordError: KSTREAM-MAPVALUES failed on the record at topic t",
        "ottla.spark.range_reader.DataLost: Offsets 0 to 3 of t-0 are gone",
        "ottla.wire.errors.ProducerFenced: another instance runs",
        "ottla.wire.errors.TopicAuthorizationFailed: t",
    ],
)
def test_what_would_come_again_ends_the_application(failure: str) -> None:
    start, started = starting(failure)
    query = Supervised("app:lines", start, restarts_max=10)
    query.look()
    query.look()
    assert len(started) == 1
    assert query.is_over
