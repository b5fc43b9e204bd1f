"""Which kind of runner a task has, by what its connector is."""

from __future__ import annotations

from ottla.connect.plugin import SinkConnector, SourceConnector, SparkSink, SparkSource
from ottla.connect.running.environment import Worker
from ottla.connect.running.record_task import Order
from ottla.connect.running.sink_task import SinkRunner
from ottla.connect.running.source_task import SourceRunner
from ottla.connect.running.spark_query import SparkHost, SparkRunner
from ottla.connect.running.task_thread import Reports, Runner

__all__ = ["Order", "runner_of"]


def runner_of(worker: Worker, spark: SparkHost, order: Order, reports: Reports) -> Runner:
    """Not started yet. Raises what is wrong with the configuration."""
    if issubclass(order.kind, SparkSource | SparkSink):
        return SparkRunner(worker, spark, order, reports)
    if issubclass(order.kind, SourceConnector):
        return SourceRunner(worker, order, reports)
    assert issubclass(order.kind, SinkConnector)
    return SinkRunner(worker, order, reports)
