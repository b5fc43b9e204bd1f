"""What Spark reports of a query, as an application shows it, and what its configuration tells the source."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra ottla[spark]")

from ottla.streams import StreamsBuilder, StreamsError
from ottla.streams.on_spark.progress import last_begin, read_progress
from ottla.streams.run import StreamsApplication, StreamsConfig


def report(operator: str) -> dict[str, Any]:
    source = {
        "startOffset": '{"in": {"0": 5}}',
        "endOffset": '{"@cluster": "c", "in": {"0": 7, "1": 2}}',
        "latestOffset": '{"in": {"0": 9, "1": 2}}',
    }
    state = {"operatorName": operator, "numRowsTotal": 3, "memoryUsedBytes": 100}
    return {"batchId": 4, "numInputRows": 9, "sources": [source], "stateOperators": [state]}


def test_keys_are_told_where_a_row_of_state_is_one() -> None:
    assert read_progress("app:in", report("stateStoreSave")).state_keys == 3
    # Tasks keep pages of entries in a row.
    assert read_progress("app:in", report("transformWithStateInPySparkExec")).state_keys is None


def test_lag_and_where_a_crash_can_set_a_query_back_to() -> None:
    assert read_progress("app:in", report("stateStoreSave")).lag == 2
    told = SimpleNamespace(json=lambda: json.dumps(report("stateStoreSave")))
    assert last_begin(SimpleNamespace(_jsq=SimpleNamespace(lastProgress=lambda: told))) == {("in", 0): 5}
    assert last_begin(SimpleNamespace(_jsq=SimpleNamespace(lastProgress=lambda: None))) == {}


def test_data_loss_can_be_accepted() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")

    def told(**settings: bool) -> str:
        config = StreamsConfig("app", "nowhere:9092", **settings)  # type: ignore[arg-type]
        return StreamsApplication(builder.build(), config)._source_options()["failOnDataLoss"]

    assert told() == "true"
    assert told(fail_on_data_loss=False) == "false"
    with pytest.raises(StreamsError, match="upgrade is 'maybe': choose one of keep, discard"):
        StreamsConfig("app", "nowhere:9092", upgrade="maybe")
