"""Levels of Python's loggers under the names that Kafka's have."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

_LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
    "ALL": 1,
}
_ROOT: Final = "root"


class Loggers:
    def __init__(self) -> None:
        self._changed_ms: dict[str, int] = {}

    def is_level(self, level: str) -> bool:
        return level.upper() in _LEVELS

    def all(self) -> dict[str, Any]:
        """Those with a level of their own."""
        names = [name for name, logger in self._known().items() if logger.level != logging.NOTSET]
        return {name: self._shown(name) for name in sorted(names)}

    def get(self, name: str) -> dict[str, Any] | None:
        return self._shown(name) if name in self._known() else None

    def set(self, name: str, level: str) -> list[str]:
        """The loggers that are affected: it and those below."""
        wanted = _LEVELS[level.upper()]
        logging.getLogger(None if name == _ROOT else name)
        known = self._known()
        affected = sorted(
            each for each in known if each == name or each.startswith(f"{name}.") or (name == _ROOT)
        )
        for each in affected:
            known[each].setLevel(wanted)
            self._changed_ms[each] = time.time_ns() // 1_000_000
        return affected

    def _known(self) -> dict[str, logging.Logger]:
        found = {_ROOT: logging.getLogger()}
        for name, logger in logging.root.manager.loggerDict.items():
            if isinstance(logger, logging.Logger):
                found[name] = logger
        return found

    def _shown(self, name: str) -> dict[str, Any]:
        level = self._known()[name].getEffectiveLevel()
        shown = min(_LEVELS, key=lambda each: abs(_LEVELS[each] - level))
        return {"level": shown, "last_modified": self._changed_ms.get(name)}
