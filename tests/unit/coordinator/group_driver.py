"""Drives a group shard in simulated time: sends commands, keeps the log, restarts it from there."""

from __future__ import annotations

import io
import struct
import uuid
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from kio.serial import entity_writer

from ottla.coordinator.groups.commands import (
    CommitRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    PartitionCommit,
    SyncReply,
    SyncRequest,
    TopicCommit,
    TopicFetch,
)
from ottla.coordinator.groups.embedded import encode_assignment
from ottla.coordinator.groups.records import decode, encode
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.host.journal import Instant, Outcome
from ottla.wire.errors import ErrorCode, KafkaError

EPOCH_MS = 1_700_000_000_000


@dataclass
class FakeTopic:
    name: str
    id: uuid.UUID
    partitions: tuple[int, ...]


@dataclass
class FakeTopics:
    offset: int = 0
    topics: dict[str, FakeTopic] = field(default_factory=dict)

    @property
    def topic_names(self) -> dict[uuid.UUID, str]:
        return {topic.id: topic.name for topic in self.topics.values()}

    def with_topic(self, name: str, partitions: int) -> FakeTopics:
        known = self.topics.get(name)
        topic_id = known.id if known else uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{self.offset}")
        topic = FakeTopic(name, topic_id, tuple(range(partitions)))
        return FakeTopics(self.offset + 1, {**self.topics, name: topic})

    def without_topic(self, name: str) -> FakeTopics:
        return FakeTopics(self.offset + 1, {k: v for k, v in self.topics.items() if k != name})


def topics(**partitions: int) -> FakeTopics:
    result = FakeTopics()
    for name, count in partitions.items():
        result = result.with_topic(name, count)
    return result


def subscription(*names: str, version: int = 0, owned: dict[str, list[int]] | None = None) -> bytes:
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    fields: dict[str, Any] = {"topics": names, "user_data": None}
    if version >= 1:
        fields["owned_partitions"] = tuple(
            module.TopicPartition(topic=t, partitions=tuple(p)) for t, p in sorted((owned or {}).items())
        )
    if version >= 2:
        fields["generation_id"] = -1
    if version >= 3:
        fields["rack_id"] = None
    buffer = io.BytesIO()
    buffer.write(struct.pack(">h", version))
    entity_writer(module.ConsumerProtocolSubscription)(buffer, module.ConsumerProtocolSubscription(**fields))
    return buffer.getvalue()


def assignment(view: FakeTopics, partitions: dict[str, list[int]]) -> bytes:
    by_id = {view.topics[name].id: frozenset(parts) for name, parts in partitions.items()}
    return encode_assignment(0, by_id, view)


