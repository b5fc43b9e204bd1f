"""Options that have another name now: the old one still works, and says so."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ottla.cli.framework.errors import ToolError
from ottla.cli.framework.output import warn


def take_renamed(given: argparse.Namespace, renamed: Iterable[tuple[str, str]]) -> None:
    """`renamed` has the old and the new name of each."""
    for old, new in renamed:
        old_attribute, new_attribute = (name.replace("-", "_").replace(".", "_") for name in (old, new))
        if getattr(given, old_attribute):
            if getattr(given, new_attribute):
                raise ToolError(f"Options --{old} and --{new} cannot be specified together.")
            warn(
                given, f"--{old} is deprecated and will be removed in a future version. Use --{new} instead."
            )
            setattr(given, new_attribute, getattr(given, old_attribute))
