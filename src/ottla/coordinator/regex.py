"""Topic names that match an expression, in time linear in their length whatever the expression.

Python's own `re` backtracks: one heartbeat with the right expression would stop a broker for hours. Here the
expression becomes a set of states advanced character by character, and the sets met are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ottla.coordinator.regex_syntax import (
    WORD,
    Assertion,
    Chars,
    Choice,
    Node,
    RegexError,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["Regex", "RegexError", "compile_regex"]

_STATES_MAX = 20_000
_SETS_REMEMBERED_MAX = 1_000
_START, _INSIDE_WORD, _OUTSIDE_WORD, _END = "start", "word", "other", "end"


@dataclass(slots=True)
class _State:
    """Advances on a character, or at once to all of `then` if there is none to read and the check passes."""

    accepted: frozenset[str] | None
    check: str
    then: list[int]


class Regex:
    def __init__(self, pattern: str) -> None:
        self._states: list[_State] = []
        self._accept = self._add(frozenset(), "", [])
        self._first = self._build(parse(pattern), self._accept)
        self._sets: dict[tuple[frozenset[int], str], dict[str, tuple[frozenset[int], str]]] = {}

    def matches(self, name: str) -> bool:
        """The whole name, as Kafka has it."""
        here = (frozenset((self._first,)), _START)
        for char in name:
            steps = self._sets.get(here)
            if steps is None:
                if len(self._sets) >= _SETS_REMEMBERED_MAX:
                    self._sets.clear()
                steps = self._sets[here] = {}
            there = steps.get(char)
            if there is None:
                there = steps[char] = self._step(here, char)
            if not there[0]:
                return False
            here = there
        return self._accept in self._closure(*here, _END)

    def _step(self, here: tuple[frozenset[int], str], char: str) -> tuple[frozenset[int], str]:
        kind = _INSIDE_WORD if char in WORD else _OUTSIDE_WORD
        reached: set[int] = set()
        for index in self._closure(*here, kind):
            state = self._states[index]
            if state.accepted is not None and char in state.accepted:
                reached.update(state.then)
        return frozenset(reached), kind

    def _closure(self, states: Iterable[int], before: str, after: str) -> set[int]:
        seen = set(states)
        waiting = list(seen)
        while waiting:
            state = self._states[waiting.pop()]
            if state.accepted is None and _holds(state.check, before, after):
                for index in state.then:
                    if index not in seen:
                        seen.add(index)
                        waiting.append(index)
        return seen

    def _add(self, accepted: frozenset[str] | None, check: str, then: list[int]) -> int:
        if len(self._states) >= _STATES_MAX:
            raise RegexError(f"expression needs more than {_STATES_MAX} states")
        self._states.append(_State(accepted, check, then))
        return len(self._states) - 1

    def _build(self, node: Node, then: int) -> int:
        """The state that matches this node and goes on to `then`; built from the end of the expression."""
        match node:
            case Chars(accepted):
                return self._add(accepted, "", [then])
            case Assertion(kind):
                return self._add(None, kind, [then])
            case Sequence(items):
                for item in reversed(items):
                    then = self._build(item, then)
                return then
            case Choice(options):
                return self._add(None, "", [self._build(option, then) for option in options])
            case Repeat(item, minimum, maximum):
                return self._build_repeat(item, minimum, maximum, then)

    def _build_repeat(self, item: Node, minimum: int, maximum: int | None, then: int) -> int:
        if maximum is None:
            loop = self._add(None, "", [then])
            self._states[loop].then.insert(0, self._build(item, loop))
            then = loop
        else:
            end = then
            for _ in range(maximum - minimum):
                then = self._add(None, "", [self._build(item, then), end])
        for _ in range(minimum):
            then = self._build(item, then)
        return then


def _holds(check: str, before: str, after: str) -> bool:
    match check:
        case "":
            return True
        case "^":
            return before == _START
        case "$":
            return after == _END
        case _:
            is_boundary = (before == _INSIDE_WORD) != (after == _INSIDE_WORD)
            return is_boundary == (check == "b")


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Raises RegexError."""
    return Regex(pattern)
