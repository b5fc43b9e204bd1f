"""How far the queries of an application are, from what Spark reports of the last micro-batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.spark.engine import last_report
from ottla.spark.positions import Offsets, from_stored


@dataclass(frozen=True, slots=True)
class QueryProgress:
    name: str
    timestamp: str
    """When the micro-batch began, as Spark writes it."""
    batch_id: int
    batch_ms: int
    rows: int
    rows_per_second: float
    input_rows_per_second: float
    lags: Offsets | None
    """Records in each partition that no batch has taken yet; None before a source has told."""
    phases_ms: Mapping[str, int]
    """How long each phase of the micro-batch took, by Spark's names; without its whole."""
    state_keys: int | None
    """Keys that Spark aggregates; None for tasks, which keep many entries in one row."""
    state_bytes: int
    late_rows: int
    """Rows that Spark's own operators left out because they came too late."""

    @property
    def lag(self) -> int | None:
        return None if self.lags is None else sum(self.lags.values())

    @property
    def is_batch(self) -> bool:
        """Spark also reports, now and then, that there was nothing to do."""
        return "addBatch" in self.phases_ms


def read_progress(name: str, report: Mapping[str, Any]) -> QueryProgress:
    """From Spark's JSON of a query's progress."""
    state = report.get("stateOperators", [])
    phases_ms = {phase: int(took) for phase, took in report.get("durationMs", {}).items()}
    phases_ms.pop("triggerExecution", None)
    return QueryProgress(
        name=name,
        timestamp=str(report.get("timestamp", "")),
        batch_id=int(report.get("batchId", -1)),
        batch_ms=int(report.get("batchDuration", 0)),
        rows=int(report.get("numInputRows", 0)),
        rows_per_second=float(report.get("processedRowsPerSecond") or 0.0),
        input_rows_per_second=float(report.get("inputRowsPerSecond") or 0.0),
        lags=_lags(report.get("sources", [])),
        phases_ms=phases_ms,
        state_keys=None
        if any(each.get("operatorName", "").startswith("transformWithState") for each in state)
        else sum(int(each.get("numRowsTotal", 0)) for each in state),
        state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in state),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark", 0)) for each in state),
    )


def progress_of(query: Any) -> QueryProgress | None:
    """None before the first micro-batch."""
    report = last_report(query)
    return None if report is None else read_progress(query.name, json.loads(report))


def last_begin(query: Any) -> Offsets:
    """Where the last completed micro-batch began: the furthest that a crash can set the query back, even one
    that takes the file with it that says that the micro-batch is complete."""
    report = last_report(query)
    begin: Offsets = {}
    for source in [] if report is None else json.loads(report).get("sources", []):
        if source.get("startOffset"):
            begin |= _offsets(source["startOffset"])
    return begin


def _lags(sources: list[Mapping[str, Any]]) -> Offsets | None:
    told = [source for source in sources if source.get("endOffset") and source.get("latestOffset")]
    if not told:
        return None
    lags: Offsets = {}
    for source in told:
        done = _offsets(source["endOffset"])
        for place, latest in _offsets(source["latestOffset"]).items():
            lags[place] = lags.get(place, 0) + latest - done.get(place, 0)
    return lags


def _offsets(stored: Any) -> Offsets:
    """Of {"topic": {"0": 23}}, as JSON text or as what it stands for."""
    return from_stored(json.loads(stored) if isinstance(stored, str) else stored)


_ERROR_LINE = re.compile(
    r"^(?:ottla(?:\.\w+)+\.)?(\w*(?:Error|Failed|Missing|Loss|Option|Unreachable)): (.+)$"
)


def explain(failure: Exception) -> str:
    """The one line that matters of a query's failure, which comes as stack traces of two languages."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    for line in reversed(lines):
        found = _ERROR_LINE.match(line)
        if found and not found[1].startswith(("Py4J", "Runtime")):
            return found[2]
    return lines[0] if lines else type(failure).__name__
