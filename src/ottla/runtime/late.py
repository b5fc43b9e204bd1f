"""A part that is made when it is first wanted: most processes never want it, nor load its code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Late(Generic[T]):
    __slots__ = ("_make", "made")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        """None: nobody has wanted it yet."""

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made
