"""What an application knows of itself while it runs: of its queries, nodes and stores.

Gathered from what Spark reports of each micro-batch and from what tasks have counted; shown as JSON by the
HTTP server, as metrics by ``metrics``, and as a table by ``ottla run --status``.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.spark.engine import reports_since
from ottla.spark.positions import Offsets
from ottla.streams.application.life import ApplicationState
from ottla.streams.application.supervisor import Supervised
from ottla.streams.on_spark.progress import QueryProgress, explain, read_progress
from ottla.streams.on_spark.query_plan import Kind as QueryKind
from ottla.streams.on_spark.query_plan import Query
from ottla.streams.on_spark.reports import Kind, Report
from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode
from ottla.streams.plan.topology import describe

# Between two looks at what Spark reports. It keeps the last hundred reports of a query.
_LOOK_S = 1.0


@dataclass(slots=True)
class QueryNumbers:
    """Since the application was started in this process."""

    seen: str = ""
    last: QueryProgress | None = None
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    phase_ms: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def take(self, progress: QueryProgress) -> None:
        self.seen = progress.timestamp
        if progress.is_batch or self.last is None:
            self.last = progress
        if progress.is_batch:
            self.batches += 1
            self.rows += progress.rows
            self.late_rows += progress.late_rows
            for phase, took_ms in progress.phases_ms.items():
                self.phase_ms[phase] += took_ms


@dataclass(frozen=True, slots=True)
class QuerySnapshot:
    label: str
    name: str
    kind: str
    state: str
    restarts: int
    failure: str | None
    topics: tuple[str, ...]
    batches: int
    rows: int
    late_rows: int
    phase_ms: Mapping[str, int]
    last: QueryProgress | None
    task_records: Mapping[int, int]

    @property
    def lags(self) -> Offsets:
        return {} if self.last is None or self.last.lags is None else self.last.lags

    def to_json(self) -> dict[str, Any]:
        last = self.last
        return {
            "query": self.label,
            "group": self.name,
            "kind": self.kind,
            "state": self.state,
            "restarts": self.restarts,
            "failure": self.failure,
            "topics": list(self.topics),
            "batches": self.batches,
            "rows": self.rows,
            "lateRows": self.late_rows,
            "lag": None if last is None else last.lag,
            "lastBatch": None if last is None else _batch_json(last),
            "stateRows": None if last is None else last.state_keys,
            "stateBytes": None if last is None else last.state_bytes,
            "taskRecords": {str(task): count for task, count in sorted(self.task_records.items())},
        }


def _batch_json(last: QueryProgress) -> dict[str, Any]:
    return {
        "batch": last.batch_id,
        "began": last.timestamp,
        "rows": last.rows,
        "rowsPerSecond": round(last.rows_per_second, 1),
        "inputRowsPerSecond": round(last.input_rows_per_second, 1),
        "durationMs": last.batch_ms,
        "phasesMs": dict(last.phases_ms),
    }


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    query: str
    name: str
    type: str
    topics: tuple[str, ...]
    stores: tuple[str, ...]
    children: tuple[str, ...]
    # None where Spark does its work without counting by node.
    records: int | None
    dropped: Mapping[str, int]
    failed: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "name": self.name,
            "type": self.type,
            "topics": list(self.topics),
            "stores": list(self.stores),
            "children": list(self.children),
            "records": self.records,
            "dropped": dict(self.dropped),
            "failed": dict(self.failed),
        }


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    query: str
    name: str
    kind: str
    changelog: str | None
    # By task; of what Spark aggregates, all together under -1.
    entries: Mapping[int, int]
    size_bytes: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "name": self.name,
            "kind": self.kind,
            "changelog": self.changelog,
            "entries": sum(self.entries.values()) if self.entries else None,
            "bytes": sum(self.size_bytes.values()) if self.size_bytes else None,
        }


@dataclass(frozen=True, slots=True)
class ApplicationSnapshot:
    application_id: str
    state: ApplicationState
    is_paused: bool
    started_ms: int
    bootstrap_servers: str
    description: str
    queries: tuple[QuerySnapshot, ...] = ()
    nodes: tuple[NodeSnapshot, ...] = ()
    stores: tuple[StoreSnapshot, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "applicationId": self.application_id,
            "state": self.state.value,
            "paused": self.is_paused,
            "startedMs": self.started_ms,
            "bootstrapServers": self.bootstrap_servers,
            "queries": [each.to_json() for each in self.queries],
            "nodes": [each.to_json() for each in self.nodes],
            "stores": [each.to_json() for each in self.stores],
            "description": self.description,
        }


class Monitor:
    """Follows the queries of an application from its start on."""

    def __init__(
        self,
        plan: Plan,
        application_id: str,
        queries: Sequence[Query],
        supervised: Mapping[str, Supervised],
        reports: Callable[[], Report],
    ) -> None:
        self._plan = plan
        self._application_id = application_id
        self._queries = queries
        self._supervised = supervised
        self._reports = reports
        self._numbers = {query.label: QueryNumbers() for query in queries}
        self._next_s = 0.0

    def look_if_due(self) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LOOK_S
            self.look()

    def look(self) -> None:
        """Take what Spark has reported since the last look."""
        for label, numbers in self._numbers.items():
            each = self._supervised[label]
            for report in reports_since(each.query, numbers.seen):
                numbers.take(read_progress(each.name, json.loads(report)))

    def queries(self) -> Iterator[QuerySnapshot]:
        report = self._reports()
        for query in self._queries:
            each, numbers = self._supervised[query.label], self._numbers[query.label]
            task_records: defaultdict[int, int] = defaultdict(int)
            sources = {source.name for source in query.plan.sources()}
            for series, count in report.items():
                if series.kind is Kind.RECORDS and series.query == query.label and series.name in sources:
                    task_records[series.task] += count
            failure = each.failure()
            yield QuerySnapshot(
                label=query.label,
                name=each.name,
                kind=query.kind.value,
                state=each.condition,
                restarts=each.restarts,
                failure=None if failure is None else explain(failure),
                topics=query.topics,
                batches=numbers.batches,
                rows=numbers.rows,
                late_rows=numbers.late_rows,
                phase_ms=dict(numbers.phase_ms),
                last=numbers.last,
                task_records={} if query.kind is QueryKind.STATELESS else task_records,
            )

    def nodes(self) -> Iterator[NodeSnapshot]:
        records: defaultdict[tuple[str, str], int] = defaultdict(int)
        details: dict[Kind, defaultdict[tuple[str, str], dict[str, int]]] = {
            kind: defaultdict(dict) for kind in (Kind.DROPPED, Kind.FAILED)
        }
        for series, count in self._reports().items():
            place = (series.query, series.name)
            if series.kind is Kind.RECORDS:
                records[place] += count
            elif series.kind in details:
                found = details[series.kind][place]
                found[series.detail] = found.get(series.detail, 0) + count
        for query in self._queries:
            for part in (*query.upstream, query.plan):
                for name, node in part.nodes.items():
                    place = (query.label, name)
                    yield NodeSnapshot(
                        query=query.label,
                        name=name,
                        type=_TYPES[type(node)],
                        topics=_topics(node),
                        stores=node.stores if isinstance(node, ProcessorNode) else (),
                        children=part.children.get(name, ()),
                        records=records.get(place),
                        dropped=details[Kind.DROPPED].get(place, {}),
                        failed=details[Kind.FAILED].get(place, {}),
                    )

    def stores(self) -> Iterator[StoreSnapshot]:
        changelogs = self._plan.changelogs(self._application_id)
        told: defaultdict[tuple[Kind, str, str], dict[int, int]] = defaultdict(dict)
        for series, number in self._reports().items():
            told[series.kind, series.query, series.name][series.task] = number
        for query in self._queries:
            last = self._numbers[query.label].last
            if query.aggregation is not None and last is not None and last.state_keys is not None:
                place = query.label, query.aggregation.store.name
                told[Kind.ENTRIES, *place] = {-1: last.state_keys}
                told[Kind.BYTES, *place] = {-1: last.state_bytes}
            for name, spec in query.plan.stores.items():
                if name not in query.plan.global_stores:
                    yield StoreSnapshot(
                        query.label,
                        name,
                        spec.kind.value,
                        changelogs.get(name),
                        told[Kind.ENTRIES, query.label, name],
                        told[Kind.BYTES, query.label, name],
                    )


def application_snapshot(
    plan: Plan,
    monitor: Monitor | None,
    *,
    application_id: str,
    state: ApplicationState,
    is_paused: bool,
    started_ms: int,
    bootstrap_servers: str,
) -> ApplicationSnapshot:
    return ApplicationSnapshot(
        application_id,
        state,
        is_paused,
        started_ms,
        bootstrap_servers,
        describe(plan),
        *(
            ()
            if monitor is None
            else (tuple(monitor.queries()), tuple(monitor.nodes()), tuple(monitor.stores()))
        ),
    )


_TYPES = {SourceNode: "source", ProcessorNode: "processor", SinkNode: "sink"}


def _topics(node: object) -> tuple[str, ...]:
    match node:
        case SourceNode(topics=topics, pattern=pattern):
            return topics if pattern is None else (*topics, f"/{pattern}/")
        case SinkNode(topic=str(topic)):
            return (topic,)
        case _:
            return ()
