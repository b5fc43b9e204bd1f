"""What an application shows to Prometheus: each metric declared once, with where a snapshot has it.

Names follow Prometheus' advice: the unit at the end, ``_total`` for what only grows while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ottla.streams.application.life import ApplicationState
from ottla.streams.application.monitor import ApplicationSnapshot, NodeSnapshot, QuerySnapshot, StoreSnapshot
from ottla.streams.on_spark.progress import QueryProgress

Samples = Iterable[tuple[Sequence[str], float]]


@dataclass(frozen=True, slots=True)
class StreamsMetric:
    name: str
    help: str
    samples: Callable[[ApplicationSnapshot], Samples]
    # After the application, which all have.
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def _query(name: str, help: str, value: Callable[[QuerySnapshot], float | None]) -> StreamsMetric:
    """Absent where there is no value."""
    return StreamsMetric(
        f"ottla_streams_query_{name}",
        help,
        lambda snapshot: [
            ((each.label,), found) for each in snapshot.queries if (found := value(each)) is not None
        ],
        ("query",),
    )


def _batch(name: str, help: str, value: Callable[[QueryProgress], float | None]) -> StreamsMetric:
    return _query(name, help, lambda each: None if each.last is None else value(each.last))


def _node(
    name: str, help: str, label: str, value: Callable[[NodeSnapshot], Iterable[tuple[str, int]]]
) -> StreamsMetric:
    return StreamsMetric(
        f"ottla_streams_node_{name}",
        help,
        lambda snapshot: [
            ((each.query, each.name, detail), count)
            for each in snapshot.nodes
            for detail, count in value(each)
        ],
        ("query", "node", label),
    )


def _states(snapshot: ApplicationSnapshot) -> Samples:
    return [((state.value,), float(state is snapshot.state)) for state in ApplicationState]


def _phases(snapshot: ApplicationSnapshot) -> Iterator[tuple[Sequence[str], float]]:
    for each in snapshot.queries:
        for phase, took_ms in sorted(each.phase_ms.items()):
            yield (each.label, phase), took_ms / 1000


def _lags(snapshot: ApplicationSnapshot) -> Iterator[tuple[Sequence[str], float]]:
    for each in snapshot.queries:
        for (topic, partition), lag in sorted(each.lags.items()):
            yield (each.label, topic, str(partition)), lag


def _tasks(snapshot: ApplicationSnapshot) -> Iterator[tuple[Sequence[str], float]]:
    for each in snapshot.queries:
        for task, count in sorted(each.task_records.items()):
            yield (each.label, str(task)), count


def _records(snapshot: ApplicationSnapshot) -> Iterator[tuple[Sequence[str], float]]:
    for each in snapshot.nodes:
        if each.records is not None:
            yield (each.query, each.name), each.records


def _stores(name: str, help: str, value: Callable[[StoreSnapshot], Mapping[int, int]]) -> StreamsMetric:
    return StreamsMetric(
        f"ottla_streams_store_{name}",
        help,
        lambda snapshot: [
            ((each.query, each.name, "" if task < 0 else str(task)), number)
            for each in snapshot.stores
            for task, number in sorted(value(each).items())
        ],
        ("query", "store", "task"),
    )


METRICS = (
    StreamsMetric(
        "ottla_streams_state",
        "1 for the state that the application is in, 0 for the others.",
        _states,
        ("state",),
    ),
    StreamsMetric(
        "ottla_streams_start_time_seconds",
        "When the application was started in this process.",
        lambda snapshot: [((), snapshot.started_ms / 1000)],
    ),
    _query("running", "1 while Spark runs the query.", lambda each: float(each.state == "running")),
    _query("restarts_total", "How often the query failed and was started again.", lambda each: each.restarts),
    _query("batches_total", "Micro-batches that were completed.", lambda each: each.batches),
    _query("input_records_total", "Records read from topics.", lambda each: each.rows),
    _query(
        "late_rows_total",
        "Rows that Spark's own operators left out because they came too late.",
        lambda each: each.late_rows,
    ),
    _batch("batch_seconds", "How long the last micro-batch took.", lambda last: last.batch_ms / 1000),
    _batch(
        "processed_records_per_second",
        "Records of the last micro-batch by the time it took.",
        lambda last: last.rows_per_second,
    ),
    _batch(
        "input_records_per_second",
        "Records that came per second between the last two micro-batches.",
        lambda last: last.input_rows_per_second,
    ),
    _batch("lag_records", "Records that no micro-batch has taken yet.", lambda last: last.lag),
    _batch(
        "state_rows",
        "Keys that Spark aggregates. Absent for tasks, which keep many entries in a row.",
        lambda last: last.state_keys,
    ),
    _batch("state_bytes", "Memory that Spark's state stores use.", lambda last: last.state_bytes),
    StreamsMetric(
        "ottla_streams_query_phase_seconds_total",
        "Time that micro-batches took, by Spark's name of the phase: addBatch is the work and its "
        "transaction, latestOffset asks for new records, walCommit and commitOffsets write the checkpoint.",
        _phases,
        ("query", "phase"),
    ),
    StreamsMetric(
        "ottla_streams_partition_lag_records",
        "Records of a partition that no micro-batch has taken yet.",
        _lags,
        ("query", "topic", "partition"),
    ),
    StreamsMetric(
        "ottla_streams_task_records_total", "Records that a task has taken.", _tasks, ("query", "task")
    ),
    StreamsMetric(
        "ottla_streams_node_records_total",
        "Records that came to a node. Of functions that run as one, only the first and last node count; "
        "column expressions and Spark's aggregations do not.",
        _records,
        ("query", "node"),
    ),
    _node(
        "dropped_records_total",
        "Records that a node left out by its rules, such as late ones or null keys.",
        "reason",
        lambda each: each.dropped.items(),
    ),
    _node(
        "failed_records_total",
        "Records that a node failed on, by what was done with them: skip or dead-letter.",
        "action",
        lambda each: each.failed.items(),
    ),
    _stores(
        "entries",
        "Entries of a store: keys, windows, sessions, versions, or what waits in a buffer.",
        lambda each: each.entries,
    ),
    _stores(
        "bytes",
        "Bytes of a store in tasks, keys and values with what keeping them costs; memory of Spark's store "
        "where it aggregates by itself.",
        lambda each: each.size_bytes,
    ),
)
