"""What is refused before a connector starts."""

from __future__ import annotations

from ottla.connect.plugins import installed
from ottla.connect.validation import Validator

LINES = {"connector.class": "FileStreamSource", "name": "lines", "file": "lines.txt", "topic": "lines"}


def test_a_topic_of_its_own_for_offsets_is_refused() -> None:
    converter = "org.apache.kafka.connect.storage.StringConverter"
    validator = Validator(
        installed(), {"key.converter": converter, "value.converter": converter}, is_exactly_once=True
    )
    assert validator.validate(LINES).errors == []
    (error,) = validator.validate({**LINES, "offsets.storage.topic": "own"}).errors
    assert error.startswith("offsets.storage.topic: leave it out")
