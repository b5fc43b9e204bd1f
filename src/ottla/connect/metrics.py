"""What a worker shows to Prometheus: each metric declared once, with where it comes from.

Of the connectors and tasks that run in this worker; those of others are shown by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ottla.connect.foreman import Foreman
from ottla.connect.state.statuses import State

Samples = Iterable[tuple[Sequence[str], float]]
_TASK = ("connector", "task")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Foreman], Samples]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def _connectors(foreman: Foreman) -> Iterator[tuple[Sequence[str], float]]:
    for name in foreman.lifecycle.running:
        if isinstance(name, str) and (status := foreman.statuses.connectors.get(name)) is not None:
            for state in State:
                yield (name, state.value.lower()), float(state is status.state)


def _tasks(foreman: Foreman) -> Iterator[tuple[Sequence[str], float]]:
    for task in foreman.measured():
        if (status := foreman.statuses.tasks.get(task)) is not None:
            for state in State:
                yield (task.connector, str(task.task), state.value.lower()), float(state is status.state)


def _records(foreman: Foreman) -> Samples:
    return [((task.connector, str(task.task)), each.records) for task, each in foreman.measured().items()]


def _skipped(foreman: Foreman) -> Samples:
    return [((task.connector, str(task.task)), each.skipped) for task, each in foreman.measured().items()]


def _lag(foreman: Foreman) -> Samples:
    measured = foreman.measured().items()
    return [((task.connector, str(task.task)), each.lag) for task, each in measured if each.lag is not None]


METRICS = (
    Metric(
        "ottla_connect_connector_state",
        "1 for the state that the connector is in, 0 for the others.",
        ("connector", "state"),
        _connectors,
    ),
    Metric(
        "ottla_connect_task_state",
        "1 for the state that the task is in, 0 for the others.",
        (*_TASK, "state"),
        _tasks,
    ),
    Metric(
        "ottla_connect_task_records_total",
        "Records that a source has written, or that a sink has given to its connector.",
        _TASK,
        _records,
    ),
    Metric(
        "ottla_connect_task_skipped_records_total",
        "Records that failed and were skipped, or kept in the dead-letter topic.",
        _TASK,
        _skipped,
    ),
    Metric(
        "ottla_connect_task_lag_records",
        "Records of its topics that a sink has not taken yet.",
        _TASK,
        _lag,
    ),
)


def page(foreman: Foreman) -> str:
    """In Prometheus' text format."""
    return "\n".join(_lines(foreman)) + "\n"


def _lines(foreman: Foreman) -> Iterator[str]:
    for metric in METRICS:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
        for values, sample in metric.samples(foreman):
            labels = ",".join(
                f'{label}="{value.translate(_ESCAPES)}"'
                for label, value in zip(metric.labels, values, strict=True)
            )
            yield f"{metric.name}{{{labels}}} {sample:.17g}"
