"""The group coordinator of one broker: finds the shard of a group, keeps shards in step with leadership."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ottla.config import BrokerConfig, GroupTimes, group_times, share_group_times
from ottla.coordinator.groups.commands import (
    CommitRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    FetchedTopic,
    FetchOffsetsRequest,
    HeartbeatRequest,
    InitializeStates,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Partitions,
    ShareHeartbeatReply,
    ShareHeartbeatRequest,
    SyncReply,
    SyncRequest,
)
from ottla.coordinator.groups.inspection import (
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedShareGroup,
    ListedGroup,
    count_groups,
)
from ottla.coordinator.groups.matching import Matched, Matching
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.questions_under_way import QuestionsUnderWay
from ottla.coordinator.groups.records import decode, encode
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.shard import GroupShard
from ottla.coordinator.groups.share_group import TopicShare
from ottla.coordinator.groups.share_states import ShareStates, StateSummary
from ottla.coordinator.groups.state import TopicOffsets
from ottla.coordinator.host.shard_kind import Command, ShardKind
from ottla.coordinator.host.shard_log import ShardLog
from ottla.coordinator.host.shards import Shards
from ottla.metadata.change import MetadataChange, TopicChange
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.internal_topics import OFFSETS_TOPIC
from ottla.records.markers import Marker
from ottla.records.producer import ProducerIdentity
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import (
    ErrorCode,
    InvalidGroupId,
    InvalidRequest,
    InvalidSessionTimeout,
    KafkaError,
    UnknownTopicOrPartition,
)

log = logging.getLogger(__name__)

Verify: TypeAlias = Callable[[int], Awaitable[ErrorCode]]
"""Whether a partition of the topic is part of the transaction."""

_UNLIMITED = 1 << 62
_INITIALIZED_SECONDS = 1.0
"""A heartbeat waits for states that long."""
_STRING_LENGTH_MAX = 8_000
"""Characters; in UTF-8 they fit into the 32 kB that strings of the stored records may have."""


class GroupCoordinator:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        settings: GroupSettings,
        offsets_log: ShardLog,
        tasks: TaskScope,
        share_states: Callable[[], ShareStates],
        codec: int = 0,
    ) -> None:
        self._runtime = runtime
        self._share_states = share_states
        self._tasks = tasks
        self._settings = settings
        self._config: BrokerConfig | None = None
        self._times = self._share_times = settings.consumer_times
        self._image = MetadataImage()
        memory = GroupMemory(settings, self._size_bytes, self._record_bytes_max)
        self._matching = Matching(runtime.clock, lambda: self._image.topics)
        kind = ShardKind(
            topic=OFFSETS_TOPIC,
            noun="groups",
            remedy="look at the groups with ottla consumer-groups --describe, and set offsets that went back "
            "with --reset-offsets",
            log=offsets_log,
            new=lambda: GroupShard(
                settings, self._image, self._new_id, self._times_of, memory, self._share_times_of
            ),
            loaded=lambda shard, now: shard.loaded(self._image, now),
            encode=encode,
            decode=decode,
            codec=codec,
        )
        self._log = offsets_log
        self._codec = codec
        self._shards = Shards(kind, node_id, runtime.clock, tasks)
        self._questions = QuestionsUnderWay()

    # --- life

    def apply(self, change: MetadataChange) -> None:
        """Leadership and topics as of now; the partitions themselves are there already."""
        new = self._image = change.after
        if not change.topics:
            return
        self._shards.follow(new)
        changed, deleted = _changes(change.topics)
        if changed:
            for hosted in self._shards:
                hosted.notify(lambda shard, now: shard.topics_changed(new, changed, deleted, now))

    def update_config(self, config: BrokerConfig) -> None:
        """The settings that can be changed while groups are in use."""
        self._config = config
        self._times, self._share_times = group_times(config, {}), share_group_times(config, {})

    def _times_of(self, group_id: str) -> GroupTimes:
        own = self._image.config(ResourceType.GROUP, group_id)
        return group_times(self._config, own) if own and self._config is not None else self._times

    def _share_times_of(self, group_id: str) -> GroupTimes:
        own = self._image.config(ResourceType.GROUP, group_id)
        return share_group_times(self._config, own) if own and self._config is not None else self._share_times

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._runtime.random.getrandbits(128), version=4))

    def _size_bytes(self) -> int:
        shards = (hosted.shard for hosted in self._shards)
        return sum(shard.groups.size_bytes for shard in shards if shard is not None)

    def _record_bytes_max(self) -> int:
        # What is compressed may be a fraction of its size, which only compressing it tells.
        return _UNLIMITED if self._codec else min(map(self._log.batch_bytes_max, self._shards.loaded()))

    def close(self) -> None:
        self._shards.close()

    async def wait_loaded(self) -> None:
        await self._shards.wait_loaded()

    def partition_for(self, group_id: str) -> int:
        """Raises CoordinatorNotAvailable until the topic exists."""
        return self._shards.partition_for(group_id)

    def future_partition_for(self, group_id: str) -> int:
        """The same, whether or not somebody has asked for the topic to be created."""
        return self._shards.partition_for(group_id, self._settings.offsets_partitions)

    def _submit(self, group_id: str, command: Command[GroupShard]) -> asyncio.Future[Any]:
        _check_lengths(group_id)
        return self._shards.submit(group_id, command)

    # --- commands; all raise KafkaError

    async def join(self, request: JoinRequest) -> JoinReply:
        _check_group_id(request.group_id)
        _check_lengths(request.member_id, request.instance_id, request.protocol_type, request.client_id)
        _check_lengths(*(name for name, _ in request.protocols))
        low, high = self._settings.group_min_session_timeout_ms, self._settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session.timeout.ms is {request.session_timeout_ms}; this broker takes {low} to {high} "
                "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        reply: JoinReply = await self._submit(
            request.group_id, lambda shard, ticket, now: shard.join_group(request, ticket, now)
        )
        return reply

    async def sync(self, request: SyncRequest) -> SyncReply:
        _check_group_id(request.group_id)
        reply: SyncReply = await self._submit(
            request.group_id, lambda shard, ticket, now: shard.sync_group(request, ticket, now)
        )
        return reply

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        _check_group_id(request.group_id)
        error: ErrorCode = await self._submit(
            request.group_id, lambda shard, ticket, now: shard.heartbeat(request, ticket, now)
        )
        return error

    async def leave(self, group_id: str, leaving: tuple[LeavingMember, ...]) -> tuple[LeftMember, ...]:
        _check_group_id(group_id)
        left: tuple[LeftMember, ...] = await self._submit(
            group_id, lambda shard, ticket, now: shard.leave_group(group_id, leaving, ticket, now)
        )
        return left

    async def consumer_heartbeat(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatReply:
        _check_lengths(request.member_id, request.instance_id, request.rack_id, request.regex)
        _check_lengths(request.client_id)
        _check_lengths(request.group_id)
        hosted = self._shards.hosting(request.group_id)
        matched: Matched = {}
        if hosted.shard is not None:
            now_ms = int(self._runtime.clock.monotonic() * 1000)
            expressions = hosted.shard.expressions_to_match(request.group_id, request.regex, now_ms)
            if expressions:
                matched = await self._matching.run(expressions)
                hosted = self._shards.hosting(request.group_id)
        reply: ConsumerHeartbeatReply = await hosted.submit(
            lambda shard, ticket, now: shard.consumer_heartbeat(request, ticket, now, matched)
        )
        return reply

    def commit_nowait(self, request: CommitRequest) -> asyncio.Future[list[list[ErrorCode]]]:
        """An error per partition, in the order of the request."""
        return self._submit(
            request.group_id, lambda shard, ticket, now: shard.commit_offsets(request, ticket, now)
        )

    async def commit_transactional(
        self, request: CommitRequest, producer: ProducerIdentity, verify: Verify, *, is_own_epoch: bool
    ) -> list[list[ErrorCode]]:
        """As `commit_nowait`, as part of the producer's transaction; `verify` asks about that.

        Since KIP-890 every transaction has an epoch of its own.
        """
        _check_group_id(request.group_id)
        _check_lengths(request.group_id)
        hosted = self._shards.hosting(request.group_id)
        if not self._log.has_transaction(hosted.partition, producer):
            error = await self._verified(hosted.partition, producer, verify, is_own_epoch)
            if error is not ErrorCode.none:
                return [[error] * len(topic.partitions) for topic in request.topics]
        errors: list[list[ErrorCode]] = await hosted.submit_transactional(
            producer, lambda shard, ticket, now: shard.commit_offsets(request, ticket, now)
        )
        return errors

    async def _verified(
        self, partition: int, producer: ProducerIdentity, verify: Verify, is_own_epoch: bool
    ) -> ErrorCode:
        question = self._questions.begin(partition, producer, is_own_epoch=is_own_epoch)
        try:
            error = await verify(partition)
        finally:
            is_valid = self._questions.finish(question)
        return error if is_valid or error is not ErrorCode.none else ErrorCode.invalid_txn_state

    async def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
        transaction_version: int = 0,
    ) -> None:
        """Of the producer in that partition of the topic: offsets in it are applied, or dropped."""
        hosted = self._shards.of_partition(partition)
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, committed)
        ended = hosted.end_transaction(marker, transaction_version)
        self._questions.end(partition, marker)
        await ended

    async def fetch(self, request: FetchOffsetsRequest) -> list[FetchedTopic]:
        fetched: list[FetchedTopic] = await self._submit(
            request.group_id, lambda shard, ticket, now: shard.fetch_offsets(request, ticket, now)
        )
        return fetched

    async def delete_offsets(
        self, group_id: str, topics: list[tuple[str, list[int]]]
    ) -> list[list[ErrorCode]]:
        _check_group_id(group_id)
        errors: list[list[ErrorCode]] = await self._submit(
            group_id, lambda shard, ticket, now: shard.delete_offsets(group_id, topics, ticket, now)
        )
        return errors

    async def delete_group(self, group_id: str) -> None:
        """The states of a share group go first: without the group nobody would know that there are any."""
        is_share_group = await self._submit(
            group_id, lambda shard, ticket, now: shard.is_share_group(group_id, ticket, now)
        )
        if is_share_group:
            for _, error in (await self.delete_share_states(group_id, None)).values():
                if error is not None:
                    raise error
        await self._submit(group_id, lambda shard, ticket, now: shard.delete_group(group_id, ticket, now))

    # --- share groups

    async def share_heartbeat(self, request: ShareHeartbeatRequest) -> ShareHeartbeatReply:
        _check_lengths(request.member_id, request.rack_id, request.client_id)
        reply = await self._share_heartbeat(request)
        if reply.initialize is None:
            return reply
        # Not lost with the connection: others of the group wait for it, too.
        initialized = self._tasks.spawn(
            self._initialize(reply.initialize), f"initialize-states-of-{request.group_id}"
        )
        # The member need not wait for its next heartbeat to learn what it shall read, if all goes well.
        await asyncio.wait([initialized], timeout=_INITIALIZED_SECONDS)
        later = await self._share_heartbeat(replace(request, member_epoch=reply.member_epoch))
        return replace(later, assignment=reply.assignment) if later.assignment is None else later

    async def _share_heartbeat(self, request: ShareHeartbeatRequest) -> ShareHeartbeatReply:
        reply: ShareHeartbeatReply = await self._submit(
            request.group_id, lambda shard, ticket, now: shard.share_heartbeat(request, ticket, now)
        )
        return reply

    async def _initialize(self, wanted: InitializeStates) -> None:
        """What fails is asked for again with a later heartbeat."""
        done: Partitions = {}
        try:
            done = await self._share_states().initialize(wanted)
        except KafkaError as error:
            log.warning("states of share group %s cannot be initialized now: %s", wanted.group_id, error)
        with contextlib.suppress(KafkaError):
            # Whoever coordinates the group now finds out for itself.
            await self._submit(
                wanted.group_id,
                lambda shard, ticket, now: shard.states_initialized(wanted.group_id, done, ticket, now),
            )

    async def describe_share(self, group_id: str) -> DescribedShareGroup:
        described: DescribedShareGroup = await self._submit(
            group_id, lambda shard, ticket, now: shard.describe_share_group(group_id, ticket, now)
        )
        return described

    async def share_offsets(self, group_id: str, names: Mapping[str, Sequence[int]] | None) -> SharedOffsets:
        """By topic, None for all that the group reads: its id, and by partition how far the group is.

        As in Apache Kafka, nobody asks for a group by its topics: it need not exist, and nor need they.
        """
        _check_group_id(group_id)
        wanted: dict[str, tuple[uuid.UUID | None, list[int]]]
        if names is None:
            shared: Mapping[uuid.UUID, TopicShare] = await self._submit(
                group_id, lambda shard, ticket, now: shard.shared_topics(group_id, ticket, now)
            )
            wanted = {topic.name: (topic_id, sorted(topic.partitions)) for topic_id, topic in shared.items()}
        else:
            known = self._image.topics
            wanted = {
                name: (known[name].id if name in known else None, list(some)) for name, some in names.items()
            }
        offsets: SharedOffsets = {
            name: (topic_id, {index: self._absent(name, index) for index in partitions})
            for name, (topic_id, partitions) in wanted.items()
        }
        asked = {
            topic_id: frozenset(index for index, found in partitions.items() if found == NOT_BEGUN)
            for topic_id, partitions in offsets.values()
            if topic_id is not None
        }
        found = await self._share_states().summarize(group_id, asked)
        with_lag = [key for key, summary in found.items() if _has_lag(summary)]
        ends = await self._share_states().end_offsets(with_lag)
        for topic_id, partitions in offsets.values():
            for index in partitions:
                if topic_id is not None and (key := (topic_id, index)) in found:
                    partitions[index] = _shared_offset(found[key], ends.get(key))
        return offsets

    def _absent(self, name: str, index: int) -> SharedOffset | KafkaError:
        topic = self._image.topics.get(name)
        if topic is not None and topic.partition(index) is None:
            return UnknownTopicOrPartition(f"{name}-{index} does not exist")
        return NOT_BEGUN

    async def alter_share_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> Partitions:
        """Of partitions that exist. Those that were altered."""
        _check_group_id(group_id)
        wanted: InitializeStates = await self._submit(
            group_id, lambda shard, ticket, now: shard.alter_share_offsets(group_id, offsets, ticket, now)
        )
        done = await self._share_states().initialize(wanted)
        await self._submit(
            group_id, lambda shard, ticket, now: shard.states_initialized(group_id, done, ticket, now)
        )
        return done

    async def delete_share_states(
        self, group_id: str, names: Collection[str] | None
    ) -> dict[str, tuple[uuid.UUID, KafkaError | None]]:
        """By topic that there was something of; None: all of them."""
        _check_group_id(group_id)
        topics: dict[str, tuple[uuid.UUID, frozenset[int]]] = await self._submit(
            group_id, lambda shard, ticket, now: shard.begin_forgetting_states(group_id, names, ticket, now)
        )
        errors = await self._share_states().delete(group_id, dict(topics.values()))
        gone = [topic_id for topic_id, error in errors.items() if error is None]
        await self._submit(
            group_id, lambda shard, ticket, now: shard.states_forgotten(group_id, gone, ticket, now)
        )
        return {name: (topic_id, errors[topic_id]) for name, (topic_id, _) in topics.items()}

    # --- what tools see

    async def describe(self, group_id: str) -> DescribedGroup:
        described: DescribedGroup = await self._submit(
            group_id, lambda shard, ticket, now: shard.describe_group(group_id, ticket, now)
        )
        return described

    async def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        described: DescribedConsumerGroup = await self._submit(
            group_id, lambda shard, ticket, now: shard.describe_consumer_group(group_id, ticket, now)
        )
        return described

    async def list(self, states: tuple[str, ...], types: tuple[str, ...]) -> list[ListedGroup]:
        """All groups this broker coordinates."""
        listed: list[ListedGroup] = []
        for hosted in self._shards:
            listed += await hosted.submit(lambda shard, ticket, _: shard.list_groups(states, types, ticket))
        return listed

    def positions(self) -> Sequence[tuple[str, int, TopicOffsets]]:
        """Groups that this broker coordinates and has loaded: how many members each has, and how far it has
        read, which may change at every await."""
        shards = (hosted.shard for hosted in self._shards)
        return [
            (group_id, len(group.members), shard.groups.offsets.get(group_id, {}))
            for shard in shards
            if shard is not None
            for group_id, group in shard.groups.by_id.items()
        ]

    def count(self) -> Counter[tuple[str, str]]:
        """Groups that this broker coordinates and has loaded, by type and state."""
        counted: Counter[tuple[str, str]] = Counter()
        for hosted in self._shards:
            if hosted.shard is not None:
                counted += count_groups(hosted.shard.groups)
        return counted


class SharedOffset(NamedTuple):
    """How far a share group is in a partition."""

    leader_epoch: int
    start_offset: int
    lag: int
    """Records that are still to be delivered, or under way; -1 where that is not known."""


NOT_BEGUN = SharedOffset(0, -1, -1)
"""Of a partition that the group has no state for."""
SharedOffsets: TypeAlias = dict[str, tuple[uuid.UUID | None, dict[int, SharedOffset | KafkaError]]]


def _has_lag(summary: StateSummary | KafkaError) -> bool:
    return (
        not isinstance(summary, KafkaError)
        and summary.start_offset >= 0
        and summary.delivery_complete_count >= 0
    )


def _shared_offset(summary: StateSummary | KafkaError, end_offset: int | None) -> SharedOffset | KafkaError:
    if isinstance(summary, KafkaError):
        return summary
    lag = -1
    if end_offset is not None:
        lag = max(end_offset - summary.start_offset - summary.delivery_complete_count, 0)
    return SharedOffset(summary.leader_epoch, summary.start_offset, lag)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("group.id must not be empty")


def _check_lengths(*strings: str | None) -> None:
    for string in strings:
        if string is not None and len(string) > _STRING_LENGTH_MAX:
            raise InvalidRequest(
                f"a string of {len(string)} characters cannot be stored; at most {_STRING_LENGTH_MAX} can"
            )


def _changes(topics: Iterable[TopicChange]) -> tuple[list[str], list[tuple[str, uuid.UUID]]]:
    """Names of topics that came, went or grew; names and ids of those that went."""
    changed, deleted = [], []
    for topic in topics:
        if topic.removed is not None:
            deleted.append((topic.name, topic.removed.id))
        if (
            topic.before is None
            or topic.after is None
            or topic.removed is not None
            or (len(topic.before.partitions) != len(topic.after.partitions))
        ):
            changed.append(topic.name)
    return sorted(changed), sorted(deleted)
