"""What stands between an open port and one connection too many: open files, and lines in the log."""

from __future__ import annotations

import logging
from collections import Counter

from ottla.runtime import Runtime

log = logging.getLogger(__name__)

COUNT_SECONDS = 1.0
DESCRIPTORS_RESERVED_MAX = 4096
REPORT_SECONDS = 10.0
REPORTS_MAX = 10


class DescriptorQuota:
    """How many connections the limit of open files allows.

    Logs need files for new segments and topics, and must get them: of the descriptors that connections do not
    hold, half stays free for those. Counting what is open takes a moment, so it is done once a second.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._counted_at = float("-inf")
        self._connections_max: int | None = None
        self.limit = 0

    def is_used_up(self, connections: int) -> bool:
        now = self._runtime.clock.monotonic()
        if now - self._counted_at >= COUNT_SECONDS:
            self._counted_at = now
            self.count(connections)
        return self._connections_max is not None and connections >= self._connections_max

    def count(self, connections: int) -> int | None:
        """Connections that may be open while files are as they are; None for any number."""
        descriptors = self._runtime.net.descriptors()
        if descriptors is None:
            self._connections_max = None
        else:
            used, self.limit = descriptors
            free = max(self.limit - (used - connections), 0)
            self._connections_max = free - min(free // 2, DESCRIPTORS_RESERVED_MAX)
        return self._connections_max


class RefusalLog:
    """The first few refusals of a kind, then only how many there were: a flood of them is the usual case."""

    def __init__(self, runtime: Runtime) -> None:
        self._clock = runtime.clock
        self._since = float("-inf")
        self._counts: Counter[str] = Counter()

    def report(self, address: str, kind: str, reason: str) -> None:
        now = self._clock.monotonic()
        if now - self._since >= REPORT_SECONDS:
            for name, count in self._counts.items():
                if count > REPORTS_MAX:
                    log.warning("refused %d more connections because of %s", count - REPORTS_MAX, name)
            self._counts.clear()
            self._since = now
        self._counts[kind] += 1
        if self._counts[kind] <= REPORTS_MAX:
            log.warning("refusing connection from %s: %s", address, reason)
