"""What an application knows of itself: its states, and numbers from Spark's reports and its tasks."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")
pytest.importorskip("prometheus_client", reason="needs the extra ottla[metrics]")

from ottla.streams import Materialized, StreamsBuilder, TimeWindows
from ottla.streams.application.life import ApplicationState, Life
from ottla.streams.application.metrics_page import metrics_page
from ottla.streams.application.metrics_reference import render
from ottla.streams.application.monitor import Monitor, application_snapshot
from ottla.streams.application.supervisor import Supervised
from ottla.streams.on_spark.query_plan import compile_plan
from ottla.streams.on_spark.reports import Kind, Report, Series


class FakeQuery:
    """As Spark's streaming queries, with reports of micro-batches."""

    def __init__(self) -> None:
        self.isActive = True
        self.reports: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self._jsq = self

    def exception(self) -> Exception | None:
        return self.failure

    def recentProgress(self) -> list[Any]:
        return [
            SimpleNamespace(timestamp=lambda r=r: r["timestamp"], json=lambda r=r: json.dumps(r))
            for r in self.reports
        ]


def report(second: int, rows: int, lag: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "batchId": second,
        "numInputRows": rows,
        "batchDuration": 200,
        "processedRowsPerSecond": rows * 5.0,
        "durationMs": {"addBatch": 150, "walCommit": 20, "triggerExecution": 200},
        "sources": [
            {
                "endOffset": '{"in": {"0": 10, "1": 4}}',
                "latestOffset": f'{{"in": {{"0": {10 + lag}, "1": 4}}}}',
            }
        ],
        "stateOperators": [{"operatorName": "transformWithStateInPySparkExec", "memoryUsedBytes": 77}],
        **more,
    }


class Watched:
    """A windowed count with one query, on no Spark at all."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_and_grace(1000, 0)
        counts = builder.stream("in").group_by_key().windowed_by(windows).count(Materialized.as_("counts"))
        counts.to_stream().to("out")
        self.plan = builder.build().plan.decorated("app")
        self.queries = compile_plan(self.plan)
        self.spark = FakeQuery()
        self.supervised = {"in": Supervised("app:in", lambda: self.spark, restarts_max=0)}
        self.report: Report = {}
        self.monitor = Monitor(self.plan, "app", self.queries, self.supervised, lambda: self.report)

    def page(self) -> list[str]:
        snapshot = application_snapshot(
            self.plan,
            self.monitor,
            application_id="app",
            state=ApplicationState.RUNNING,
            is_paused=False,
            started_ms=1_000,
            bootstrap_servers="localhost:9092",
        )
        assert json.loads(json.dumps(snapshot.to_json()))["applicationId"] == "app"
        return metrics_page([snapshot], "")[1].decode().splitlines()


def test_each_micro_batch_is_counted_once_and_idle_reports_are_not() -> None:
    watched = Watched()
    watched.spark.reports = [report(1, 10), report(2, 20, lag=3)]
    watched.monitor.look()
    watched.monitor.look()
    assert 'ottla_streams_query_input_records_total{application="app",query="in"} 30.0' in watched.page()
    watched.spark.reports.append(report(3, 5, lag=1))
    watched.spark.reports.append(report(4, 0, durationMs={"triggerExecution": 1}))
    watched.monitor.look()
    page = watched.page()
    labels = '{application="app",query="in"'
    assert f"ottla_streams_query_batches_total{labels}}} 3.0" in page
    assert f"ottla_streams_query_input_records_total{labels}}} 35.0" in page
    assert f'ottla_streams_query_phase_seconds_total{labels[:-11]},phase="addBatch",query="in"}} 0.45' in page
    assert f"ottla_streams_query_lag_records{labels}}} 1.0" in page
    assert (
        'ottla_streams_partition_lag_records{application="app",partition="0",query="in",topic="in"} 1.0'
        in page
    )
    assert not any("triggerExecution" in line for line in page), "it is the sum of the others"


def test_what_tasks_count_is_shown_by_task_and_node() -> None:
    watched = Watched()
    (source,) = (node.name for node in watched.plan.sources())
    (aggregate,) = (name for name in watched.plan.nodes if name.startswith("KSTREAM-AGGREGATE"))
    watched.report = {
        Series(Kind.RECORDS, "in", 0, source): 4,
        Series(Kind.RECORDS, "in", 1, source): 6,
        Series(Kind.DROPPED, "in", 0, aggregate, "late record for a closed window"): 1,
        Series(Kind.DROPPED, "in", 1, aggregate, "late record for a closed window"): 2,
        Series(Kind.FAILED, "in", 1, source, "skip"): 5,
    }
    page = watched.page()
    assert 'ottla_streams_task_records_total{application="app",query="in",task="1"} 6.0' in page
    assert f'ottla_streams_node_records_total{{application="app",node="{source}",query="in"}} 10.0' in page
    dropped = f'{{application="app",node="{aggregate}",query="in",reason="late record for a closed window"}}'
    assert f"ottla_streams_node_dropped_records_total{dropped} 3.0" in page
    failed = f'{{action="skip",application="app",node="{source}",query="in"}}'
    assert f"ottla_streams_node_failed_records_total{failed} 5.0" in page


def test_a_query_that_has_failed_says_why() -> None:
    watched = Watched()
    watched.spark.isActive, watched.spark.failure = (
        False,
        ValueError("ottla.x.RecordError: node failed on it"),
    )
    (query,) = watched.monitor.queries()
    assert (query.state, query.failure) == ("failed", "node failed on it")


def test_states_follow_each_other_as_in_kafka_streams() -> None:
    life, told = Life(), []
    life.listener = lambda new, old: told.append((old.name, new.name))
    for state in (ApplicationState.RUNNING, ApplicationState.REBALANCING, ApplicationState.RUNNING):
        life.move(state)
    life.move(ApplicationState.RUNNING)
    life.move(ApplicationState.ERROR)
    life.move(ApplicationState.PENDING_SHUTDOWN)
    assert told == [("CREATED", "REBALANCING"), ("REBALANCING", "RUNNING"), ("RUNNING", "ERROR")]
    assert life.state is ApplicationState.ERROR


def test_a_listener_that_fails_does_not_stop_anything() -> None:
    life = Life()

    def fail(new: ApplicationState, old: ApplicationState) -> None:
        raise ValueError(new)

    life.listener = fail
    assert life.move(ApplicationState.REBALANCING)
    assert life.state is ApplicationState.REBALANCING


def test_the_reference_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs/reference/streams-metrics.md"
    assert page.read_text() == render(), "run: make docs"
