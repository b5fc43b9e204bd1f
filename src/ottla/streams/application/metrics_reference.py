"""Prints docs/reference/streams-metrics.md: `python -m ottla.streams.application.metrics_reference`."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.streams.application.metrics import METRICS

_INTRO = """\
# Metrics of streams applications

<!-- Made by `make docs` from the declarations in src/ottla/streams/application/metrics.py. Do not edit. -->

What `ottla run --http` serves at `/metrics` ([how](../guides/streams.md#see-into-it)). Counters begin at 0
when the application starts. All metrics have the label `application`. On Linux there are also `process_*`, of
the program that Spark is driven from.

| metric | type | labels | |
|---|---|---|---|"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    for declared in METRICS:
        labels = ", ".join(f"`{label}`" for label in declared.labels)
        yield f"| `{declared.name}` | {declared.kind} | {labels} | {declared.help} |"


if __name__ == "__main__":
    print(render(), end="")
