"""One data directory: the logs in it, and whether its disk takes what is written.

A disk without room refuses writes and takes them again when there is some. Any other fault of the medium
takes the directory out of use, with its logs alone: what memory says may then be more than what is on disk,
and only opening the logs anew finds out.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.config import LogConfig
from ottla.log.log import PartitionLog
from ottla.log.names import LOCK_FILE
from ottla.log.types import TopicPartition
from ottla.runtime import Runtime
from ottla.runtime.disk import Disk, Lock
from ottla.wire.errors import StorageError

log = logging.getLogger(__name__)

NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_FAULTS = frozenset(
    (
        errno.EIO,
        errno.EROFS,
        errno.EBADF,
        errno.ENXIO,
        errno.ENODEV,
        errno.ESTALE,
        errno.EUCLEAN,
        errno.ENOMEDIUM,
        errno.EREMOTEIO,
    )
)
_SAID_AGAIN_SECONDS = 30.0
_ROOM_SHARE = 100
_ROOM_BYTES = 64 * 1024 * 1024
"""With so much, or this part of the disk, there is room again for sure; with less, if nothing was refused for
a while: what is left may be enough for small writes and not for large ones, over and over."""


def is_fault(error: OSError) -> bool:
    """Of the medium: trying again would not help."""
    return error.errno in _FAULTS


class Unopened(NamedTuple):
    """A log that could not be opened at start, and what has to be remembered of it until it can be."""

    open: Callable[[LogConfig], PartitionLog]
    recovery_point: int
    start_offset: int | None


class Missing(NamedTuple):
    """What checkpoints say of a log without files; its files may be brought back."""

    recovery_point: int
    high_watermark: int


class LogDir:
    def __init__(self, runtime: Runtime, path: str, on_failure: Callable[[LogDir], None]) -> None:
        self.path = path
        self.lock: Lock | None = None
        """Once the directory is claimed; None of one that could not be."""
        self.clean = False
        self.closed_epoch = -1
        """Of the broker that left it in good order."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.unopened: dict[TopicPartition, Unopened] = {}
        self.missing: dict[TopicPartition, Missing] = {}
        """Logs that have had records here, and whose files were gone at start."""
        self.coming = 0
        """Logs that are being made here."""
        self.written: dict[str, dict[TopicPartition, int]] = {}
        """What each checkpoint file says, to leave it alone while nothing changes."""
        self.failure: str | None = None
        """Why the directory is out of use until the broker starts again."""
        self.is_full = False
        self._disk: Disk = runtime.disk
        self._clock = runtime.clock
        self._on_failure = on_failure
        self._said_at: dict[str, float] = {}
        self._refused_at = 0.0

    def holds(self, partition: TopicPartition) -> bool:
        return partition in self.logs or partition in self.unopened

    def refused(self, error: OSError, doing: str) -> StorageError:
        """What to answer when something could not be written, which is also said and acted upon here."""
        if error.errno in NO_ROOM:
            self.is_full = True
            self._refused_at = self._clock.monotonic()
            self._say(
                "%s has no room left (%s while %s): writes are refused with KAFKA_STORAGE_ERROR until there "
                "is. Delete topics, lower their retention, or make the volume larger; no restart is needed",
                self.path,
                error.strerror,
                doing,
            )
        elif error.errno in _FAULTS or (error.errno == errno.ENOENT and not self.is_there()):
            self.fail(f"{error.strerror or error} while {doing}")
        else:
            self._say("%s: %s while %s; this is refused, and tried again", self.path, error, doing)
        return StorageError(f"{self.path}: {error.strerror or error} while {doing}; check the disk")

    def fail(self, reason: str) -> None:
        """Take the directory out of use."""
        if self.failure is None:
            self.failure = reason
            log.critical(
                "%s is out of use (%s): its %d partitions answer KAFKA_STORAGE_ERROR, all others go on. "
                "Check the disk and its mount, then restart the broker",
                self.path,
                reason,
                len(self.logs),
            )
            self._on_failure(self)

    def fail_at_start(self, error: OSError, doing: str) -> None:
        """Begin without the directory. Who asks for what is in it is answered as if it had failed later."""
        self.failure = f"{error.strerror or error} while {doing}"
        log.critical(
            "%s cannot be used (%s): the broker starts without it. Partitions in it answer "
            "KAFKA_STORAGE_ERROR, all others go on. Check the disk and its mount, then restart the broker",
            self.path,
            self.failure,
        )

    def is_there(self) -> bool:
        """Whether it still is what was locked: neither removed nor unmounted."""
        try:
            return self._disk.exists(f"{self.path}/{LOCK_FILE}")
        except OSError:
            return False

    def notice_room(self) -> None:
        """Say so once there is room again. Blocks for a moment."""
        try:
            total_bytes, usable_bytes = self._disk.usage(self.path)
        except OSError:
            return
        is_roomy = usable_bytes >= min(total_bytes // _ROOM_SHARE, _ROOM_BYTES)
        is_calm = self._clock.monotonic() - self._refused_at >= _SAID_AGAIN_SECONDS
        if usable_bytes > 0 and (is_roomy or is_calm):
            self.is_full = False
            self._said_at.clear()
            log.warning("%s has room again: %d bytes", self.path, usable_bytes)

    def _say(self, text: str, *args: object) -> None:
        now = self._clock.monotonic()
        if now - self._said_at.get(text, -_SAID_AGAIN_SECONDS) >= _SAID_AGAIN_SECONDS:
            self._said_at[text] = now
            log.error(text, *args)
