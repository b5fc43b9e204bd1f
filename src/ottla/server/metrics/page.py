"""A snapshot as Prometheus reads it.

Gauges of partitions are written here, the rest by prometheus_client: it takes ten microseconds for a sample,
of which there may be tens of thousands. Both of its formats have the same lines for a gauge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ottla.server.metrics.declared import METRICS, Declared
from ottla.server.metrics.snapshot import Snapshot


class Page(NamedTuple):
    content_type: str
    body: bytes


class SnapshotCollector(Collector):
    """Everything but the gauges of partitions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for declared in METRICS:
            if declared.is_partition_gauge:
                continue
            family = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
            metric = family(declared.name, declared.help, labels=declared.labels)
            for labels, value in declared.samples(self._snapshot):
                metric.add_metric(labels, value)
            yield metric
        # What the operating system says of the process: time, memory, files.
        yield from ProcessCollector(registry=None).collect()


def render(snapshot: Snapshot, accept: str) -> Page:
    """In the format that the scraper's `Accept` header asks for, or else plain text."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:
        # The version of a format that is none.
        encode, content_type = choose_encoder("")
    partitions = "".join(
        line for declared in METRICS if declared.is_partition_gauge for line in _lines(declared, snapshot)
    )
    # These first: one of the formats has a line that ends it.
    return Page(content_type, partitions.encode() + encode(SnapshotCollector(snapshot)))


def _lines(declared: Declared, snapshot: Snapshot) -> Iterator[str]:
    """Names of topics have no characters that would need escaping."""
    name = declared.name
    yield f"# HELP {name} {declared.help}\n# TYPE {name} gauge\n"
    for (topic, partition), value in declared.samples(snapshot):
        yield f'{name}{{partition="{partition}",topic="{topic}"}} {value}\n'
