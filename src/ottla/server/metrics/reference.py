"""Prints docs/reference/metrics.md from the declarations: `python -m ottla.server.metrics.reference`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.server.metrics.declared import METRICS, Declared
from ottla.server.metrics.exporter_names import EXPORTER_METRICS
from ottla.server.metrics.kafka_names import KAFKA_METRICS

_INTRO = """\
# Metrics

<!-- Made by `make docs` from the declarations in src/ottla/server/metrics. Do not edit. -->

What a broker serves at `ottla.metrics.listener` ([how](../guides/running.md#metrics)). Counters begin at 0
when the broker starts. On Linux there are also `process_*`: the time, memory and files that it uses.
"""

_KAFKA = """
## As Apache Kafka's

Named as the sample configuration of Prometheus' JMX exporter names the MBeans of Apache Kafka, so that
dashboards and alerts made for it work. Some dashboards expect counters to end in `persec` instead of
`_total`; Prometheus can rename them while it scrapes:

```yaml
metric_relabel_configs:
  - source_labels: [__name__]
    regex: (kafka_(?:server|network|controller)_.+)_total
    target_label: __name__
    replacement: ${1}persec
```
"""

_EXPORTER = """
## As kafka_exporter's

How far groups have read. Each broker tells of the groups that it coordinates and the partitions that it
leads.
"""

_TABLE = """
| metric | type | labels | |
|---|---|---|---|"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO.rstrip()
    yield from _table(METRICS)
    yield _KAFKA.rstrip()
    yield from _table(KAFKA_METRICS)
    yield _EXPORTER.rstrip()
    yield from _table(EXPORTER_METRICS)


def _table(metrics: Iterable[Declared[Any]]) -> Iterator[str]:
    yield _TABLE
    for declared in metrics:
        labels = ", ".join(f"`{label}`" for label in declared.labels)
        yield f"| `{declared.name}` | {declared.kind} | {labels} | {declared.help} |"


if __name__ == "__main__":
    print(render(), end="")
