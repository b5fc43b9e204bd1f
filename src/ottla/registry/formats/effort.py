"""How long two schemas may be held against each other: a small one can say much, each with each."""

from __future__ import annotations

from typing import Final

from ottla.registry.errors import InvalidSchema

# Two unions of 500 types each. A pair takes about ten microseconds, and other writes wait for it.
_PAIRS_MAX: Final = 250_000


class Effort:
    def __init__(self) -> None:
        self._pairs = 0

    def spend(self) -> None:
        """For a pair of types. InvalidSchema where it becomes too much."""
        self._pairs += 1
        if self._pairs > _PAIRS_MAX:
            raise InvalidSchema(
                f"Invalid schema: more than {_PAIRS_MAX} pairs of types would have to be compared"
            )
