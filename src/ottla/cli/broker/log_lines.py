"""What the broker says while it runs: one readable line per event, on standard error."""

from __future__ import annotations

import logging
import sys

# Clients choose names that stand in messages. None may look like a line of its own, or move the cursor.
_ESCAPES = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


class LineFormatter(logging.Formatter):
    """`2026-01-31 12:00:00.123 INFO  log.manager: message`, without the package name everybody knows."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(part)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.part = record.name.removeprefix("ottla.")
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record.message = record.message.translate(_ESCAPES)
        return super().formatMessage(record)


def log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
