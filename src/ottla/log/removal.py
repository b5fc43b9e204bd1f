"""Files and directories that are out of use, removed only after readers had time to finish with them."""

from __future__ import annotations

import logging
from collections import deque

from ottla.runtime.disk import Disk

log = logging.getLogger(__name__)


class DelayedRemoval:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: deque[tuple[int, str]] = deque()
        self._dirs: deque[tuple[int, str]] = deque()

    def add_file(self, due_ms: int, path: str) -> None:
        self._files.append((due_ms, path))

    def add_dir(self, due_ms: int, path: str) -> None:
        self._dirs.append((due_ms, path))

    def take_due(self, now_ms: int) -> tuple[list[str], list[str]]:
        """(files, directories) whose time has come; whoever takes them removes them."""
        return self._take(self._files, now_ms), self._take(self._dirs, now_ms)

    def _take(self, waiting: deque[tuple[int, str]], now_ms: int) -> list[str]:
        due = [path for due_ms, path in waiting if due_ms <= now_ms]
        if due:
            left = [entry for entry in waiting if entry[0] > now_ms]
            waiting.clear()
            waiting.extend(left)
        return due

    def remove(self, files: list[str], dirs: list[str]) -> None:
        """Unlinking a large file takes a while: this is for another thread."""
        for path in files:
            # Its directory may have been deleted meanwhile, or be right now.
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                log.error("%s could not be removed, which the next start will: %s", path, error)
        for path in dirs:
            self._disk.remove_tree(path)
