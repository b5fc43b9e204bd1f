"""What a tool tells its user in one line before it ends with status 1."""

from __future__ import annotations

from typing import Any


class ToolError(Exception):
    """The text names what was given and what to do instead."""


class Refused(ToolError):
    """A broker answered with an error code."""

    def __init__(self, code: Any, message: str | None, subject: str = "") -> None:
        self.code = code
        self.reason = message or code_name(code)
        super().__init__(f"{subject}: {self.reason}" if subject else self.reason)


def code_name(code: Any) -> str:
    """As Apache Kafka spells it, such as UNKNOWN_TOPIC_OR_PARTITION."""
    return str(getattr(code, "name", code)).upper()


def check(code: Any, message: str | None = None, subject: str = "") -> None:
    """Raise Refused for every code but the one for success."""
    if code != 0:
        raise Refused(code, message, subject)
