"""Whoever is about to do what cannot be undone types a name: pages ask for it, and the API sees to it."""

from __future__ import annotations

from ottla.console.problems import Refused


def check_typed(what: str, name: str, typed: str) -> None:
    if typed != name:
        raise Refused(f"type {what}, {name}, to confirm; this was {typed!r}")
