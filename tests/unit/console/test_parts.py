"""Numbers for people."""

from __future__ import annotations

from ottla.console.pages.parts import number


def test_a_whole_number_has_no_fraction() -> None:
    assert number(1_048_576.0) == number(1_048_576) == "1\u2009048\u2009576"
    assert number(0.5) == "0.5" and number(None) == "–"
    assert number(float("inf")) == "inf"
