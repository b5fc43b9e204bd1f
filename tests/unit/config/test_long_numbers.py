"""Numbers that nobody means are refused like any other, however long."""

from __future__ import annotations

import pytest

from ottla.config import TOPIC_KEYS, ConfigError


def test_a_number_of_thirty_thousand_digits() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        TOPIC_KEYS["segment.bytes"].parse("9" * 30_000)
