"""What connectors and their tasks say in the log: of each the newest lines, kept by the worker they run on.

A line is a connector's when it is logged while the connector or one of its tasks is at work, in the thread
that works for it, or is about a task by name. What threads say that a plugin begins by itself is in the
worker's log alone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from ottla.connect.state.entries import TaskId
from ottla.connect.state.lifecycle import Unit

LINES_MAX: Final = 500
CHARACTERS_MAX: Final = 256 * 1024
"""Of one connector, in all its lines."""
_LINE_CHARACTERS_MAX: Final = 16 * 1024


class Line(NamedTuple):
    time_ms: int
    level: str
    task: int | None
    """None of the connector itself."""
    logger: str
    text: str
    """With the trace, where there is one."""

    def shown(self, worker: str) -> dict[str, Any]:
        return {**self._asdict(), "worker": worker}


class Lines(logging.Handler):
    """Of one worker; `is_known` says whether there is a connector of that name."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        super().__init__()
        self._is_known = is_known
        self._kept: dict[str, _Kept] = {}
        self._guard = threading.Lock()

    def start(self) -> None:
        logging.getLogger().addHandler(self)

    def stop(self) -> None:
        logging.getLogger().removeHandler(self)

    @contextmanager
    def speaking(self, unit: Unit) -> Iterator[None]:
        """What is logged meanwhile, here and in threads that get a copy of the context, is this unit's."""
        before = _speaker.set((self, unit))
        try:
            yield
        finally:
            _speaker.reset(before)

    def emit(self, record: logging.LogRecord) -> None:
        unit = self._unit_of(record)
        if unit is None:
            return
        name, task = (unit.connector, unit.task) if isinstance(unit, TaskId) else (unit, None)
        if not self._is_known(name):
            return
        try:
            text = self.format(record)[:_LINE_CHARACTERS_MAX]
        except Exception:
            self.handleError(record)
            return
        line = Line(int(record.created * 1000), record.levelname, task, record.name, text)
        with self._guard:
            self._kept.setdefault(name, _Kept()).add(line)

    def of(self, connector: str) -> list[Line]:
        """The oldest first."""
        with self._guard:
            kept = self._kept.get(connector)
            return [] if kept is None else list(kept.lines)

    def forget(self, connector: str) -> None:
        with self._guard:
            self._kept.pop(connector, None)

    def _unit_of(self, record: logging.LogRecord) -> Unit | None:
        speaker = _speaker.get()
        if speaker is not None:
            return speaker[1] if speaker[0] is self else None
        arguments = record.args if isinstance(record.args, tuple) else ()
        return next((each for each in arguments if isinstance(each, TaskId)), None)


_speaker: ContextVar[tuple[Lines, Unit] | None] = ContextVar("speaker", default=None)


class _Kept:
    def __init__(self) -> None:
        self.lines: deque[Line] = deque()
        self._characters = 0

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self._characters += len(line.text)
        while len(self.lines) > LINES_MAX or self._characters > CHARACTERS_MAX:
            self._characters -= len(self.lines.popleft().text)
