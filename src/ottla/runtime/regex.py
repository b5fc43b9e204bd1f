"""Topic names that match an expression, in time linear in their length whatever the expression.

Python's own `re` backtracks: one heartbeat with the right expression would stop a broker for hours. RE2 does
not, and its syntax is what Kafka's brokers take. It is loaded with the first expression.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_MEMORY_MAX_BYTES = 256 * 1024
"""Of one compiled expression. A large one is slow without being exponential: with this, the worst takes a few
milliseconds for the longest name."""


class RegexError(ValueError):
    """Not RE2 syntax, or too large; the text says what is wrong with it."""


class Regex:
    def __init__(self, pattern: str) -> None:
        # What is matched has one byte per character, as topic names do. Programs for that are far smaller.
        self._of_bytes = _compiled(pattern.encode(), one_byte=True) if pattern.isascii() else None
        self._of_text = _compiled(pattern, one_byte=False) if self._of_bytes is None else None
        self._pattern = pattern

    def matches(self, name: str) -> bool:
        """The whole name, as Kafka has it."""
        if self._of_bytes is not None and name.isascii():
            return self._of_bytes.fullmatch(name.encode()) is not None
        if self._of_text is None:
            try:
                self._of_text = _compiled(self._pattern, one_byte=False)
            except RegexError:
                return False  # too large for more than ASCII, which only names of topics are made of
        return self._of_text.fullmatch(name) is not None


def _compiled(pattern: str | bytes, *, one_byte: bool) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY_MAX_BYTES
    if one_byte:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise RegexError(str(error)) from error
    except re2.error as error:
        reason = error.args[0]
        raise RegexError(reason.decode(errors="replace") if isinstance(reason, bytes) else reason) from error


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Raises RegexError."""
    return Regex(pattern)
