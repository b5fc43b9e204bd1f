"""What PySpark has but does not promise, of the progress of queries, in one place: another version of it is
met here first."""

from __future__ import annotations

from typing import Any


def last_report(query: Any) -> str | None:
    """What a streaming query says of its last micro-batch, as JSON.

    ``query.lastProgress`` fetches it from Java field by field, dozens of calls, to hold the same text.
    """
    report = query._jsq.lastProgress()
    return None if report is None else str(report.json())


def reports_since(query: Any, timestamp: str) -> list[str]:
    """Those of micro-batches that began after a time, as Spark writes times; oldest first."""
    recent = query._jsq.recentProgress()
    found: list[str] = []
    for index in range(len(recent) - 1, -1, -1):
        if str(recent[index].timestamp()) <= timestamp:
            break
        found.append(str(recent[index].json()))
    return found[::-1]
