"""Share sessions: which partitions a member of a share group reads here, remembered between its requests.

A session belongs to a connection, and ends with it at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple
from uuid import UUID

from ottla.wire.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_EPOCH_MAX = (1 << 31) - 1


class Member(NamedTuple):
    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    topic_id: UUID
    partition: int


class ShareSession:
    __slots__ = ("connection", "epoch", "is_closed", "member", "partitions")

    def __init__(self, member: Member, partitions: Iterable[TopicIdPartition], connection: Hashable) -> None:
        self.member = member
        self.partitions = dict.fromkeys(partitions)
        """In the order in which they were named."""
        self.connection = connection
        self.epoch = 1
        self.is_closed = False


class ShareSessions:
    def __init__(self, sessions_max: Callable[[], int], partitions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self.partition_count = 0
        """That all sessions remember together."""
        self._sessions: dict[Member, ShareSession] = {}
        self._by_connection: dict[Hashable, dict[Member, None]] = {}
        self._members: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def has_members(self, group_id: str) -> bool:
        return group_id in self._members

    def open(
        self, member: Member, partitions: Iterable[TopicIdPartition], connection: Hashable
    ) -> ShareSession:
        """In the place of one that the member had."""
        self.close(member)
        if len(self._sessions) >= self._sessions_max():
            raise ShareSessionLimitReached(
                f"this broker has {len(self._sessions)} share sessions, as many as it may "
                "(group.share.max.share.sessions); retry later"
            )
        session = ShareSession(member, partitions, connection)
        self._count(len(session.partitions))
        self._sessions[member] = session
        self._by_connection.setdefault(connection, {})[member] = None
        self._members[member.group_id] = self._members.get(member.group_id, 0) + 1
        return session

    def _count(self, added: int) -> None:
        """All partitions there may be, whether there are such or not: a topic may be heard of later."""
        if added > 0 and self.partition_count + added > self._partitions_max():
            raise ShareSessionLimitReached(
                f"the share sessions of this broker have {self.partition_count} partitions, and may not have "
                f"{added} more (ottla.share.sessions.max.partitions); retry later"
            )
        self.partition_count += added

    def change(
        self,
        session: ShareSession,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> None:
        """All of it, or nothing and ShareSessionLimitReached."""
        partitions = {**session.partitions, **dict.fromkeys(added)}
        for of in forgotten:
            partitions.pop(of, None)
        self._count(len(partitions) - len(session.partitions))
        session.partitions = partitions

    def find(self, member: Member) -> ShareSession:
        session = self._sessions.get(member)
        if session is None:
            raise ShareSessionNotFound(
                f"member {member.member_id} of share group {member.group_id} has no session here; open one "
                "with epoch 0"
            )
        return session

    def use(self, member: Member, epoch: int) -> ShareSession:
        session = self.find(member)
        if session.epoch != epoch:
            raise InvalidShareSessionEpoch(
                f"the session of member {member.member_id} is at epoch {session.epoch}, not {epoch}"
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, member: Member) -> ShareSession | None:
        session = self._sessions.pop(member, None)
        if session is not None:
            session.is_closed = True
            self.partition_count -= len(session.partitions)
            of_connection = self._by_connection[session.connection]
            del of_connection[member]
            if not of_connection:
                del self._by_connection[session.connection]
            left = self._members[member.group_id] - 1
            if left:
                self._members[member.group_id] = left
            else:
                del self._members[member.group_id]
        return session

    def disconnected(self, connection: Hashable) -> list[ShareSession]:
        """Sessions that are closed by that."""
        members = list(self._by_connection.get(connection, ()))
        return [session for member in members if (session := self.close(member)) is not None]
