"""The result of a run: medians, spread and ratios, as a table or as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.figures import FIGURES, Figure

WORD_COLUMNS = 2


@dataclass(slots=True)
class Results:
    """Samples by broker and figure, one per round, and why some are missing."""

    brokers: tuple[str, ...]
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    gaps: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, broker: str, samples: Mapping[str, float]) -> None:
        for figure, value in samples.items():
            self.samples.setdefault(broker, {}).setdefault(figure, []).append(value)

    def miss(self, broker: str, figures: Sequence[str], reason: str) -> None:
        for figure in figures:
            self.gaps.setdefault(broker, {})[figure] = reason

    def of(self, broker: str, figure: str) -> list[float]:
        return self.samples.get(broker, {}).get(figure, [])

    def ratio(self, figure: str) -> float | None:
        """The first broker's median as a multiple of the second's."""
        medians = [statistics.median(values) for name in self.brokers if (values := self.of(name, figure))]
        return medians[0] / medians[1] if len(medians) == 2 and medians[1] else None


def rows(results: Results, figures: Sequence[Figure]) -> list[list[str]]:
    table = [["figure", "unit", *results.brokers, "ratio", "target", ""]]
    if len(results.brokers) == 1:
        table = [["figure", "unit", *results.brokers]]
    for figure in figures:
        cells = [_cell(results.of(name, figure.id)) for name in results.brokers]
        row = [figure.title, figure.unit, *cells]
        if len(results.brokers) == 2:
            ratio = results.ratio(figure.id)
            verdict = {None: "", True: "met", False: "missed"}[figure.met(ratio) if ratio else None]
            target = f"{figure.better.value} {figure.target:g}" if figure.target is not None else ""
            row += [f"{ratio:.2f}" if ratio is not None else "–", target, verdict]
        table.append(row)
    return table


def print_table(results: Results, figures: Sequence[Figure]) -> None:
    """A drawn table on a terminal, aligned text in a pipe."""
    table = rows(results, figures)
    if not (sys.stdout.isatty() and _print_drawn(table)):
        print_aligned(table, WORD_COLUMNS)
    print("\nmedian of the rounds, in brackets the lowest and highest")
    if len(results.brokers) == 2:
        print(f"ratio: median of {results.brokers[0]} as a multiple of the median of {results.brokers[1]}")
    reasons = {
        f"{broker}: {reason}": None for broker, gaps in results.gaps.items() for reason in gaps.values()
    }
    for reason in reasons:
        print(f"not measured: {reason}")


def print_aligned(table: Sequence[Sequence[str]], words: int) -> None:
    """The first `words` columns hold words, the others numbers."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = [
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def as_json(results: Results, figures: Sequence[Figure], about: Mapping[str, object]) -> str:
    measured = [
        {
            "id": figure.id,
            "title": figure.title,
            "unit": figure.unit,
            "better": figure.better.name.lower(),
            "target": figure.target,
            "ratio": results.ratio(figure.id),
            "brokers": {
                name: {"median": statistics.median(values), "samples": values}
                for name in results.brokers
                if (values := results.of(name, figure.id))
            },
        }
        for figure in figures
    ]
    return json.dumps({"about": about, "figures": measured, "gaps": results.gaps}, indent=2)


def machine() -> dict[str, object]:
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def chosen(ids: set[str]) -> list[Figure]:
    return [figure for figure in FIGURES.values() if figure.id in ids]


def _print_drawn(table: Sequence[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    drawn = Table()
    for column, title in enumerate(table[0]):
        drawn.add_column(title, justify="left" if column < WORD_COLUMNS else "right")
    colours = {"met": "green", "missed": "red"}
    for row in table[1:]:
        drawn.add_row(*row, style=colours.get(row[-1]))
    Console().print(drawn)
    return True


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "–"
    median = _number(statistics.median(values))
    return f"{median} ({_number(min(values))}–{_number(max(values))})" if len(values) > 1 else median


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
