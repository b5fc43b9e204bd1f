"""Which records are wanted: by text in key, value or headers, and by what a path in JSON leads to.

Text between slashes is a regular expression (RE2: its time grows with the text alone). A header is `name` or
`name: text`. A path is `$.order.items[0].price > 10`, with `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (contains),
or alone, when it is enough that there is something. `expression.py` says what is asked of several at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ottla.console.records.expression import Seen, Test, compared, expression
from ottla.console.records.paths import read_steps, walk
from ottla.console.records.regular import searcher

Matcher: TypeAlias = Test

_COMPARED = re.compile(r"(?P<path>\$(?:[^!=<>~]|!(?!=))*)(?P<how>!=|<=|>=|=|<|>|~)\s*(?P<what>.+)", re.DOTALL)


def matcher(
    *, key: str = "", value: str = "", header: str = "", path: str = "", where: str = ""
) -> Matcher | None:
    """All that is given has to hold; None where nothing is."""
    tests: list[Matcher] = []
    if key:
        in_key = _contains("key", key)
        tests.append(lambda seen: in_key(seen.key.text))
    if value:
        in_value = _contains("value", value)
        tests.append(lambda seen: in_value(seen.value.text))
    if header:
        tests.append(_in_headers(header))
    if path:
        tests.append(_at_path(path))
    if where.strip():
        tests.append(expression(where))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda seen: all(test(seen) for test in tests)


def _contains(name: str, wanted: str) -> Callable[[str | None], bool]:
    if len(wanted) > 2 and wanted[0] == wanted[-1] == "/":
        matches = searcher(name, wanted[1:-1])
        return lambda text: text is not None and matches(text)
    return lambda text: text is not None and wanted in text


def _in_headers(wanted: str) -> Matcher:
    name, colon, text = wanted.partition(":")
    name = name.strip()
    if not colon:
        return lambda seen: any(found == name for found, _ in seen.headers)
    contains = _contains("header", text.strip())
    return lambda seen: any(found == name and contains(shown.text) for found, shown in seen.headers)


def _at_path(text: str) -> Matcher:
    parts = _COMPARED.fullmatch(text.strip())
    steps = read_steps(parts["path"].rstrip() if parts else text.strip(), "path")

    def field(seen: Seen) -> Iterator[Any]:
        return walk(seen.value.json, steps)

    if parts is None:
        return lambda seen: any(found is not None for found in field(seen))
    return compared(field, parts["how"], _literal(parts["what"]))


def _literal(text: str) -> Any:
    """A number, true, "text": or text without quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip("'")
