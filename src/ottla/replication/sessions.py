"""What a consumer is reading, remembered between its requests (incremental fetch sessions).

A `FetchSet` keeps a list of the partitions that may have something new. Partitions put themselves on that
list when they change, so a fetch costs what it returns, not the number of partitions it follows. They do so
once: an entry is watching or on the list, and watches again when somebody has looked and found nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from ottla.replication.partition import Partition
from ottla.runtime.clock import Clock
from ottla.wire.errors import ErrorCode

EVICTION_IDLE_SECONDS = 120.0
SESSIONLESS = 0


class FetchEntry:
    """One partition in a fetch."""

    __slots__ = (
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "owner",
        "partition",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, owner: FetchSet, topic: bytes, index: int, partition: Partition | None) -> None:
        self.owner = owner
        self.topic = topic
        self.index = index
        self.partition = partition
        self.offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def partition_changed(self) -> None:
        owner = self.owner
        owner.ready[self] = None
        if owner.on_ready is not None:
            owner.on_ready()


class FetchSet:
    __slots__ = ("entries", "on_ready", "permissions", "ready", "replica_id")

    def __init__(self, replica_id: int = -1) -> None:
        self.replica_id = replica_id
        """Of a follower, which waits for the log to grow; consumers wait for the high watermark."""
        self.entries: dict[tuple[bytes, int], FetchEntry] = {}
        self.ready: dict[FetchEntry, None] = {}
        self.on_ready: Callable[[], None] | None = None
        self.permissions: object = None
        """Those of the client when all entries were looked at for the last time."""

    def put(self, topic: bytes, index: int, partition: Partition | None) -> FetchEntry:
        """The entry for a partition the client mentioned, which makes it worth looking at."""
        key = (topic, index)
        entry = self.entries.get(key)
        if entry is None:
            entry = self.entries[key] = FetchEntry(self, topic, index, partition)
        self.ready[entry] = None
        return entry

    def forget(self, topic: bytes, index: int) -> None:
        entry = self.entries.pop((topic, index), None)
        if entry is not None:
            self.ready.pop(entry, None)
            self._unwatch(entry)

    def _watch(self, entry: FetchEntry) -> None:
        partition = entry.partition
        if partition is not None:
            (partition.watchers if self.replica_id < 0 else partition.end_watchers)[entry] = None

    def _unwatch(self, entry: FetchEntry) -> None:
        partition = entry.partition
        if partition is not None:
            (partition.watchers if self.replica_id < 0 else partition.end_watchers).pop(entry, None)

    def nothing_in(self, entry: FetchEntry) -> None:
        """Somebody looked: there is nothing to read at present."""
        self.ready.pop(entry, None)

    def watch(self) -> None:
        """From here on `on_ready` is called when a partition changes."""
        for entry in self.entries.values():
            self._watch(entry)

    def unwatch(self) -> None:
        for entry in self.entries.values():
            self._unwatch(entry)

    def let_go(self) -> None:
        """Entries and their set hold each other; of what is no session nobody wants anything any more."""
        self.entries.clear()
        self.ready.clear()


class FetchSession(FetchSet):
    __slots__ = ("epoch", "id", "last_used", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now: float, replica_id: int = -1) -> None:
        super().__init__(replica_id)
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used = now

    def nothing_in(self, entry: FetchEntry) -> None:
        self.ready.pop(entry, None)
        self._watch(entry)

    def watch(self) -> None:
        # The others are watching already.
        for entry in self.ready:
            self._watch(entry)


class FetchSessions:
    """The cache of sessions, bounded; the one unused for longest makes room for a new one."""

    def __init__(self, clock: Clock, rng: random.Random, slots_max: int) -> None:
        self._clock = clock
        self._random = rng
        self._slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}  # in order of last use

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, uses_topic_ids: bool, replica_id: int = -1) -> FetchSession | None:
        """None when the cache is full of sessions in use: the client then fetches without one."""
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < EVICTION_IDLE_SECONDS:
                return None
            self.close(oldest.id)
        while True:
            session_id = self._random.randrange(1, 1 << 31)
            if session_id not in self._sessions:
                break
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now, replica_id)
        return session

    def use(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession | ErrorCode:
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.fetch_session_topic_id_error
        session.epoch = 1 if epoch == (1 << 31) - 1 else epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.unwatch()
