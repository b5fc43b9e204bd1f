"""What becomes of a record that cannot be handled: tried again, skipped, kept in a dead-letter topic,
or the end."""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ottla.connect.errors import ConnectError, RetriableError
from ottla.connect.state.entries import TaskId

T = TypeVar("T")

_FIRST_DELAY_S: Final = 0.3
_SAID_MAX: Final = 4 * 1024
_TRACE_MAX: Final = 64 * 1024
"""Errors may show what they are about, which may be large; what is told of them has to fit into a record."""
CONTEXT_PREFIX: Final = "__connect.errors."
_log = logging.getLogger(__name__)


class Stage(enum.Enum):
    TASK_POLL = "TASK_POLL"
    TRANSFORMATION = "TRANSFORMATION"
    KEY_CONVERTER = "KEY_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    KAFKA_PRODUCE = "KAFKA_PRODUCE"
    TASK_PUT = "TASK_PUT"


class Skipped(Exception):
    """The record is dealt with: whoever works on it goes on with the next."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record is from, for those who look at it afterwards."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Letter:
    """A record for the dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Failures:
    """`attempt` each step. Raises Skipped for a record that is tolerated, ConnectError for one that
    is not."""

    def __init__(
        self,
        task: TaskId,
        given: Mapping[str, Any],
        wait: Callable[[float], bool],
        now_s: Callable[[], float],
        send: Callable[[Letter], None] | None = None,
    ) -> None:
        """`given` are checked settings; `wait` returns True when the task is to stop."""
        self._task = task
        self._is_tolerant = given["errors.tolerance"] == "all"
        self._retry_s = given["errors.retry.timeout"] / 1000
        self._delay_s_max = given["errors.retry.delay.max.ms"] / 1000
        self._logs = given["errors.log.enable"]
        self._logs_records = given["errors.log.include.messages"]
        self._topic = given.get("errors.deadletterqueue.topic.name") or ""
        self._has_context = bool(given.get("errors.deadletterqueue.context.headers.enable"))
        self._wait = wait
        self._now_s = now_s
        self._send = send
        self.skipped = 0

    def attempt(self, stage: Stage, step: Callable[[], T], origin: Origin, what: object = None) -> T:
        """`what` does the step: a converter or a transform."""
        started = self._now_s()
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                return step()
            except RetriableError as error:
                left_s = started + self._retry_s - self._now_s()
                if self._retry_s >= 0 and left_s <= 0:
                    if stage is Stage.TASK_POLL and not self._is_tolerant:
                        raise
                    self.failed(stage, error, origin, what)
                if self._wait(min(delay_s, self._delay_s_max, left_s if self._retry_s >= 0 else delay_s)):
                    raise
                delay_s *= 2
            except Exception as error:
                if stage is Stage.TASK_POLL:
                    # There is no record yet that could be skipped.
                    raise
                self.failed(stage, error, origin, what)

    def failed(self, stage: Stage, error: Exception, origin: Origin, what: object = None) -> None:
        """Always raises."""
        place = (
            f"{origin.topic}-{origin.partition}@{origin.offset}"
            if origin.offset is not None
            else origin.topic
        )
        if not self._is_tolerant:
            raise ConnectError(
                f"a record of {place} failed in {stage.value}: {type(error).__name__}: "
                f"{shortened(str(error), _SAID_MAX)}. Put "
                "the record or "
                "the configuration right and restart the task, or set errors.tolerance=all to skip "
                "such records"
            ) from error
        self.skipped += 1
        if self._logs:
            shown = f" of {place}" if self._logs_records else ""
            _log.error("task %s skips a record%s: %s: %s", self._task, shown, stage.value, error)
        if self._topic and self._send is not None:
            context = self._context(stage, error, origin, what) if self._has_context else ()
            self._send(Letter(self._topic, origin.key, origin.value, (*origin.headers, *context)))
        raise Skipped from error

    def _context(
        self, stage: Stage, error: Exception, origin: Origin, what: object
    ) -> tuple[tuple[str, bytes], ...]:
        trace = shortened("".join(traceback.format_exception(error)), _TRACE_MAX)
        rows = {
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "connector.name": self._task.connector,
            "task.id": self._task.task,
            "stage": stage.value,
            "class.name": _name(type(what)) if what is not None else stage.value,
            "exception.class.name": _name(type(error)),
            "exception.message": shortened(str(error), _SAID_MAX),
            "exception.stacktrace": trace,
        }
        return tuple((CONTEXT_PREFIX + name, str(value).encode()) for name, value in rows.items())


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def trace_of(error: BaseException) -> str:
    """For the status: the cause first, then where it happened."""
    lines = "".join(traceback.format_exception(error)).rstrip()
    cause = f"{_name(type(error))}: {shortened(str(error), _SAID_MAX)}\n"
    return cause + shortened(lines, _TRACE_MAX)


def shortened(text: str, most: int) -> str:
    """Without its middle where it is longer: it begins with what happened, and ends with what to do."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
