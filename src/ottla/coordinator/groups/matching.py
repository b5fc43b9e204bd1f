"""Which topics expressions stand for, found before a command needs to know, in turns with everybody else.

An expression may take milliseconds for a long name, and there may be a hundred thousand names. One search is
under way at a time, so that many of them take no more of the event loop than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ottla.coordinator.groups.topics import TopicView
from ottla.runtime.clock import Clock
from ottla.runtime.regex import Regex, RegexError, compile_regex

Matched: TypeAlias = Mapping[str, frozenset[str]]
"""Names of topics by expression."""

NAMES_PER_TURN = 1_000
_TURN_SECONDS_MAX = 0.005
_NAMES_BETWEEN_LOOKS = 8
"""At the clock."""


class Matching:
    def __init__(self, clock: Clock, topics: Callable[[], Mapping[str, TopicView]]) -> None:
        """`topics` as they are at the time."""
        self._clock = clock
        self._topics = topics
        self._one_at_a_time = asyncio.Lock()

    async def run(self, expressions: Iterable[str]) -> Matched:
        """True of the topics as they are when this returns. Expressions that cannot be read are left out."""
        async with self._one_at_a_time:
            matchers = {expression: _matcher(expression) for expression in expressions}
            view = self._topics()
            found: dict[str, set[str]] = {}
            for expression, matcher in matchers.items():
                if matcher is not None:
                    found[expression] = await self._among(matcher, list(view))
            while (now := self._topics()) is not view:
                # Topics came and went meanwhile.
                came = [name for name in now if name not in view]
                for expression, names in found.items():
                    matcher = matchers[expression]
                    assert matcher is not None
                    left = {name for name in names if name in now}
                    found[expression] = left | await self._among(matcher, came)
                view = now
            return {expression: frozenset(names) for expression, names in found.items()}

    async def _among(self, matcher: Regex, names: list[str]) -> set[str]:
        found = set()
        turn_ends = self._clock.monotonic() + _TURN_SECONDS_MAX
        for number, name in enumerate(names, 1):
            if matcher.matches(name):
                found.add(name)
            if number % _NAMES_BETWEEN_LOOKS == 0 and (
                number % NAMES_PER_TURN == 0 or self._clock.monotonic() > turn_ends
            ):
                await asyncio.sleep(0)
                turn_ends = self._clock.monotonic() + _TURN_SECONDS_MAX
        return found


def _matcher(expression: str) -> Regex | None:
    try:
        return compile_regex(expression)
    except RegexError:
        return None
