"""The table of permissions and its page."""

from __future__ import annotations

from pathlib import Path

from ottla.handlers.authorization import CONTROLLER_RULES, RULES
from ottla.handlers.authorization_reference import render
from ottla.handlers.registry import CONTROLLER_REGISTRY, REGISTRY

PAGE = Path(__file__).parents[3] / "docs/reference/authorization.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


def test_every_api_has_its_line() -> None:
    assert REGISTRY.keys() <= RULES.keys()
    assert CONTROLLER_REGISTRY.keys() <= RULES.keys() | CONTROLLER_RULES.keys()
