"""One partition of `__consumer_offsets`: all groups whose ids hash to it, as one deterministic state machine.

A command takes a ticket and gives an outcome: records to append and replies to release once those are
committed. The ticket may come back with a later outcome, as when a JoinGroup waits for other members; every
ticket comes back exactly once, unless the shard is dropped. State is what replaying the records gives;
besides it there are only deadlines, parked requests, and a rebalance of a classic group that is under way,
all of which a fresh shard does without.

No command leaves half a change behind: it either raises before its first record or does not raise at all. An
append that fails means that state is ahead of the log, and the shard must be dropped and loaded again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ottla.config import GroupTimes
from ottla.coordinator.groups import classic, consumer_rebalance, share
from ottla.coordinator.groups.classic import ClassicProtocol, ClassicRebalance
from ottla.coordinator.groups.classic_group import ClassicGroup, State
from ottla.coordinator.groups.classic_join import ClassicJoin
from ottla.coordinator.groups.classic_members import ClassicMembers
from ottla.coordinator.groups.commands import (
    CommitRequest,
    ConsumerHeartbeatRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Partitions,
    ShareHeartbeatRequest,
    SyncRequest,
)
from ottla.coordinator.groups.consumer import ConsumerProtocol
from ottla.coordinator.groups.consumer_group import ConsumerGroup, MemberState
from ottla.coordinator.groups.consumer_rebalance import ConsumerRebalance
from ottla.coordinator.groups.conversion import Conversion
from ottla.coordinator.groups.inspection import (
    describe_classic,
    describe_consumer,
    describe_share,
    list_groups,
)
from ottla.coordinator.groups.matching import Matched
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.offsets import Offsets
from ottla.coordinator.groups.records import GroupMetadataKey, Key, Value
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.share import ShareProtocol
from ottla.coordinator.groups.share_group import ShareGroup
from ottla.coordinator.groups.state import Group, GroupJournal, Groups
from ottla.coordinator.groups.topics import TopicsView
from ottla.coordinator.host.journal import Instant, Outcome, Ticket
from ottla.coordinator.host.timers import Timer, Timers
from ottla.records.batch import NO_PRODUCER_ID
from ottla.wire.errors import ErrorCode, InconsistentGroupProtocol, NonEmptyGroup, UnknownMemberId

EXPIRY = "offset-expiry"


class GroupShard:
    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicsView,
        new_id: Callable[[], str],
        times_of: Callable[[str], GroupTimes] | None = None,
        memory: GroupMemory | None = None,
        share_times_of: Callable[[str], GroupTimes] | None = None,
    ) -> None:
        """`times_of` a group, where groups have settings of their own; `memory` that shards share."""
        if times_of is None:
            times_of = _same_for_all(settings.consumer_times)
        self.groups = Groups()
        if memory is None:
            memory = GroupMemory(settings, lambda: self.groups.size_bytes)
        self.timers = Timers()
        self._settings = settings
        self._journal = GroupJournal(self.groups.replay)
        self._classic = ClassicRebalance(self.groups, self._journal, self.timers, settings, memory)
        self._classic_join = ClassicJoin(self._classic, new_id)
        self._classic_protocol = ClassicProtocol(self._classic)
        self._consumer = ConsumerRebalance(
            self.groups, self._journal, self.timers, settings, times_of, topics, memory
        )
        conversion = Conversion(self._classic, self._consumer)
        self._share = ShareProtocol(
            self.groups, self._journal, self.timers, settings, share_times_of or times_of, topics, memory
        )
        self._consumer_protocol = ConsumerProtocol(self._consumer, conversion, new_id)
        self._classic_members = ClassicMembers(self._consumer, conversion, self._consumer_protocol, new_id)
        self._offsets = Offsets(self.groups, self._journal, settings)

    # --- life

    def replay(self, key: Key, value: Value | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """One record of the log, in order, before `loaded`; with a producer id if of its transaction."""
        self.groups.replay(key, value, producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """The end of a producer's transaction, out of the log or just appended to it."""
        self.groups.end_transaction(producer_id, committed=committed)

    def loaded(self, topics: TopicsView, now: Instant) -> Outcome:
        """All records are in: members have from now on to show that they are alive."""
        self._journal.now = now
        self._consumer.topics = self._share.topics = topics
        for _, group in sorted(self.groups.by_id.items()):
            match group:
                case ClassicGroup():
                    self._resume_classic(group)
                case ConsumerGroup():
                    self._resume_consumer(group, now)
                case ShareGroup():
                    for member_id in group.members:
                        self._share.extend_session(group.group_id, member_id)
        self._schedule_expiry(now)
        return self._journal.take()

    def _resume_classic(self, group: ClassicGroup) -> None:
        for member in group.members.values():
            self._classic.extend_session(group, member)
        if len(group.members) > self._settings.group_max_size:
            self._classic.prepare(group, f"group.max.size is {self._settings.group_max_size} now")

    def _resume_consumer(self, group: ConsumerGroup, now: Instant) -> None:
        for member in group.members.values():
            self._consumer.extend_session(group.group_id, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                self.timers.schedule(
                    Timer(consumer_rebalance.REBALANCE, group.group_id, member.member_id),
                    now.monotonic_ms + member.rebalance_timeout_ms,
                    member.epoch,
                )

    def next_deadline_ms(self) -> int | None:
        """On the monotonic clock; `tick` before it does nothing."""
        return self.timers.next_deadline_ms()

    def tick(self, now: Instant) -> Outcome:
        self._journal.now = now
        while (due := self.timers.pop_due(now.monotonic_ms)) is not None:
            self._expired(*due)
        return self._journal.take()

    def _expired(self, timer: Timer, detail: int) -> None:
        if timer.kind == EXPIRY:
            self._expire_offsets()
            self._schedule_expiry(self._journal.now)
            return
        match self.groups.by_id.get(timer.group):
            case ClassicGroup() as group:
                self._classic_expired(group, timer, detail)
            case ConsumerGroup() as group:
                self._consumer_expired(group, timer, detail)
            case ShareGroup() as group if timer.kind == share.SESSION:
                self._share.member_expired(group, timer.member)

    def _classic_expired(self, group: ClassicGroup, timer: Timer, detail: int) -> None:
        match timer.kind:
            case classic.SESSION:
                self._classic_protocol.session_expired(group, timer.member)
            case classic.JOIN:
                self._classic_protocol.join_expired(group)
            case classic.SYNC:
                self._classic_protocol.sync_expired(group, detail)

    def _consumer_expired(self, group: ConsumerGroup, timer: Timer, detail: int) -> None:
        match timer.kind:
            case consumer_rebalance.REBALANCE:
                self._consumer_protocol.rebalance_expired(group, timer.member, detail)
            case consumer_rebalance.SESSION:
                self._consumer_protocol.member_expired(group, timer.member, "its session expired")
            case consumer_rebalance.JOIN:
                self._consumer_protocol.member_expired(group, timer.member, "it did not rejoin in time")
            case consumer_rebalance.SYNC:
                self._consumer_protocol.member_expired(group, timer.member, "it did not sync in time")

    def topics_changed(
        self, topics: TopicsView, changed: Collection[str], deleted: Collection[tuple[str, Any]], now: Instant
    ) -> Outcome:
        """`changed`: names of topics that came, went or grew; `deleted`: names and ids of those that went."""
        self._journal.now = now
        self._consumer.topics = self._share.topics = topics
        for group in self.groups.by_id.values():
            if isinstance(group, ConsumerGroup | ShareGroup):
                group.note_changes(changed)
        for name, topic_id in deleted:
            self._offsets.forget_topic(name, topic_id)
        self._share.topics_deleted({topic_id for _, topic_id in deleted})
        return self._journal.take()

    # --- commands

    def join_group(self, request: JoinRequest, ticket: Ticket, now: Instant) -> Outcome:
        def join() -> None:
            group = self.groups.by_id.get(request.group_id)
            if isinstance(group, ShareGroup):
                raise InconsistentGroupProtocol(f"group {request.group_id} is a share group")
            if isinstance(group, ConsumerGroup) and not group.is_empty:
                self._journal.reply(ticket, self._classic_members.join(group, request))
            elif isinstance(group, ClassicGroup):
                self._classic_join.join(group, request, ticket)
            else:
                fresh = self._classic_join.new_group(request)
                if group is not None:
                    self._consumer.remove_group(group)
                self._classic_join.join(fresh, request, ticket)

        return self._journal.run(join, ticket, now)

    def sync_group(self, request: SyncRequest, ticket: Ticket, now: Instant) -> Outcome:
        def sync() -> None:
            match self.groups.by_id.get(request.group_id):
                case ClassicGroup() as group:
                    self._classic_protocol.sync(group, request, ticket)
                case ConsumerGroup() as group:
                    self._journal.reply(ticket, self._classic_members.sync(group, request))
                case _:
                    raise UnknownMemberId(f"there is no group {request.group_id}; rejoin")

        return self._journal.run(sync, ticket, now)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, now: Instant) -> Outcome:
        def heartbeat() -> ErrorCode:
            match self.groups.by_id.get(request.group_id):
                case ClassicGroup() as group:
                    return self._classic_protocol.heartbeat(group, request)
                case ConsumerGroup() as group:
                    return self._classic_members.heartbeat(group, request)
                case _:
                    raise UnknownMemberId(f"there is no group {request.group_id}; rejoin")

        return self._journal.run(lambda: self._journal.reply(ticket, heartbeat()), ticket, now)

    def leave_group(
        self, group_id: str, leaving: tuple[LeavingMember, ...], ticket: Ticket, now: Instant
    ) -> Outcome:
        def leave() -> tuple[LeftMember, ...]:
            match self.groups.by_id.get(group_id):
                case ClassicGroup() as group:
                    return self._classic_protocol.leave(group, leaving)
                case ConsumerGroup() as group:
                    return self._classic_members.leave(group, leaving)
                case _:
                    unknown = ErrorCode.unknown_member_id
                    return tuple(LeftMember(m.member_id, m.instance_id, unknown) for m in leaving)

        return self._journal.run(lambda: self._journal.reply(ticket, leave()), ticket, now)

    def consumer_heartbeat(
        self, request: ConsumerHeartbeatRequest, ticket: Ticket, now: Instant, matched: Matched | None = None
    ) -> Outcome:
        """`matched`: of the topics as they are now. Other expressions are matched here, at one go."""
        self._consumer.matched = matched or {}
        try:
            return self._journal.run(
                lambda: self._journal.reply(ticket, self._consumer_protocol.heartbeat(request)), ticket, now
            )
        finally:
            self._consumer.matched = {}

    def expressions_to_match(self, group_id: str, regex: str | None, now_ms: int) -> list[str]:
        """Against all topics, for a heartbeat that brings this one."""
        brought = [regex] if regex else []
        group = self.groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return brought
        known = group.regexes
        if known and self._consumer.must_match_all(group, now_ms):
            return sorted({*brought, *group.subscribed_regexes})
        return [expression for expression in brought if expression not in known]

    def commit_offsets(self, request: CommitRequest, ticket: Ticket, now: Instant) -> Outcome:
        def commit() -> None:
            self._journal.reply(ticket, self._offsets.commit(request))
            if request.producer is not None:
                return
            group = self.groups.by_id.get(request.group_id)
            if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.PREPARING):
                # A commit shows that the member is alive as well as a heartbeat does.
                self._classic.extend_session(group, group.members[request.member_id])

        return self._journal.run(commit, ticket, now)

    def fetch_offsets(self, request: FetchOffsetsRequest, ticket: Ticket, now: Instant) -> Outcome:
        return self._journal.run(
            lambda: self._journal.reply(ticket, self._offsets.fetch(request)), ticket, now
        )

    def delete_offsets(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]], ticket: Ticket, now: Instant
    ) -> Outcome:
        return self._journal.run(
            lambda: self._journal.reply(ticket, self._offsets.delete(group_id, topics)), ticket, now
        )

    def delete_group(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        def delete() -> None:
            group = self.groups.get(group_id)
            if not group.is_empty:
                raise NonEmptyGroup(f"group {group_id} has members; stop them, then delete it")
            self._delete(group)
            self._journal.reply(ticket, None)

        return self._journal.run(delete, ticket, now)

    def list_groups(self, states: Collection[str], types: Collection[str], ticket: Ticket) -> Outcome:
        return Outcome([], [(ticket, list_groups(self.groups, states, types))])

    def describe_group(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        return self._journal.run(
            lambda: self._journal.reply(ticket, describe_classic(self.groups, group_id)), ticket, now
        )

    def describe_consumer_group(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        return self._journal.run(
            lambda: self._journal.reply(
                ticket, describe_consumer(self.groups, group_id, self._consumer.topics)
            ),
            ticket,
            now,
        )

    # --- share groups

    def is_share_group(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        return self._answer(lambda: isinstance(self.groups.get(group_id), ShareGroup), ticket, now)

    def share_heartbeat(self, request: ShareHeartbeatRequest, ticket: Ticket, now: Instant) -> Outcome:
        return self._answer(lambda: self._share.heartbeat(request), ticket, now)

    def states_initialized(
        self, group_id: str, partitions: Partitions, ticket: Ticket, now: Instant
    ) -> Outcome:
        return self._answer(lambda: self._share.initialized(group_id, partitions), ticket, now)

    def describe_share_group(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        return self._answer(lambda: describe_share(self.groups, group_id, self._share.topics), ticket, now)

    def shared_topics(self, group_id: str, ticket: Ticket, now: Instant) -> Outcome:
        return self._answer(lambda: self._share.shared_topics(group_id), ticket, now)

    def alter_share_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]], ticket: Ticket, now: Instant
    ) -> Outcome:
        return self._answer(lambda: self._share.alter(group_id, offsets), ticket, now)

    def begin_forgetting_states(
        self, group_id: str, topics: Collection[str] | None, ticket: Ticket, now: Instant
    ) -> Outcome:
        return self._answer(lambda: self._share.begin_forgetting(group_id, topics), ticket, now)

    def states_forgotten(
        self, group_id: str, topic_ids: Collection[Any], ticket: Ticket, now: Instant
    ) -> Outcome:
        return self._answer(lambda: self._share.forgotten(group_id, topic_ids), ticket, now)

    def _answer(self, answer: Callable[[], Any], ticket: Ticket, now: Instant) -> Outcome:
        return self._journal.run(lambda: self._journal.reply(ticket, answer()), ticket, now)

    # --- expiry

    def _schedule_expiry(self, now: Instant) -> None:
        self.timers.schedule(
            Timer(EXPIRY), now.monotonic_ms + self._settings.offsets_retention_check_interval_ms
        )

    def _expire_offsets(self) -> None:
        for _, group in sorted(self.groups.by_id.items()):
            if isinstance(group, ShareGroup):
                continue  # it has no offsets here, and stays until it is deleted
            if self._offsets.expire(group) and group.is_empty:
                self._delete(group)

    def _delete(self, group: Group) -> None:
        self._offsets.delete_all(group.group_id)
        match group:
            case ClassicGroup():
                for member_id in group.pending_joins:
                    self.timers.cancel(Timer(classic.SESSION, group.group_id, member_id))
                self._journal.write(GroupMetadataKey(group.group_id), None)
            case ConsumerGroup():
                self._consumer.remove_group(group)
            case ShareGroup():
                self._share.remove_group(group)


def _same_for_all(times: GroupTimes) -> Callable[[str], GroupTimes]:
    return lambda group_id: times
