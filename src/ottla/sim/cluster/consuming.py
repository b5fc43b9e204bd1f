"""Consumers: readers of everything, of what is committed, and members of groups of both protocols."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.sim.chaos import requests
from ottla.sim.chaos.session import DOUBTFUL
from ottla.sim.checkers import InvariantViolation, Read, ReadingStarts
from ottla.sim.client import RequestFailed
from ottla.sim.cluster.session import PARTITIONS, PLAIN, TRANSACTIONAL, ClusterSession
from ottla.sim.transaction_checkers import Read as StableRead
from ottla.sim.transactions import read_stable
from ottla.wire.errors import ErrorCode

CLASSIC_GROUP, CONSUMER_GROUP = "classic", "consumers"
SESSION_S = 4.0


class Readers:
    def __init__(self, session: ClusterSession) -> None:
        self._session = session

    async def read(self, topic: str, partition: int) -> None:
        """From the beginning and on, whoever leads."""
        session = self._session
        name = f"reader-{topic}-{partition}"
        chance, client = session.world.random(name), session.client(name)
        where, offset = (topic, partition), 0
        session.history.observe(ReadingStarts(where, 0, name))
        while await session.pause(chance, 0.15):
            try:
                page = await requests.fetch_page(client, topic, partition, offset)
            except OSError:
                continue
            except RequestFailed as error:
                self._check_still_there(where, offset, error)
                continue
            except requests.CorruptBatch as error:
                if session.cluster_mix.rots:
                    # Said by its CRC; another replica has it.
                    session.counts["damaged batches read"] += 1
                    continue
                raise InvariantViolation("CorruptRead", str(error)) from error
            for record in page.records:
                session.history.observe(Read(where, record.offset, record.value or b"", name))
            session.counts["records read along"] += len(page.records)
            offset = page.next_offset

    def _check_still_there(self, where: tuple[str, int], offset: int, error: RequestFailed) -> None:
        self._session.counts[f"fetch: {error.code.name}"] += 1
        if error.code is ErrorCode.offset_out_of_range:
            raise InvariantViolation(
                "SkippedOrNonMonotonicPoll", f"{where} has nothing at {offset}, up to which it was read"
            )

    async def read_committed(self, partition: int) -> None:
        session = self._session
        name = f"stable-{partition}"
        chance, client = session.world.random(name), session.client(name)
        where, offset = (TRANSACTIONAL, partition), 0
        while await session.pause(chance, 0.15):
            try:
                stable = await read_stable(client, *where, offset)
            except OSError:
                continue
            except RequestFailed as error:
                self._check_still_there(where, offset, error)
                continue
            for record in stable.records:
                if record.offset < offset:
                    continue
                session.transactions.observe(StableRead(where, record.offset, record.value or b""))
            offset = stable.next_offset


class Member:
    """Of a group that reads the plain topic: from the committed offset on, committing what it has read."""

    group = ""

    def __init__(self, session: ClusterSession, name: str) -> None:
        self.session = session
        self.name = name
        self.chance = session.world.random(name)
        self.client = session.client(name, timeout_s=6.0)
        self.heart = session.client(f"{name}-heart")
        self.member_id = ""
        self.epoch = -1
        """Or generation."""
        self.positions: dict[int, int] = {}

    async def run(self) -> None:
        while await self.session.pause(self.chance, 0.2):
            try:
                await self.live()
            except (RequestFailed, OSError) as error:
                why = error.code.name if isinstance(error, RequestFailed) else "unanswered"
                self.session.counts[f"{self.group} member: {why}"] += 1
                self.left(error)

    async def live(self) -> None:
        """Join if need be, heartbeat, read a little, commit."""
        raise NotImplementedError

    def left(self, error: Exception) -> None:
        """What to do about a failure."""
        raise NotImplementedError

    async def take(self, partitions: Iterable[int]) -> None:
        """Read those from where the group is."""
        wanted = sorted(partitions)
        self.positions = {at: offset for at, offset in self.positions.items() if at in wanted}
        for partition in wanted:
            if partition not in self.positions:
                where = (PLAIN, partition)
                fetch = self.session.offsets.fetching(self.group, where)
                found = None
                try:
                    offsets = await requests.committed_offsets(self.client, self.group, PLAIN, PARTITIONS)
                    found = offsets[partition]
                finally:
                    self.session.offsets.fetched(fetch, found)
                self.positions[partition] = max(found, 0)
                self.session.group_progress.begins(self.group, where, max(found, 0))

    async def consume(self) -> None:
        for partition, offset in sorted(self.positions.items()):
            where = (PLAIN, partition)
            page = await requests.fetch_page(self.client, *where, offset)
            self.session.counts[f"{self.group} member: records"] += len(page.records)
            self.session.group_progress.read(self.group, where, page.next_offset)
            self.positions[partition] = page.next_offset
            if page.next_offset != offset and self.chance.random() < 0.7:
                await self._commit(partition, page.next_offset)

    async def _commit(self, partition: int, offset: int) -> None:
        where = (PLAIN, partition)
        asked = self.session.offsets.asking(self.group, where, offset)
        try:
            await requests.commit_offset(
                self.client, self.group, *where, offset, generation=self.epoch, member=self.member_id
            )
        except RequestFailed as error:
            if error.code not in DOUBTFUL:
                self.session.offsets.refused(self.group, where, offset)
            raise
        self.session.offsets.acknowledged(self.group, where, offset, asked)
        self.session.counts["offsets committed"] += 1


class ClassicMember(Member):
    group = CLASSIC_GROUP

    async def live(self) -> None:
        if self.epoch < 0:
            await self._join()
        await self._heartbeat()
        await self.consume()

    def left(self, error: Exception) -> None:
        self.epoch = -1
        self.positions.clear()
        if isinstance(error, RequestFailed) and error.code is ErrorCode.unknown_member_id:
            self.member_id = ""

    async def _join(self) -> None:
        module = requests.schema("join_group", 9)
        request = module.JoinGroupRequest(
            group_id=self.group,
            session_timeout=datetime.timedelta(seconds=SESSION_S),
            rebalance_timeout=datetime.timedelta(seconds=3),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(module.JoinGroupRequestProtocol(name="range", metadata=_subscription(PLAIN)),),
        )
        joined = await self.client.send(request)
        if joined.error_code is ErrorCode.member_id_required:
            self.member_id = joined.member_id
            return await self._join()
        requests.check(joined)
        self.member_id = joined.member_id
        members = sorted(member.member_id for member in joined.members)
        syncing = requests.schema("sync_group", 5)
        shares = {
            member: _assignment(PLAIN, range(at, PARTITIONS, len(members)))
            for at, member in enumerate(members)
        }
        synced = await self.client.send(
            syncing.SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=tuple(
                    syncing.SyncGroupRequestAssignment(member_id=member, assignment=share)
                    for member, share in shares.items()
                ),
            )
        )
        requests.check(synced)
        self.epoch = int(joined.generation_id)
        self.session.counts["group: joined"] += 1
        await self.take(_assigned(synced.assignment))
        return None

    async def _heartbeat(self) -> None:
        request = requests.schema("heartbeat", 4).HeartbeatRequest(
            group_id=self.group, generation_id=self.epoch, member_id=self.member_id
        )
        requests.check(await self.heart.send(request))


class ConsumerMember(Member):
    group = CONSUMER_GROUP

    def __init__(self, session: ClusterSession, name: str) -> None:
        super().__init__(session, name)
        self._must_say_all = True
        self._topic_id: UUID | None = None

    async def live(self) -> None:
        if not self.member_id:
            self.member_id = str(UUID(int=self.chance.getrandbits(128)))
        await self._heartbeat()
        if self.epoch > 0:
            await self.consume()

    def left(self, error: Exception) -> None:
        self._must_say_all = True
        fatal = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch, ErrorCode.stale_member_epoch)
        if isinstance(error, RequestFailed) and error.code in fatal:
            self.epoch = -1
            self.positions.clear()

    async def _heartbeat(self) -> None:
        module = requests.schema("consumer_group_heartbeat", 1)
        says_all = self._must_say_all or self.epoch < 0
        owned = None
        if self._topic_id is not None and self.positions:
            owned = (
                module.TopicPartitions(topic_id=self._topic_id, partitions=tuple(sorted(self.positions))),
            )
        request = module.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=max(self.epoch, 0),
            rebalance_timeout=datetime.timedelta(seconds=3),
            subscribed_topic_names=(PLAIN,) if says_all else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=(() if self.epoch < 0 else owned or ()),
        )
        answer = await self.heart.send(request)
        requests.check(answer)
        if self.epoch <= 0 < answer.member_epoch:
            self.session.counts["group: joined"] += 1
        self.epoch = int(answer.member_epoch)
        self._must_say_all = False
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            if topics:
                self._topic_id = topics[0].topic_id
            await self.take(index for topic in topics for index in topic.partitions)


def _text(text: str) -> bytes:
    return struct.pack(f">h{len(text)}s", len(text), text.encode())


def _subscription(topic: str) -> bytes:
    return struct.pack(">hi", 0, 1) + _text(topic) + struct.pack(">i", -1)


def _assignment(topic: str, partitions: Iterable[int]) -> bytes:
    wanted = list(partitions)
    listed = struct.pack(f">i{len(wanted)}i", len(wanted), *wanted)
    return struct.pack(">hi", 0, 1) + _text(topic) + listed + struct.pack(">i", -1)


def _assigned(assignment: Any) -> list[int]:
    data = bytes(assignment)
    if not data:
        return []
    length = struct.unpack_from(">h", data, 6)[0]
    at = 8 + length
    count = struct.unpack_from(">i", data, at)[0]
    return list(struct.unpack_from(f">{count}i", data, at + 4))
