"""The steps that every change of a consumer group is made of; each writes the records that change it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from ottla.config import GroupTimes
from ottla.coordinator.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, MemberSpec
from ottla.coordinator.groups.commands import Partitions
from ottla.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    target_record,
)
from ottla.coordinator.groups.matching import Matched
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.reconciliation import Reconciliation
from ottla.coordinator.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.state import GroupJournal, Groups
from ottla.coordinator.groups.topics import TopicsView, metadata_hash, partition_counts
from ottla.coordinator.host.timers import Timer, Timers
from ottla.runtime.regex import RegexError, compile_regex

log = logging.getLogger(__name__)

SESSION = "consumer-session"
REBALANCE = "consumer-rebalance"
JOIN = "consumer-join"
"""A classic member in a consumer group has been told to rejoin."""
SYNC = "consumer-sync"
"""A classic member in a consumer group has joined and must fetch its assignment."""
_MEMBER_TIMERS = (SESSION, REBALANCE, JOIN, SYNC)


class ConsumerRebalance:
    def __init__(
        self,
        groups: Groups,
        journal: GroupJournal,
        timers: Timers,
        settings: GroupSettings,
        times_of: Callable[[str], GroupTimes],
        topics: TopicsView,
        memory: GroupMemory,
    ) -> None:
        self.memory = memory
        self.groups = groups
        self.journal = journal
        self.timers = timers
        self.settings = settings
        self.times_of = times_of
        """Of a group; they may change at any time."""
        self.topics = topics
        self.matched: Matched = {}
        """What expressions stand for, where that was found out before the command."""

    # --- members

    def put_metadata(self, group_id: str, member: ConsumerMember) -> ConsumerGroup:
        self.journal.write(
            ConsumerGroupMemberMetadataKey(group_id, member.member_id), member.to_metadata_record()
        )
        group = self.groups.by_id[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def put_current(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self.journal.write(
            ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member.member_id),
            member.to_current_record(),
        )

    def put_target(self, group: ConsumerGroup, member_id: str, target: Partitions) -> None:
        self.journal.write(
            ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id), target_record(target)
        )

    def remove_member(self, group: ConsumerGroup, member_id: str) -> None:
        self.journal.write(ConsumerGroupCurrentMemberAssignmentKey(group.group_id, member_id), None)
        self.journal.write(ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id), None)
        self.journal.write(ConsumerGroupMemberMetadataKey(group.group_id, member_id), None)
        for kind in _MEMBER_TIMERS:
            self.timers.cancel(Timer(kind, group.group_id, member_id))

    def replace_member(self, group: ConsumerGroup, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """The new process behind an instance id inherits everything but the epoch."""
        target = group.target_of(old.member_id)
        self.remove_member(group, old.member_id)
        new = replace(old, member_id=member_id, epoch=0, previous_epoch=0)
        self.put_metadata(group.group_id, new)
        self.put_target(group, member_id, target)
        self.put_current(group, new)
        return new

    def remove_group(self, group: ConsumerGroup) -> None:
        """Tombstones for everything, members first: replay expects a group to be empty when it goes."""
        for member_id in sorted(group.members.keys() | group.target.keys()):
            self.remove_member(group, member_id)
        for regex in sorted(group.regexes):
            self.journal.write(ConsumerGroupRegularExpressionKey(group.group_id, regex), None)
        self.journal.write(ConsumerGroupTargetAssignmentMetadataKey(group.group_id), None)
        self.journal.write(ConsumerGroupPartitionMetadataKey(group.group_id), None)
        self.journal.write(ConsumerGroupMetadataKey(group.group_id), None)

    # --- epochs

    def refresh_regexes(self, group: ConsumerGroup) -> bool:
        """Resolve expressions that are new or whose topics may have changed. Whether any topics did."""
        subscribed = group.subscribed_regexes
        for regex in sorted(group.regexes.keys() - set(subscribed)):
            self.journal.write(ConsumerGroupRegularExpressionKey(group.group_id, regex), None)
        if not subscribed:
            return False
        now = self.journal.now
        is_due = self.must_match_all(group, now.monotonic_ms)
        unchecked = group.unchecked_topics or ()
        has_changed = False
        for regex in subscribed:
            known = group.regexes.get(regex)
            if known is None or is_due:
                topics = self._matching(regex)
            elif unchecked:
                topics = known.topics.difference(unchecked) | self._matching_of(regex, unchecked)
            else:
                continue
            if known is None or topics != known.topics:
                has_changed = True
                self.journal.write(
                    ConsumerGroupRegularExpressionKey(group.group_id, regex),
                    ConsumerGroupRegularExpressionValue(
                        topics=tuple(sorted(topics)), version=self.topics.offset, timestamp=now.wall_ms
                    ),
                )
        if is_due:
            group.regexes_checked_ms = now.monotonic_ms
        group.unchecked_topics = set()
        return has_changed

    def must_match_all(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether all topics have to be looked at for the expressions of the group."""
        interval_ms = self.settings.consumer_regex_refresh_interval_ms
        return group.unchecked_topics is None or now_ms >= group.regexes_checked_ms + interval_ms

    def _matching(self, regex: str) -> frozenset[str]:
        found = self.matched.get(regex)
        return self._matching_of(regex, self.topics.topics) if found is None else found

    def _matching_of(self, regex: str, names: Iterable[str]) -> frozenset[str]:
        try:
            matcher = compile_regex(regex)
        except RegexError as error:
            # Checked when it was subscribed to; a log carried across may hold what another engine accepts.
            log.error("subscribed expression %r: %s", regex, error)
            return frozenset()
        known = self.topics.topics
        return frozenset(name for name in names if name in known and matcher.matches(name))

    def bump_epoch(self, group: ConsumerGroup, *, force: bool) -> None:
        """A new group epoch if members or subscriptions changed (`force`), or the topics they stand for."""
        if not force and not group.is_metadata_stale:
            return
        group.is_metadata_stale = False
        digest = metadata_hash(self.topics, group.subscribed_topics())
        if force or digest != group.metadata_hash:
            self.put_epoch(group, group.epoch + 1, digest)
        if group.has_legacy_metadata:
            self.journal.write(ConsumerGroupPartitionMetadataKey(group.group_id), None)

    def put_epoch(self, group: ConsumerGroup, epoch: int, digest: int) -> None:
        self.journal.write(
            ConsumerGroupMetadataKey(group.group_id),
            ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=digest),
        )

    def put_assignment_epoch(self, group: ConsumerGroup, epoch: int, timestamp_ms: int) -> None:
        self.journal.write(
            ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            ),
        )

    # --- assignment

    def assign(self, group: ConsumerGroup) -> None:
        """Compute the target assignment if the group has moved on since the last one, which was long enough
        ago: else a later heartbeat does."""
        if group.assignment_epoch >= group.epoch or not self._may_assign(group):
            return
        counts = partition_counts(self.topics, group.subscribed_topics())
        specs = {
            member_id: MemberSpec(
                topics=frozenset(
                    self.topics.topics[name].id
                    for name in group.topics_of(member)
                    if name in self.topics.topics
                ),
                assigned=group.target_of(member_id),
                instance_id=member.instance_id,
            )
            for member_id, member in sorted(group.members.items())
        }
        assignor = ASSIGNORS[group.preferred_assignor(DEFAULT_ASSIGNOR)]
        for member_id, target in assignor(specs, counts).items():
            if member_id not in group.target or target != group.target[member_id]:
                self.put_target(group, member_id, target)
        self.put_assignment_epoch(group, group.epoch, self.journal.now.wall_ms)
        log.info("group %s: new target assignment for epoch %d", group.group_id, group.epoch)

    def _may_assign(self, group: ConsumerGroup) -> bool:
        interval_ms = self.times_of(group.group_id).assignment_interval_ms
        if interval_ms == 0 or group.assignment_timestamp_ms <= 0:
            return True
        age_ms = self.journal.now.wall_ms - group.assignment_timestamp_ms
        # A clock that was set back must not hold up a group.
        return age_ms < 0 or age_ms >= interval_ms

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Partitions | None,
        *,
        has_subscription_changed: bool,
    ) -> ConsumerMember:
        if not has_subscription_changed and member.is_reconciled_to(group.assignment_epoch):
            return member
        step = Reconciliation(
            group.assignment_epoch,
            group.target_of(member.member_id),
            {self.topics.topics[n].id for n in group.topics_of(member) if n in self.topics.topics},
            group.owners,
            owned,
            has_subscription_changed,
        )
        updated = step.step(member)
        if updated == member:
            return member
        self.put_current(group, updated)
        timer = Timer(REBALANCE, group.group_id, member.member_id)
        if updated.classic is None and updated.state is MemberState.UNREVOKED_PARTITIONS:
            deadline_ms = self.journal.now.monotonic_ms + updated.rebalance_timeout_ms
            self.timers.schedule(timer, deadline_ms, updated.epoch)
        else:
            self.timers.cancel(timer)
        return updated

    # --- time-outs

    def extend_session(self, group_id: str, member: ConsumerMember) -> None:
        timeout_ms = (
            self.times_of(group_id).session_timeout_ms
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.timers.schedule(
            Timer(SESSION, group_id, member.member_id), self.journal.now.monotonic_ms + timeout_ms
        )

    def cancel(self, group_id: str, member_id: str, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.timers.cancel(Timer(kind, group_id, member_id))
