"""What goes wrong in Connect, by whom it is to be put right."""

from __future__ import annotations

from typing import Final

BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
CONFLICT: Final = 409
SERVER_ERROR: Final = 500


class ConnectError(Exception):
    """A connector, a task or the worker cannot go on; the text names the cause and, where there is
    one, the remedy."""


class RetriableError(ConnectError):
    """Raised by a task for what passes by itself: the same records are given to it again."""


class DataError(ConnectError):
    """A record that cannot be converted, transformed or written; `errors.tolerance` says what becomes
    of it."""


class SettingError(ConnectError):
    """A value that cannot be used, in the words in which Kafka's tools say it."""

    @classmethod
    def of(cls, name: str, value: object, reason: str) -> SettingError:
        return cls(f"Invalid value {'null' if value is None else value} for configuration {name}: {reason}")


class RestError(Exception):
    """The answer to a request that cannot be fulfilled."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> RestError:
    return RestError(BAD_REQUEST, message)


def not_found(message: str) -> RestError:
    return RestError(NOT_FOUND, message)


def conflict(message: str) -> RestError:
    return RestError(CONFLICT, message)
