"""Runs a command to its end."""

from __future__ import annotations

from typing import TypeVar

from ottla.controller.command import Deciding, Result

T = TypeVar("T")


def decided(deciding: Deciding[T]) -> Result[T]:
    while True:
        try:
            next(deciding)
        except StopIteration as ended:
            result: Result[T] = ended.value
            return result
