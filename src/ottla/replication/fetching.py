"""What a follower asks its leader for: one fetch session per leader, with all partitions it leads.

Pure: `next_request` gives what to send, `take` what an answer means for each partition. A partition is named
in a request only when the leader does not know yet what to send of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.client.replica_fetch import FetchPosition, ReplicaFetched
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode

FULL = 0
NO_SESSION = 0
_EPOCH_MAX = (1 << 31) - 1

_SESSION_ERRORS = {
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
    ErrorCode.inconsistent_topic_id,
}


class Followed:
    """A partition in one leader epoch. Another epoch makes another."""

    __slots__ = (
        "is_behind",
        "key",
        "leader_epoch",
        "leader_high_watermark",
        "not_before",
        "partition",
        "sent",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = (partition.topic_id, partition.topic_partition.partition)
        self.leader_epoch = partition.leader_epoch
        self.not_before = float("-inf")
        """After an error it is left alone for a while."""
        self.sent: FetchPosition | None = None
        """What the leader's session has of it."""
        self.is_behind = True
        """It lacks something that is committed; until it has asked, it may."""
        self.leader_high_watermark = 0
        """As of the last answer."""

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows in the same epoch; asked after every wait."""
        partition = self.partition
        return partition.is_follower and partition.leader_epoch == self.leader_epoch

    @property
    def position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(self.leader_epoch, log.next_offset, log.latest_epoch, log.start_offset)


class Request(NamedTuple):
    session: tuple[int, int]
    positions: dict[tuple[UUID, int], FetchPosition]
    forgotten: list[tuple[UUID, int]]


class FetchSession:
    def __init__(self) -> None:
        self._followed: dict[tuple[UUID, int], Followed] = {}
        self._forgotten: dict[tuple[UUID, int], None] = {}
        self._unsent: dict[tuple[UUID, int], Followed] = {}
        """Of which the leader has to be told something."""
        self._session_id = NO_SESSION
        self._epoch = FULL

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._followed.values())

    def add(self, followed: Followed) -> None:
        self._followed[followed.key] = followed
        self._unsent[followed.key] = followed
        self._forgotten.pop(followed.key, None)

    def remove(self, key: tuple[UUID, int]) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._unsent.pop(key, None)
            if followed.sent is not None:
                self._forgotten[key] = None

    def reset(self) -> None:
        """The leader has forgotten the session, or is another process by now."""
        self._session_id, self._epoch = NO_SESSION, FULL
        self._forgotten.clear()
        for key, followed in self._followed.items():
            followed.sent = None
            self._unsent[key] = followed

    def back_off(self, followed: Followed, until: float) -> None:
        """Not asked for until then."""
        followed.not_before = until
        if self._followed.get(followed.key) is followed:
            if followed.sent is not None:
                self._forgotten[followed.key] = None
                followed.sent = None
            self._unsent[followed.key] = followed

    def next_request(
        self, now: float, holds_back: Callable[[Partition], bool] = lambda partition: False
    ) -> Request | None:
        """None while there is nothing to ask for. Of those that are behind, some may be held back."""
        positions = {}
        waiting = {}
        for key, followed in self._unsent.items():
            if followed.not_before > now:
                waiting[key] = followed
                continue
            if followed.is_behind and holds_back(followed.partition):
                waiting[key] = followed
                if followed.sent is not None:
                    # Or the leader would send more of it.
                    self._forgotten[key] = None
                    followed.sent = None
                continue
            position = followed.position
            if position != followed.sent:
                positions[key] = followed.sent = position
                self._forgotten.pop(key, None)
        self._unsent = waiting
        if len(waiting) == len(self._followed) and not positions:
            return None
        forgotten = list(self._forgotten) if self._epoch != FULL else []
        self._forgotten.clear()
        return Request((self._session_id, self._epoch), positions, forgotten)

    def take(
        self, error: int, session_id: int, rows: list[ReplicaFetched]
    ) -> Iterator[tuple[Followed, ReplicaFetched]]:
        """The rows that are still wanted. After each, say with `done` that there may be more to ask for."""
        if error:
            self.reset()
            return
        # A partition that is followed in another epoch by now has asked for nothing yet: the row is what the
        # former epoch asked for, and would hold back the question that puts the leader's session right.
        wanted = [
            (followed, row)
            for row in rows
            if (followed := self._followed.get((row.topic_id, row.partition))) is not None
            and followed.sent is not None
        ]
        if session_id == NO_SESSION:
            # No room for a session: everything has to be said each time.
            self.reset()
        elif self._epoch == FULL:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        for followed, row in wanted:
            if followed.is_current and self._followed.get(followed.key) is followed:
                yield followed, row

    def done(self, followed: Followed) -> None:
        if self._followed.get(followed.key) is followed:
            self._unsent[followed.key] = followed


def is_session_error(code: int) -> bool:
    return ErrorCode(code) in _SESSION_ERRORS
