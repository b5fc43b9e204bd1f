"""An item's error, or its absence, as responses have it."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, KafkaError


def error_code(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.none if error is None else error.code


def error_message(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)
