"""Prints docs/reference/metrics.md from the declarations: `python -m ottla.server.metrics.reference`."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.server.metrics.declared import METRICS

_INTRO = """\
# Metrics

<!-- Made by `make docs` from the declarations in src/ottla/server/metrics. Do not edit. -->

What a broker serves at `ottla.metrics.listener` ([how](../guides/running.md#metrics)). Counters begin at 0
when the broker starts. On Linux there are also `process_*`: the time, memory and files that it uses.

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
