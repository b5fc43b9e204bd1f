"""Which lines of the log are whose, and how many are kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context

import pytest

from ottla.connect.lines import LINES_MAX, Lines
from ottla.connect.state.entries import TaskId

log = logging.getLogger("a.plugin")


@pytest.fixture
def lines() -> Iterator[Lines]:
    log.setLevel(logging.INFO)
    lines = Lines(lambda name: name != "gone")
    lines.start()
    yield lines
    lines.stop()
    log.setLevel(logging.NOTSET)


def test_lines_are_of_whom_they_are_logged_for(lines: Lines) -> None:
    other = Lines(lambda name: True)
    other.start()
    log.info("of nobody")
    with lines.speaking("copy"):
        log.info("the connector")
        log.debug("not wanted at this level")
        with lines.speaking(TaskId("copy", 1)):
            # What the thread says counts as said by whoever it was made for.
            thread = threading.Thread(target=copy_context().run, args=(log.warning, "its task"))
        thread.start()
        thread.join()
    log.info("%s says %d", TaskId("copy", 0), 7)
    with lines.speaking("gone"):
        log.info("of one that was deleted")
    other.stop()
    found = [(line.task, line.level, line.text) for line in lines.of("copy")]
    assert found == [
        (None, "INFO", "the connector"),
        (1, "WARNING", "its task"),
        (0, "INFO", "copy-0 says 7"),
    ]
    assert lines.of("gone") == []
    # Another worker of the process hears what is about a task of that name, and nothing else.
    assert [line.text for line in other.of("copy")] == ["copy-0 says 7"]
    lines.forget("copy")
    assert lines.of("copy") == []


def test_the_trace_of_a_failure_is_kept(lines: Lines) -> None:
    with lines.speaking("copy"):
        try:
            raise ValueError("of the disk")
        except ValueError:
            log.exception("failed")
    (line,) = lines.of("copy")
    assert line.text.startswith("failed\nTraceback") and "ValueError: of the disk" in line.text


def test_only_the_newest_lines_are_kept(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    with lines.speaking("copy"):
        for number in range(LINES_MAX + 10):
            log.info("%d", number)
        assert [line.text for line in lines.of("copy")][:: LINES_MAX - 1] == ["10", str(LINES_MAX + 9)]
        monkeypatch.setattr("ottla.connect.lines.CHARACTERS_MAX", 100)
        for letter in "abc":
            log.info(letter * 40)
    assert [line.text[0] for line in lines.of("copy")] == ["b", "c"]
