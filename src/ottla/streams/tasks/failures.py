"""What happens to a record that cannot be read, worked on or written: fail, skip and log, or a dead-letter
topic."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.streams.errors import RecordError, TopologyError
from ottla.streams.records import InputRecord, OutputRecord

logger = logging.getLogger("ottla.streams")


class OnError(Enum):
    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    action: OnError = OnError.FAIL
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if (self.action is OnError.DEAD_LETTER) != (self.dead_letter_topic is not None):
            raise TopologyError(
                f"on_error is {self.action.value!r} and dead_letter_topic {self.dead_letter_topic!r}: "
                "a dead-letter topic is needed for, and only for, on_error='dead-letter'"
            )

    @classmethod
    def of(cls, on_error: OnError | str, dead_letter_topic: str | None = None) -> ErrorPolicy:
        try:
            return cls(OnError(on_error), dead_letter_topic)
        except ValueError:
            choices = ", ".join(repr(choice.value) for choice in OnError)
            raise TopologyError(f"on_error is {on_error!r}: choose one of {choices}") from None

    def without_dead_letters(self) -> ErrorPolicy:
        """For work that has no output: what would be a dead letter is left out, and the log says so."""
        return ErrorPolicy(OnError.SKIP) if self.action is OnError.DEAD_LETTER else self

    def handle(
        self,
        cause: Exception,
        *,
        node: str,
        key: Any,
        record: InputRecord,
        emit: Callable[[OutputRecord], None],
    ) -> None:
        """Raise a ``RecordError`` that names the record, or deal with it as told."""
        origin = record.origin
        text = (
            f"{node} failed on the record at topic {origin.topic}, partition {origin.partition}, "
            f"offset {origin.offset}, key {key!r}: {type(cause).__name__}: {cause}"
        )
        match self.action:
            case OnError.FAIL:
                raise RecordError(
                    text,
                    node=node,
                    topic=origin.topic,
                    partition=origin.partition,
                    offset=origin.offset,
                ) from cause
            case OnError.SKIP:
                logger.warning("Skipped: %s", text)
            case OnError.DEAD_LETTER:
                assert self.dead_letter_topic is not None
                logger.warning("Sent to %s: %s", self.dead_letter_topic, text)
                emit(self._dead_letter(self.dead_letter_topic, cause, record))

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
