"""What must reach the disk before the recovery point may move on."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence

from ottla.runtime.disk import Disk, File


class SyncFailed(OSError):
    """The kernel may have dropped what it could not write: memory is no longer what is on disk."""


class Unsynced:
    """Files and directories written since the last sync. The log files themselves are found by offset."""

    __slots__ = ("dirs", "paths")

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.dirs: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.paths or self.dirs)

    def take(self) -> Unsynced:
        taken = Unsynced()
        taken.paths, self.paths = self.paths, []
        taken.dirs, self.dirs = self.dirs, []
        return taken

    def move(self, source: str, target: str) -> None:
        """What was below one path is now below another."""
        self.paths = [
            target + path.removeprefix(source) if path.startswith(f"{source}/") else path
            for path in self.paths
        ]
        self.dirs = [target if path == source else path for path in self.dirs]

    def put_back(self, taken: Unsynced) -> None:
        """The sync failed."""
        self.paths = taken.paths + self.paths
        self.dirs = taken.dirs + self.dirs


def sync_files(
    disk: Disk, logs: Sequence[File], others: Unsynced, replacements: Sequence[tuple[str, bytes]]
) -> None:
    """Blocks; for another thread. Retention, truncation or the end of the topic may be faster: what is gone
    needs no syncing."""
    for path, data in replacements:
        with contextlib.suppress(FileNotFoundError):
            disk.replace_file(path, data)
    for path in dict.fromkeys(others.paths):
        with contextlib.suppress(FileNotFoundError), contextlib.closing(disk.open(path)) as file:
            file.sync()
    for log in logs:
        try:
            log.sync()
        except OSError as error:
            # Whatever the reason: a second try would succeed without what the kernel has dropped.
            raise SyncFailed(errno.EIO, f"records could not be synced: {error}") from error
    for directory in dict.fromkeys(others.dirs):
        with contextlib.suppress(FileNotFoundError):
            disk.sync_dir(directory)
