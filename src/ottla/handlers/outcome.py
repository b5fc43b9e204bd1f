"""An item's error, or its absence, as responses have it."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, KafkaError

# Messages quote what the client sent, which may be as long as a string on the wire can get: with the words
# around it, it would no longer fit into one.
MESSAGE_LENGTH_MAX = 1000


def error_code(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.none if error is None else error.code


def error_message(error: KafkaError | None) -> str | None:
    return None if error is None else str(error)[:MESSAGE_LENGTH_MAX]
