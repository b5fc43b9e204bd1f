"""Lines of the log: one for each event, whatever names clients choose."""

from __future__ import annotations

import logging

from ottla.cli.broker.log_lines import LineFormatter


def test_what_clients_say_neither_begins_a_line_nor_moves_the_cursor() -> None:
    record = logging.LogRecord(
        "ottla.x", logging.INFO, "", 0, "group %s", ("a\n2026 INFO: admin\x1b[31m\x85\u2028",), None
    )
    line = LineFormatter().format(record)
    assert len(line.splitlines()) == 1 and "\x1b" not in line
    assert line.endswith("x: group a\\x0a2026 INFO: admin\\x1b[31m\\x85\\u2028")


def test_tracebacks_keep_their_lines() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        record = logging.LogRecord(
            "ottla.x", logging.ERROR, "", 0, "it failed", (), (ValueError, error, error.__traceback__)
        )
    assert len(LineFormatter().format(record).splitlines()) > 2
