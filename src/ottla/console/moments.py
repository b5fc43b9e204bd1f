"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.console.problems import Refused

_MS_MAX = 1 << 62


def moment_ms(text: str) -> int:
    """Milliseconds, or `2026-01-31T12:00:00`, in UTC unless it says otherwise."""
    try:
        if text.lstrip("-").isdecimal():
            milliseconds = int(text)
            if abs(milliseconds) > _MS_MAX:
                raise ValueError
            return milliseconds
        read = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"time is {text!r}; write it as 2026-01-31T12:00:00, or in milliseconds") from None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)
