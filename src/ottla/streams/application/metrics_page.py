"""Snapshots of applications as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ottla.streams.application.metrics import METRICS
from ottla.streams.application.monitor import ApplicationSnapshot


class SnapshotsCollector(Collector):
    def __init__(self, snapshots: Sequence[ApplicationSnapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        for declared in METRICS:
            family = CounterMetricFamily if declared.kind == "counter" else GaugeMetricFamily
            metric = family(declared.name, declared.help, labels=("application", *declared.labels))
            for snapshot in self._snapshots:
                for labels, value in declared.samples(snapshot):
                    metric.add_metric((snapshot.application_id, *labels), value)
            yield metric
        # The program that Spark is driven from, not Spark itself.
        yield from ProcessCollector(registry=None).collect()


def metrics_page(snapshots: Sequence[ApplicationSnapshot], accept: str) -> tuple[str, bytes]:
    """The content type and the text, in the format that the scraper's `Accept` header asks for."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:
        # The version of a format that is none.
        encode, content_type = choose_encoder("")
    return content_type, encode(SnapshotsCollector(snapshots))
