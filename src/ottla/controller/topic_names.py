"""Which names a topic may have. Its name is part of paths and metrics, hence the rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ottla.wire.errors import InvalidTopic

NAME_LENGTH_MAX = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises InvalidTopic with the reason."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in {".", ".."}:
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopic(f"Topic name is invalid: {reason}")


def can_collide(name: str) -> bool:
    return "." in name or "_" in name


def unified(name: str) -> str:
    """Equal for names that would be one metric name, where "." turns into "_"."""
    return name.replace(".", "_")


def by_unified_name(names: Iterable[str]) -> dict[str, str]:
    return {unified(name): name for name in names if can_collide(name)}
