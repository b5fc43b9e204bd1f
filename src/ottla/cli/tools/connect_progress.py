"""`ottla connect --progress`: what each task does, in place on a terminal, and as lines in a pipe."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from ottla.cli.framework.output import Table, columns, rich_table

if TYPE_CHECKING:
    from ottla.connect.foreman import Foreman
    from ottla.connect.state.entries import TaskId

_COLUMNS: Final = ("CONNECTOR", "TASK", "STATE", "RECORDS", "RECORDS/S", "LAG", "ERRORS")
_SCREEN_S: Final = 1.0
_PIPE_S: Final = 10.0

Row = tuple[str, int, str, int, int, int | str, int]


class Progress:
    """Rates are those since the last look."""

    def __init__(self, foreman: Foreman, now_s: Callable[[], float] = time.monotonic) -> None:
        self._foreman = foreman
        self._now_s = now_s
        self._looked_s = now_s()
        self._before: dict[TaskId, int] = {}

    def rows(self) -> list[Row]:
        now_s = self._now_s()
        passed_s, self._looked_s = max(now_s - self._looked_s, 1e-3), now_s
        measured = self._foreman.measured()
        rows: list[Row] = []
        for task, each in sorted(measured.items(), key=lambda pair: (pair[0].connector, pair[0].task)):
            status = self._foreman.statuses.tasks.get(task)
            # A task that was started anew counts from the beginning.
            since = each.records - min(self._before.get(task, 0), each.records)
            state = "" if status is None else status.state.value
            lag = "–" if each.lag is None else each.lag
            rate = round(since / passed_s)
            rows.append((task.connector, task.task, state, each.records, rate, lag, each.skipped))
        self._before = {task: each.records for task, each in measured.items()}
        return rows


async def show_progress(foreman: Foreman, stopped: asyncio.Event) -> None:
    """Until then."""
    progress = Progress(foreman)
    with _screen() as (refresh, every_s):
        while not stopped.is_set():
            refresh(progress.rows())
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), every_s)


@contextmanager
def _screen() -> Iterator[tuple[Callable[[list[Row]], None], float]]:
    if not sys.stdout.isatty():
        yield _print_lines, _PIPE_S
        return
    from rich.live import Live

    with Live(refresh_per_second=4) as live:
        yield lambda rows: live.update(rich_table(Table(_COLUMNS, rows))), _SCREEN_S


def _print_lines(rows: list[Row]) -> None:
    for line in columns([_COLUMNS, *rows]) if rows else ():
        print(line, flush=True)
