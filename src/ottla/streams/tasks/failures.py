"""What happens to a record that cannot be read, worked on or written: fail, skip and log, or a dead-letter
topic. The application says so for all of them, by kind, or decides record by record."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

from ottla.streams.errors import RecordError, StreamsError, TopologyError
from ottla.streams.records import InputRecord, OutputRecord

logger = logging.getLogger("ottla.streams")


class OnError(Enum):
    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class ErrorKind(Enum):
    """Where a record failed: its bytes could not be read, a node failed on it, a result could not be
    written."""

    DESERIALIZE = "deserialize"
    PROCESS = "process"
    PRODUCE = "produce"


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """What a handler decides on. ``record`` is as it was read, and ``key`` as far as it could be read."""

    kind: ErrorKind
    node: str
    key: Any
    record: InputRecord
    error: Exception


Handler = OnError | str | Callable[[FailedRecord], OnError | str]


@dataclass(frozen=True, slots=True)
class ErrorHandlers:
    """For each kind of error what to do, or a function that says so for a record. Functions run in Spark's
    workers, and again if a micro-batch is repeated."""

    deserialize: Handler = OnError.FAIL
    process: Handler = OnError.FAIL
    produce: Handler = OnError.FAIL

    def choose(self, failed: FailedRecord) -> OnError:
        handler: Handler = getattr(self, failed.kind.value)
        return _action(handler(failed) if callable(handler) else handler)

    def fixed(self) -> set[OnError]:
        """What is chosen without asking a function."""
        handlers = [getattr(self, field.name) for field in fields(self)]
        return {_action(handler) for handler in handlers if not callable(handler)}

    def asks(self) -> bool:
        return any(callable(getattr(self, field.name)) for field in fields(self))


def _action(chosen: OnError | str) -> OnError:
    try:
        return OnError(chosen)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in OnError)
        raise TopologyError(f"on_error is {chosen!r}: choose one of {choices}") from None


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    handlers: ErrorHandlers = ErrorHandlers()
    dead_letter_topic: str | None = None
    has_dead_letters: bool = True

    def __post_init__(self) -> None:
        is_needed = OnError.DEAD_LETTER in self.handlers.fixed()
        if self.dead_letter_topic is None and is_needed:
            raise TopologyError("on_error is 'dead-letter': a dead-letter topic is needed for it")
        if self.dead_letter_topic is not None and not is_needed and not self.handlers.asks():
            raise TopologyError(
                f"dead_letter_topic is {self.dead_letter_topic!r}: a dead-letter topic is needed for, and "
                "only for, on_error='dead-letter'"
            )

    @classmethod
    def of(cls, on_error: OnError | str | ErrorHandlers, dead_letter_topic: str | None = None) -> ErrorPolicy:
        if isinstance(on_error, ErrorHandlers):
            return cls(on_error, dead_letter_topic)
        action = _action(on_error)
        return cls(ErrorHandlers(action, action, action), dead_letter_topic)

    def without_dead_letters(self) -> ErrorPolicy:
        """For work that has no output: what would be a dead letter is left out, and the log says so."""
        return replace(self, has_dead_letters=False)

    def handle(self, failed: FailedRecord, emit: Callable[[OutputRecord], None]) -> OnError:
        """Raise a ``RecordError`` that names the record, or deal with it as told and say how."""
        origin, cause = failed.record.origin, failed.error
        text = (
            f"{failed.node} failed on the record at topic {origin.topic}, partition {origin.partition}, "
            f"offset {origin.offset}, key {failed.key!r}: {type(cause).__name__}: {cause}"
        )
        action = self.handlers.choose(failed)
        if action is OnError.FAIL:
            raise RecordError(
                text, node=failed.node, topic=origin.topic, partition=origin.partition, offset=origin.offset
            ) from cause
        if action is OnError.SKIP or not self.has_dead_letters:
            logger.warning("Skipped: %s", text)
            return OnError.SKIP
        if self.dead_letter_topic is None:
            raise StreamsError(
                f"a handler chose dead-letter, but no dead_letter_topic is given: {text}"
            ) from cause
        logger.warning("Sent to %s: %s", self.dead_letter_topic, text)
        emit(self._dead_letter(self.dead_letter_topic, cause, failed.record))
        return OnError.DEAD_LETTER

    @staticmethod
    def _dead_letter(topic: str, cause: Exception, record: InputRecord) -> OutputRecord:
        # The header names of KIP-1034, so that tools for Kafka Streams' dead letters read these.
        facts = {
            "exception": type(cause).__qualname__,
            "message": str(cause),
            "stacktrace": "".join(traceback.format_exception(cause)),
            "topic": record.origin.topic,
            "partition": str(record.origin.partition),
            "offset": str(record.origin.offset),
        }
        headers = tuple((f"__streams.errors.{name}", text.encode()) for name, text in facts.items())
        return OutputRecord(topic, record.key, record.value, record.timestamp_ms, record.headers + headers)
