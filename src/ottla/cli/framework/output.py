"""How results are shown: as Apache Kafka prints them in a pipe, as tables on a terminal, or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.table import Table as RichTable


class Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    title: str = ""


def show(
    given: argparse.Namespace, data: Any, plain: Iterable[str], tables: Iterable[Table] | None = None
) -> None:
    """`data` is what --json prints, `plain` the lines for a pipe, and where there are no tables."""
    if given.json:
        print(json.dumps(data, indent=2, default=str))
    elif tables is not None and sys.stdout.isatty():
        for table in tables:
            _console_print(table)
    else:
        for line in plain:
            print(line)


def show_record(data: Any) -> None:
    """One of many results that come one after another: JSON on a line of its own."""
    print(json.dumps(data, default=str, separators=(",", ":"), ensure_ascii=False), flush=True)


def warn(given: argparse.Namespace, text: str) -> None:
    print(f"{given.prog}: warning: {text}", file=sys.stderr)


def columns(rows: Sequence[Sequence[Any]], separator: str = " ") -> list[str]:
    """Left-aligned columns, each as wide as its longest value."""
    texts = [[str(value) for value in row] for row in rows]
    widths = [max(len(row[index]) for row in texts) for index in range(len(texts[0]))] if texts else []
    return [
        separator.join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in texts
    ]


def printable(text: str) -> str:
    """Names of groups and clients may hold anything: what would command a terminal is shown as an escape."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


_NAME_MIN = 16
_BESIDE_NAMES = 52


def rich_table(table: Table, *, width: int | None = None) -> RichTable:
    """With a `width` rows keep to one line each: names are cut so that the other columns have room."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Rich
    from rich.text import Text

    built = Rich(title=table.title or None, box=SIMPLE_HEAD, header_style="bold cyan", title_justify="left")
    for column in table.columns:
        numeric = all(isinstance(row[len(built.columns)], int) for row in table.rows)
        built.add_column(
            column,
            justify="right" if numeric and table.rows else "left",
            overflow="fold" if width is None else "ellipsis",
            no_wrap=width is not None,
        )
    for row in table.rows:
        texts = [Text(printable(str(value))) for value in row]
        if width is not None:
            for text in texts:
                text.truncate(max(width - _BESIDE_NAMES, _NAME_MIN), overflow="ellipsis")
        built.add_row(*texts)
    return built


@contextmanager
def progress(total: int, text: str) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while someone watches it; yields what to call with the count done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)


def _console_print(table: Table) -> None:
    from rich.console import Console

    Console().print(rich_table(table))
