"""An expression over all that a record has, such as

    $.total >= 100 and not (key ~ "test" or headers.source = "replay") and timestamp > "2026-01-31T12:00:00"

`key` and `value` are texts; `key.id`, `value.items[0].sku` and its short form `$.items[0].sku` lead into
JSON, `[*]` to each of many, of which one is enough. `headers.name` or `headers['a name']`, `partition`,
`offset`, `timestamp`, `keyBytes`, `valueBytes`. Compared by `=`, `!=`, `<`, `<=`, `>`, `>=`, `~` (contains)
and `=~` (RE2: its time grows with the text alone) with a number, a text in quotes, `true`, `false` or `null`;
alone, it is enough that there is something. A text that is a number is compared with numbers as one.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from ottla.console.moments import moment_ms
from ottla.console.problems import Refused
from ottla.console.records.paths import Step, as_text, read_steps, walk
from ottla.console.records.regular import searcher
from ottla.console.records.shown import Shown

LENGTH_MAX = 4000
DEPTH_MAX = 40

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
      | (?P<sign>=~|==|!=|<=|>=|=|<|>|~|\(|\))
      | (?P<word>[$A-Za-z_](?:[^\s\[\]()=!<>~"']|\[(?:\*|-?\d+)\]|\['[^']*'\])*)
    )""",
    re.VERBOSE,
)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LITERALS = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not"}
_PLAIN = {
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "keyBytes": "key_bytes",
    "valueBytes": "value_bytes",
}


class Seen(NamedTuple):
    """What a record has, as it is looked at."""

    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]
    partition: int
    offset: int
    timestamp: int
    key_bytes: int
    value_bytes: int


Test: TypeAlias = Callable[[Seen], bool]
Field: TypeAlias = Callable[[Seen], Iterator[Any]]
"""Everything that it leads to; nothing where there is none."""


def expression(text: str) -> Test:
    """Refused says what is wrong, and where."""
    if len(text) > LENGTH_MAX:
        raise Refused(f"where has {len(text)} characters; it may have {LENGTH_MAX}")
    return _Reader(text).all()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._kind, self._token = "", ""
        self._next()

    def all(self) -> Test:
        found = self._either()
        if self._kind:
            raise self._wrong("and, or, or the end is missing")
        return found

    def _either(self) -> Test:
        tests = [self._both()]
        while self._took("or"):
            tests.append(self._both())
        return tests[0] if len(tests) == 1 else lambda seen: any(test(seen) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._took("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda seen: all(test(seen) for test in tests)

    def _one(self) -> Test:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Refused(f"where is nested more than {DEPTH_MAX} deep")
        try:
            if self._took("not"):
                test = self._one()
                return lambda seen: not test(seen)
            if self._took("("):
                inner = self._either()
                if not self._took(")"):
                    raise self._wrong("a closing parenthesis is missing")
                return inner
            return self._compared()
        finally:
            self._depth -= 1

    def _compared(self) -> Test:
        if self._kind != "word" or self._token in _WORDS or self._token in _LITERALS:
            raise self._wrong("key, value, $.a.path, headers.name, partition, offset or timestamp is missing")
        name, field = self._token, _field(self._token)
        self._next()
        if self._kind != "sign" or self._token in {"(", ")"}:
            return lambda seen: any(found is not None for found in field(seen))
        how = self._token
        self._next()
        what = self._literal()
        if how == "=~":
            return _matches(field, what)
        if name == "timestamp" and how != "~" and isinstance(what, str):
            what = moment_ms(what)
        return compared(field, how, what)

    def _literal(self) -> Any:
        kind, token = self._kind, self._token
        if kind == "text":
            self._next()
            return _unquoted(token)
        if kind == "number":
            self._next()
            return int(token) if token.lstrip("-").isdecimal() else float(token)
        if kind == "word" and token in _LITERALS:
            self._next()
            return _LITERALS[token]
        raise self._wrong('a number, a "text", true, false or null is missing')

    def _took(self, token: str) -> bool:
        if self._token != token or self._kind == "text":
            return False
        self._next()
        return True

    def _next(self) -> None:
        self._begin = self._at
        rest = self._text[self._at :]
        if not rest.strip():
            self._kind = self._token = ""
            return
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            self._kind, self._token = "odd", rest.strip()[:20]
            raise self._wrong("this cannot be read")
        self._kind, self._token = found.lastgroup, found[found.lastgroup]
        self._at = found.end()

    def _wrong(self, what: str) -> Refused:
        place = self._text[self._begin :].strip()[:40] or "its end"
        return Refused(f'where: {what} at {place}; an example is $.total > 100 and not key ~ "test"')


def _field(name: str) -> Field:
    if name in _PLAIN:
        get = operator.attrgetter(_PLAIN[name])
        return lambda seen: iter((get(seen),))
    if name == "key":
        return lambda seen: iter((seen.key.text,))
    if name == "value":
        return lambda seen: iter((seen.value.text,))
    if name.startswith("$"):
        steps = _steps(name)
        return lambda seen: walk(seen.value.json, steps)
    head = re.match(r"key|value|headers", name)
    if head is None or name[head.end() : head.end() + 1] not in {".", "["}:
        there_are = f"key, value, $.a.path, headers.name, {', '.join(_PLAIN)}"
        raise Refused(f"where: there is no {name}; there are {there_are}")
    steps = _steps(f"${name[head.end() :]}")
    match head[0]:
        case "key":
            return lambda seen: walk(seen.key.json, steps)
        case "value":
            return lambda seen: walk(seen.value.json, steps)
    # Names of headers have dots in them.
    wanted = name[len("headers.") :] if name[head.end()] == "." else str(steps[0])
    return lambda seen: (shown.text for header, shown in seen.headers if header == wanted)


def _steps(path: str) -> list[Step]:
    return read_steps(path, "where")


def _matches(field: Field, what: Any) -> Test:
    if not isinstance(what, str):
        raise Refused(f"where: behind =~ comes a text in quotes, not {what}")
    holds = searcher("where", what)
    return lambda seen: any(holds(as_text(found)) for found in field(seen) if found is not None)


def compared(field: Field, how: str, what: Any) -> Test:
    """`how` is one of the signs but `=~`."""
    if how == "~":
        part = as_text(what)
        return lambda seen: any(part in as_text(found) for found in field(seen) if found is not None)
    order = _ORDERS[how]
    is_number = isinstance(what, int | float) and not isinstance(what, bool)

    def holds(found: Any) -> bool:
        if is_number and isinstance(found, str):
            try:
                found = json.loads(found)
            except (ValueError, RecursionError):
                return order is operator.ne
        if isinstance(found, bool) != isinstance(what, bool):
            # To Python true is 1.
            return order is operator.ne
        try:
            return order(found, what)
        except TypeError:
            return False

    return lambda seen: any(map(holds, field(seen)))


def _unquoted(token: str) -> str:
    """Behind a backslash everything is itself."""
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)
