"""Metrics as Prometheus reads them.

The text is written here: prometheus_client takes ten microseconds for a sample, of which there may be tens of
thousands. It chooses the format, and asks the operating system about the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from ottla.server.metrics.declared import PARTITION, Declared
from ottla.server.metrics.gathering import Source


class Page(NamedTuple):
    content_type: str
    body: bytes


class _Process(Collector):
    """What the operating system says of this process: time, memory, files."""

    def collect(self) -> Iterable[Metric]:
        return ProcessCollector(registry=None).collect()


def render(sources: Iterable[Source], accept: str) -> Page:
    """In the format that the scraper's `Accept` header asks for, or else plain text."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:
        # The version of a format that is none.
        encode, content_type = choose_encoder("")
    is_open_metrics = encode is not generate_latest and "openmetrics" in content_type
    text = "".join(
        line
        for declarations, found in sources
        for declared in declarations
        for line in _lines(declared, found, is_open_metrics)
    )
    # These first: one of the formats has a line that ends it.
    return Page(content_type, text.encode() + encode(_Process()))


def _lines(declared: Declared[Any], found: object, is_open_metrics: bool) -> Iterator[str]:
    name, kind, labels = declared.name, declared.kind, declared.labels
    family = name.removesuffix("_total") if is_open_metrics and kind == "counter" else name
    yield f"# HELP {family} {declared.help}\n# TYPE {family} {kind}\n"
    if labels == PARTITION:
        # Most lines are of these. Names of topics have no characters that would need escaping.
        for (topic, partition), value in declared.samples(found):
            yield f'{name}{{partition="{partition}",topic="{topic}"}} {value:d}\n'
        return
    for values, value in declared.samples(found):
        pairs = ",".join(
            f'{label}="{_escaped(text)}"' for label, text in zip(labels, values, strict=True) if text
        )
        yield f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:d}"
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text := repr(value), text)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
