"""Which records are wanted: by text in key, value or headers, and by what a path in JSON leads to.

Text between slashes is a regular expression (RE2: its time grows with the text alone). A header is `name` or
`name: text`. A path is `$.order.items[0].price > 10`, with `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (contains),
or alone, when it is enough that there is something.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import re2

from ottla.console.problems import Refused
from ottla.console.records.shown import Shown

Headers: TypeAlias = Sequence[tuple[str, Shown]]
Matcher: TypeAlias = Callable[[Shown, Shown, Headers], bool]

_COMPARED = re.compile(r"^(?P<path>\$.*?)\s*(?P<how>!=|<=|>=|=|<|>|~)\s*(?P<what>.+)$", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\*|-?\d+)\]|\['(?P<quoted>[^']*)'\]")
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matcher(*, key: str = "", value: str = "", header: str = "", path: str = "") -> Matcher | None:
    """All that is given has to hold; None where nothing is."""
    tests: list[Matcher] = []
    if key:
        in_key = _contains("key", key)
        tests.append(lambda found, _, __: in_key(found.text))
    if value:
        in_value = _contains("value", value)
        tests.append(lambda _, found, __: in_value(found.text))
    if header:
        tests.append(_in_headers(header))
    if path:
        tests.append(_at_path(path))
    if not tests:
        return None
    return lambda found_key, found_value, headers: all(
        test(found_key, found_value, headers) for test in tests
    )


def _contains(name: str, wanted: str) -> Callable[[str | None], bool]:
    if len(wanted) > 2 and wanted[0] == wanted[-1] == "/":
        try:
            search = re2.compile(wanted[1:-1]).search
        except re2.error as error:
            raise Refused(f"{name}: {wanted} is not a regular expression: {error}") from None
        return lambda text: text is not None and search(text) is not None
    return lambda text: text is not None and wanted in text


def _in_headers(wanted: str) -> Matcher:
    name, colon, text = wanted.partition(":")
    name = name.strip()
    if not colon:
        return lambda _, __, headers: any(found == name for found, _ in headers)
    contains = _contains("header", text.strip())
    return lambda _, __, headers: any(found == name and contains(shown.text) for found, shown in headers)


def _at_path(text: str) -> Matcher:
    compared = _COMPARED.match(text.strip())
    steps = _steps(compared["path"] if compared else text.strip())
    if compared is None:
        return lambda _, value, __: any(found is not None for found in _walk(value.json, steps))
    how, what = compared["how"], _literal(compared["what"])
    if how == "~":
        return lambda _, value, __: any(str(what) in _as_text(found) for found in _walk(value.json, steps))
    order = _ORDERS[how]

    def holds(found: Any) -> bool:
        try:
            return order(found, what)
        except TypeError:
            return False

    return lambda _, value, __: any(map(holds, _walk(value.json, steps)))


def _steps(path: str) -> list[str | int | None]:
    """Names, indexes, and None for every one there is."""
    at, steps = 1, list[str | int | None]()
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or not path.startswith("$"):
            raise Refused(f"path: {path} is not a path such as $.order.items[0].price")
        index = step["index"]
        if index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(step["name"] if step["name"] is not None else step["quoted"])
        at = step.end()
    if not path.startswith("$"):
        raise Refused(f"path: {path} must begin with $")
    return steps


def _walk(found: Any, steps: Sequence[str | int | None]) -> Iterator[Any]:
    if not steps:
        yield found
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        inner = found if isinstance(found, list) else found.values() if isinstance(found, dict) else ()
        for each in inner:
            yield from _walk(each, rest)
    elif isinstance(step, int):
        if isinstance(found, list) and -len(found) <= step < len(found):
            yield from _walk(found[step], rest)
    elif isinstance(found, dict) and step in found:
        yield from _walk(found[step], rest)


def _literal(text: str) -> Any:
    """A number, true, "text": or text without quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.strip("'")


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
