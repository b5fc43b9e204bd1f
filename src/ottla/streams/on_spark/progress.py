"""How far the queries of an application are, from what Spark reports of the last micro-batch."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.spark.positions import Offsets, from_stored


@dataclass(frozen=True, slots=True)
class QueryProgress:
    name: str
    batch_id: int
    batch_ms: int
    rows: int
    rows_per_second: float
    lag: int | None
    """Records in the source topics that no batch has taken yet; None before a source has told."""
    state_keys: int | None
    """Keys that Spark aggregates; None for tasks, which keep many entries in one row."""
    state_bytes: int


def read_progress(name: str, report: Mapping[str, Any]) -> QueryProgress:
    """From Spark's JSON of a query's progress."""
    state = report.get("stateOperators", [])
    return QueryProgress(
        name=name,
        batch_id=int(report.get("batchId", -1)),
        batch_ms=int(report.get("batchDuration", 0)),
        rows=int(report.get("numInputRows", 0)),
        rows_per_second=float(report.get("processedRowsPerSecond") or 0.0),
        lag=_lag(report.get("sources", [])),
        state_keys=None
        if any(each.get("operatorName", "").startswith("transformWithState") for each in state)
        else sum(int(each.get("numRowsTotal", 0)) for each in state),
        state_bytes=sum(int(each.get("memoryUsedBytes", 0)) for each in state),
    )


def progress_of(query: Any) -> QueryProgress | None:
    """None before the first micro-batch."""
    report = query.lastProgress
    return None if report is None else read_progress(query.name, json.loads(report.json))


def last_begin(query: Any) -> Offsets:
    """Where the last completed micro-batch began: the furthest that a crash can set the query back, even one
    that takes the file with it that says that the micro-batch is complete."""
    report = query.lastProgress
    begin: Offsets = {}
    for source in [] if report is None else json.loads(report.json).get("sources", []):
        if source.get("startOffset"):
            begin |= _offsets(source["startOffset"])
    return begin


def _lag(sources: list[Mapping[str, Any]]) -> int | None:
    told = [source for source in sources if source.get("endOffset") and source.get("latestOffset")]
    if not told:
        return None
    return sum(_records(source["latestOffset"]) - _records(source["endOffset"]) for source in told)


def _records(offsets: Any) -> int:
    return sum(_offsets(offsets).values())


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
