"""Whether files are still there: those removed while open take records as if nothing had happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.config import BrokerConfig
from ottla.log.directory import LogDir
from ottla.log.log import PartitionLog
from ottla.log.types import TopicPartition
from ottla.runtime import Runtime

log = logging.getLogger(__name__)

# For so long, at most, records go into files that somebody removed. It is a call or two of the system.
PRESENCE_INTERVAL_MS = 250

# Logs that are looked for in one round, one after the other.
_CHECKS_MAX = 64


class MetadataDirLost(RuntimeError):
    """The node must stop."""


class Presence:
    def __init__(
        self,
        runtime: Runtime,
        config: Callable[[], BrokerConfig],
        dirs: Sequence[LogDir],
        logs: Mapping[TopicPartition, PartitionLog],
        take_offline: Callable[[TopicPartition, str], None],
    ) -> None:
        """`dirs` and `logs` are those of whoever keeps them, and change."""
        self._disk = runtime.disk
        self._run = runtime.offload.run
        self._config = config
        self._dirs = dirs
        self._logs = logs
        self._take_offline = take_offline
        self._next = 0

    async def check(self) -> None:
        """All directories, and the next few logs."""
        for directory in self._dirs:
            if directory.failure is None and not await self._run(directory.is_there):
                directory.fail("it was removed, or unmounted, while the broker used it")
                if directory.path == self._config().metadata_log_dir:
                    raise MetadataDirLost(
                        f"{directory.path} is gone, and the cluster's metadata with it; mount or restore it"
                    )
        logs = list(self._logs.values())
        first = self._next if self._next < len(logs) else 0
        looked_at = logs[first : first + _CHECKS_MAX]
        self._next = first + _CHECKS_MAX
        paths = [found.segments.active.path for found in looked_at]
        missing = await self._run(lambda: [self._is_missing(path) for path in paths])
        for found, path, is_missing in zip(looked_at, paths, missing, strict=True):
            if isinstance(is_missing, OSError):
                if not found.is_closed:
                    found.files.refused(is_missing, "looking for the files of")
                continue
            # A roll or a deletion meanwhile is no loss.
            if is_missing and not found.is_closed and found.segments.active.path == path:
                reason = f"{path} was removed while the broker used it"
                log.critical(
                    "%s is out of use: %s. Restore %s from a backup, or remove it wholly for an empty log, "
                    "and restart the broker",
                    found.topic_partition,
                    reason,
                    found.dir,
                )
                self._take_offline(found.topic_partition, reason)

    def _is_missing(self, path: str) -> bool | OSError:
        """Blocks. An error says that the disk fails, and not what is on it."""
        try:
            return not self._disk.exists(path)
        except OSError as error:
            return error
