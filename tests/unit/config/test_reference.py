"""The reference page says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from ottla.config.reference import render

PAGE = Path(__file__).parents[3] / "docs/reference/configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"
