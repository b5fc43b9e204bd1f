"""Share groups at this broker: their members' sessions and the partitions they read, and how those end
together."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence

from ottla.metadata.change import MetadataChange
from ottla.replication.share.in_flight import Acknowledgement
from ottla.replication.share.persister import ShareKey
from ottla.replication.share.sessions import Member, ShareSession, ShareSessions, TopicIdPartition
from ottla.replication.share.settings import SettingsOf
from ottla.replication.share.share_partitions import SharePartitions
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import UnknownTopicOrPartition


class ShareGroups:
    def __init__(
        self,
        partitions: SharePartitions,
        settings_of: SettingsOf,
        sessions: ShareSessions,
        tasks: TaskScope,
    ) -> None:
        self.partitions = partitions
        self.sessions = sessions
        self.settings_of = settings_of
        self._tasks = tasks
        self.is_closed = False
        """The broker stops: nobody is to wait for records any more."""

    def apply(self, change: MetadataChange) -> None:
        self.partitions.apply(change)

    def close(self) -> None:
        self.is_closed = True
        for share in self.partitions:
            share.wake()

    async def acknowledge(
        self, member: Member, of: TopicIdPartition, acknowledgements: Sequence[Acknowledgement]
    ) -> None:
        """Returns when it is stored. Raises KafkaError, and nothing is changed."""
        key = ShareKey(member.group_id, *of)
        self.partitions.led(key)
        found = self.partitions.find(key)
        if found is None:
            raise UnknownTopicOrPartition(
                f"share group {member.group_id} has acquired nothing of partition {of.partition} here"
            )
        await found.acknowledge(member.member_id, acknowledgements)

    def disconnected(self, connection: Hashable) -> None:
        """Whoever was at the other end has nothing acquired any more."""
        for session in self.sessions.disconnected(connection):
            self._tasks.spawn(self.end(session), f"end-of-share-session-{session.member.member_id}")

    async def end(self, session: ShareSession) -> None:
        """Of one that is closed: give back what its member has, and forget a group that nobody is left of."""
        group_id, member_id = session.member
        releases = [share.release(member_id) for share in self.partitions.of_group(group_id)]
        # What cannot be stored is given back when the locks expire.
        await asyncio.gather(*releases, return_exceptions=True)
        if not self.sessions.has_members(group_id):
            self.partitions.forget(group_id)