class Driver:
    def __init__(
        self,
        settings: GroupSettings | None = None,
        view: FakeTopics | None = None,
        shard_type: type[GroupShard] = GroupShard,
    ) -> None:
        self.settings = settings or GroupSettings()
        self.topics = view or topics(orders=4)
        self.shard_type = shard_type
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.replies: dict[int, Any] = {}
        self.tickets = 0
        self.ids = 0
        self.shard = self._load()

    def _new_id(self) -> str:
        self.ids += 1
        return f"id{self.ids:04}"

    def _load(self) -> GroupShard:
        shard = self.shard_type(self.settings, self.topics, self._new_id)
        for key, value in self.log:
            shard.replay(*decode(key, value))
        self.shard = shard
        self.take(shard.loaded(self.topics, self.instant))
        return shard

    def restart(self) -> None:
        """As a broker that was killed: parked requests are gone with it."""
        self.shard = self._load()

    def compact(self) -> None:
        last = {key: index for index, (key, _) in enumerate(self.log)}
        self.log = [
            entry for index, entry in enumerate(self.log) if last[entry[0]] == index and entry[1] is not None
        ]

    @property
    def instant(self) -> Instant:
        return Instant(EPOCH_MS + self.now_ms, self.now_ms)

    def take(self, outcome: Outcome) -> None:
        self.log += [encode(key, value) for key, value in outcome.records]
        for ticket, reply in outcome.replies:
            assert ticket not in self.replies, f"ticket {ticket} is answered twice"
            self.replies[ticket] = reply

    def advance(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(deadline_ms, self.now_ms)
            self.take(self.shard.tick(self.instant))
        self.now_ms = until_ms

    def set_topics(self, view: FakeTopics) -> None:
        old, self.topics = self.topics, view
        changed = [
            name for name in {*old.topics, *view.topics} if old.topics.get(name) != view.topics.get(name)
        ]
        deleted = [
            (name, topic.id)
            for name, topic in old.topics.items()
            if name not in view.topics or view.topics[name].id != topic.id
        ]
        self.take(self.shard.topics_changed(view, sorted(changed), sorted(deleted), self.instant))

    # --- commands: each gives its ticket, or what it is answered with at once

    def _ticket(self) -> int:
        self.tickets += 1
        return self.tickets

    def result(self, ticket: int) -> Any:
        reply = self.replies[ticket]
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def is_parked(self, ticket: int) -> bool:
        return ticket not in self.replies

    def join(self, group: str = "g", member_id: str = "", **fields: Any) -> int:
        fields.setdefault("protocols", (("range", subscription("orders")),))
        request = JoinRequest(
            group_id=group,
            member_id=member_id,
            protocol_type=fields.pop("protocol_type", "consumer"),
            session_timeout_ms=fields.pop("session_timeout_ms", 10_000),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 60_000),
            client_id=fields.pop("client_id", "client"),
            client_host="/127.0.0.1",
            **fields,
        )
        ticket = self._ticket()
        self.take(self.shard.join_group(request, ticket, self.instant))
        return ticket

    def get_id(self, group: str = "g", **fields: Any) -> str:
        reply: JoinReply = self.result(self.join(group, **fields))
        assert reply.error is ErrorCode.member_id_required
        return reply.member_id

    def sync(self, group: str, member_id: str, generation: int, **fields: Any) -> int:
        ticket = self._ticket()
        request = SyncRequest(group, member_id, generation, **fields)
        self.take(self.shard.sync_group(request, ticket, self.instant))
        return ticket

    def heartbeat(
        self, group: str, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        ticket = self._ticket()
        request = HeartbeatRequest(group, member_id, generation, instance_id)
        self.take(self.shard.heartbeat(request, ticket, self.instant))
        reply = self.replies[ticket]
        return reply.code if isinstance(reply, KafkaError) else reply

    def leave(self, group: str, *leaving: LeavingMember) -> list[ErrorCode]:
        ticket = self._ticket()
        self.take(self.shard.leave_group(group, leaving, ticket, self.instant))
        return [left.error for left in self.result(ticket)]

    def consumer(self, group: str, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
        if epoch == 0:
            fields.setdefault("rebalance_timeout_ms", 60_000)
            fields.setdefault("owned", {})
            if fields.get("regex") is None:
                fields.setdefault("topics", ("orders",))
        ticket = self._ticket()
        request = ConsumerHeartbeatRequest(group, member_id, epoch, **fields)
        self.take(self.shard.consumer_heartbeat(request, ticket, self.instant))
        reply: ConsumerHeartbeatReply = self.result(ticket)
        return reply

    def commit(
        self, group: str, offset: int, partition: int = 0, topic: str = "orders", **fields: Any
    ) -> ErrorCode:
        known = self.topics.topics.get(topic)
        metadata = fields.pop("metadata", None)
        leader_epoch = fields.pop("leader_epoch", -1)
        commit = TopicCommit(
            topic, known.id if known else None, [PartitionCommit(partition, offset, leader_epoch, metadata)]
        )
        ticket = self._ticket()
        self.take(self.shard.commit_offsets(CommitRequest(group, [commit], **fields), ticket, self.instant))
        reply = self.replies[ticket]
        return reply.code if isinstance(reply, KafkaError) else reply[0][0]

    def fetch(self, group: str, partition: int = 0, topic: str = "orders", **fields: Any) -> int | None:
        known = self.topics.topics.get(topic)
        ticket = self._ticket()
        request = FetchOffsetsRequest(
            group, [TopicFetch(topic, known.id if known else None, [partition])], **fields
        )
        self.take(self.shard.fetch_offsets(request, ticket, self.instant))
        value = self.result(ticket)[0].partitions[0][1]
        return None if value is None else value.offset

    def call(self, command: str, *args: Any) -> Any:
        ticket = self._ticket()
        self.take(getattr(self.shard, command)(*args, ticket, self.instant))
        return self.result(ticket)


@dataclass
class StableMember:
    member_id: str
    generation: int
    assignment: bytes


def stabilise(driver: Driver, *members: str, group: str = "g", **fields: Any) -> dict[str, StableMember]:
    """Join all of these, let the leader hand each its own id as assignment, sync all."""
    joins = {m: driver.join(group, m, **fields) for m in members}
    for _ in range(50):
        if any(driver.is_parked(ticket) for ticket in joins.values()):
            driver.advance(max(driver.settings.group_initial_rebalance_delay_ms, 1))
    replies: dict[str, JoinReply] = {m: driver.result(ticket) for m, ticket in joins.items()}
    leader = next(reply.leader for reply in replies.values())
    syncs = {
        m: driver.sync(
            group,
            m,
            reply.generation,
            assignments=tuple((x, x.encode()) for x in replies) if m == leader else (),
        )
        for m, reply in replies.items()
    }
    results: dict[str, SyncReply] = {m: driver.result(ticket) for m, ticket in syncs.items()}
    return {m: StableMember(m, replies[m].generation, results[m].assignment) for m in members}
