"""Regular expressions of whoever looks, by RE2: its time grows with the text alone."""

from __future__ import annotations

from collections.abc import Callable

import re2

from ottla.console.problems import Refused

_MEMORY_BYTES_MAX = 1 << 20
"""Of one expression; the library keeps 128 of them."""


def searcher(field: str, pattern: str) -> Callable[[str], bool]:
    """`field` is what the expression was given as."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    # It would write to standard error what whoever asks is told.
    options.log_errors = False
    try:
        search = re2.compile(pattern, options).search
    except re2.error as error:
        [why] = error.args
        why = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise Refused(f"{field}: {pattern} is not a regular expression: {why}") from None

    def holds(text: str) -> bool:
        try:
            return search(text) is not None
        except UnicodeEncodeError:
            # JSON can name half of a pair of surrogates, which is no text.
            return search(text.encode(errors="replace").decode()) is not None

    return holds
