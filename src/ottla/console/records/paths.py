"""Paths into JSON: `$.order.items[0].price`, `[*]` for each of many, `['a name']`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from ottla.console.problems import Refused

Step: TypeAlias = "str | int | None"
"""A name, an index, or None for every one there is."""

STEPS_MAX = 100
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\*|-?\d+)\]|\['(?P<quoted>[^']*)'\]")


def read_steps(path: str, field: str) -> list[Step]:
    """`field` is what the path was given as."""
    at, steps = 1, list[Step]()
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None or not path.startswith("$"):
            raise Refused(f"{field}: {path} is not a path such as $.order.items[0].price")
        index = step["index"]
        if index is not None:
            steps.append(None if index == "*" else int(index))
        else:
            steps.append(step["name"] if step["name"] is not None else step["quoted"])
        at = step.end()
        if len(steps) > STEPS_MAX:
            raise Refused(f"{field}: a path may have {STEPS_MAX} steps")
    if not path.startswith("$"):
        raise Refused(f"{field}: {path} must begin with $")
    return steps


def walk(found: Any, steps: Sequence[Step]) -> Iterator[Any]:
    if not steps:
        yield found
        return
    step, rest = steps[0], steps[1:]
    if step is None:
        inner = found if isinstance(found, list) else found.values() if isinstance(found, dict) else ()
        for each in inner:
            yield from walk(each, rest)
    elif isinstance(step, int):
        if isinstance(found, list) and -len(found) <= step < len(found):
            yield from walk(found[step], rest)
    elif isinstance(found, dict) and step in found:
        yield from walk(found[step], rest)


def as_text(found: Any) -> str:
    if isinstance(found, str):
        return found
    try:
        return json.dumps(found, ensure_ascii=False)
    except RecursionError:
        # It could be read where less was on the stack.
        return ""
