"""What a file says of the application in it, and what wins over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.cli.applications import ApplicationFile, error_policy, load_application
from ottla.cli.framework.errors import ToolError
from ottla.streams import ErrorHandlers

PROGRAM = """
from ottla.streams import ErrorHandlers, StreamsBuilder
{}
def build():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder
"""


def loaded(directory: Path, lines: str) -> ApplicationFile:
    path = directory / "copying_things.py"
    path.write_text(PROGRAM.format(lines))
    return load_application(str(path))


def test_a_file_need_not_say_more_than_its_topology(tmp_path: Path) -> None:
    file = loaded(tmp_path, "")
    assert file.application_id == "copying-things"
    assert error_policy(file, "skip", None) == ("skip", None)
    assert error_policy(file, "dead-letter", "dead") == ("dead-letter", "dead")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None), ("dead-letter", "lines-dead")),
        ((None, "elsewhere"), ("dead-letter", "elsewhere")),
        (("dead-letter", None), ("dead-letter", "lines-dead")),
        (("skip", None), ("skip", None)),
    ],
)
def test_options_win_over_what_the_file_says(tmp_path: Path, given: Any, expected: Any) -> None:
    file = loaded(tmp_path, 'ON_ERROR, DEAD_LETTER_TOPIC = "dead-letter", "lines-dead"')
    assert error_policy(file, *given) == expected


def test_a_file_may_decide_by_kind_of_error(tmp_path: Path) -> None:
    file = loaded(tmp_path, 'ON_ERROR = ErrorHandlers(deserialize="skip")')
    assert error_policy(file, None, None) == (ErrorHandlers(deserialize="skip"), None)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ('ON_ERROR = "ignore"', r"copying_things\.py: on_error is 'ignore': choose one of 'fail', 'skip'"),
        ('ON_ERROR = "dead-letter"', r"copying_things\.py: .*a dead-letter topic is needed"),
        ('DEAD_LETTER_TOPIC = "dead"', r"copying_things\.py: dead_letter_topic is 'dead'"),
    ],
)
def test_what_a_file_says_wrong_is_told_before_anything_starts(
    tmp_path: Path, lines: str, complaint: str
) -> None:
    with pytest.raises(ToolError, match=complaint):
        error_policy(loaded(tmp_path, lines), None, None)
