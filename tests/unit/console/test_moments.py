"""Times, as they are shown and as they are given."""

from __future__ import annotations

import pytest

from ottla.console.moments import moment_ms
from ottla.console.pages.parts import moment
from ottla.console.problems import Refused


def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    assert "2026-01-31 12:00:00" in moment(1_769_860_800_000)
    assert moment(1 << 60) == f"{1 << 60} ms"


def test_a_time_is_given_as_a_date_or_in_milliseconds() -> None:
    assert moment_ms("2026-01-31T12:00:00") == moment_ms("1769860800000") == 1_769_860_800_000
    for odd in ("soon", "1" * 40, "1" * 5000, "²"):
        with pytest.raises(Refused, match="write it as"):
            moment_ms(odd)
