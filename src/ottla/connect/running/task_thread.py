"""A task in a thread of its own: started, paused, resumed, stopped, and what it reports."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final

from ottla.connect.state.entries import TaskId

_PAUSE_LOOK_S: Final = 0.2
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reports:
    """Called from the task's thread; exactly one of `failed` and `stopped` is the last."""

    started: Callable[[], None]
    failed: Callable[[BaseException], None]
    stopped: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a task since it was started."""

    records: int
    """Written to topics by a source, given to its connector by a sink."""
    skipped: int
    lag: int | None
    """Of a sink: records that it has not taken yet. None where nobody knows."""


class Runner(ABC):
    """What runs for a task; all methods return at once."""

    @abstractmethod
    def measured(self) -> Measured: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def pause(self) -> None: ...

    @abstractmethod
    def resume(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...


class TaskThread(Runner):
    """`set_up` once, then `turn` after `turn` until it is to stop, then `tear_down`."""

    def __init__(self, task: TaskId, reports: Reports, *, is_paused: bool) -> None:
        self.task = task
        self._reports = reports
        self._stopping = threading.Event()
        self._paused = threading.Event()
        if is_paused:
            self._paused.set()
        # In the context it is made in, so that what it logs is known to be the task's.
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=f"task-{task}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        self._paused.set()

    def resume(self) -> None:
        self._paused.clear()

    def stop(self) -> None:
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_paused(self) -> bool:
        return self._paused.is_set()

    def wait(self, seconds: float) -> bool:
        """True when the task is to stop."""
        return self._stopping.wait(seconds)

    @abstractmethod
    def set_up(self) -> None: ...

    @abstractmethod
    def turn(self) -> None: ...

    def turn_paused(self) -> None:
        self._stopping.wait(_PAUSE_LOOK_S)

    @abstractmethod
    def finish(self) -> None:
        """In good order: what was done so far is stored."""

    @abstractmethod
    def tear_down(self) -> None:
        """In any order; must not fail."""

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self.set_up()
            self._reports.started()
            while not self._stopping.is_set():
                if self._paused.is_set():
                    self.turn_paused()
                else:
                    self.turn()
            self.finish()
        except BaseException as error:
            failure = error
        try:
            self.tear_down()
        except Exception:
            _log.exception("task %s did not let go of everything", self.task)
        if failure is None or self._stopping.is_set():
            if failure is not None:
                _log.warning("task %s failed while it stopped: %s", self.task, failure)
            self._reports.stopped()
        else:
            _log.error("task %s failed: %s", self.task, failure, exc_info=failure)
            self._reports.failed(failure)
