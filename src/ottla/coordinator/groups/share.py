"""The share group protocol (KIP-932): everything happens on a member's heartbeat, nothing is parked.

A heartbeat brings changed subscriptions; the group moves to a new epoch where that calls for one, the target
assignment follows, and the member is told it at once. Partitions that have no state yet are to be initialized
by whoever gave the command, and are assigned once that is done. Members that fall silent are fenced.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from ottla.config import GroupTimes
from ottla.coordinator.groups.commands import (
    LEAVE_EPOCH,
    InitializeStates,
    Partitions,
    ShareHeartbeatReply,
    ShareHeartbeatRequest,
)
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.share_assignor import assign_simple
from ottla.coordinator.groups.share_group import (
    ShareGroup,
    ShareMember,
    StatePartitions,
    TopicShare,
    share_target_record,
    with_more,
    without,
)
from ottla.coordinator.groups.state import Group, GroupJournal, Groups
from ottla.coordinator.groups.topics import TopicsView, metadata_hash
from ottla.coordinator.host.timers import Timer, Timers
from ottla.wire.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    NonEmptyGroup,
)

log = logging.getLogger(__name__)

SESSION = "share-session"
ASSIGNOR = "simple"
FROM_SETTING = -1
"""The start offset of a partition of a topic that is new to the group."""
_INITIALIZING_MS = 30_000
"""As Apache Kafka's group.share.initialize.retry.interval.ms."""


class ShareProtocol:
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
        self._groups = groups
        self._journal = journal
        self._timers = timers
        self._settings = settings
        self._times_of = times_of
        self.topics = topics
        self._memory = memory

    # --- heartbeats

    def heartbeat(self, request: ShareHeartbeatRequest) -> ShareHeartbeatReply:
        _validate(request)
        found = self._groups.by_id.get(request.group_id)
        if request.member_epoch == LEAVE_EPOCH:
            group = share_group(found, request.group_id)
            self._leave(group, group.member(request.member_id))
            return ShareHeartbeatReply(request.member_id, LEAVE_EPOCH)
        joined = None if found is None and request.member_epoch == 0 else share_group(found, request.group_id)
        old = self._known_member(joined, request)
        if old is None and joined is not None and len(joined.members) >= self._settings.share_max_size:
            raise GroupMaxSizeReached(
                f"share group {request.group_id} is at its limit of {self._settings.share_max_size} members "
                "(group.share.max.size)"
            )
        member = _updated(old or ShareMember(request.member_id), request)
        # All that can fail comes before the first record: what is written is done.
        self._check_memory(joined, request, member, old)
        if old is None:
            log.info("member %s joins share group %s", request.member_id, request.group_id)
        if old is None or member != old:
            self._journal.write(
                ShareGroupMemberMetadataKey(request.group_id, member.member_id), member.to_metadata_record()
            )
        group = self._group(request.group_id)
        self._bump_epoch(group, force=old is None or old.topics != member.topics)
        self._assign(group)
        member = self._reconcile(group, group.member(member.member_id))
        times = self._times_of(group.group_id)
        self.extend_session(group.group_id, member.member_id, times)
        # Also where the answer with the new epoch may have got lost.
        is_told = request.topics is not None or request.member_epoch != member.epoch
        return ShareHeartbeatReply(
            member.member_id,
            member.epoch,
            times.heartbeat_interval_ms,
            member.assigned if is_told else None,
            self._initialize(group),
        )

    def _known_member(self, group: ShareGroup | None, request: ShareHeartbeatRequest) -> ShareMember | None:
        if request.member_epoch == 0:
            return None if group is None else group.members.get(request.member_id)
        assert group is not None
        member = group.member(request.member_id)
        # The reply that told it the new epoch may have got lost.
        if request.member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"member {member.member_id} of share group {group.group_id} is at epoch {member.epoch}, not "
                f"{request.member_epoch}; rejoin with epoch 0"
            )
        return member

    def _check_memory(
        self,
        group: ShareGroup | None,
        request: ShareHeartbeatRequest,
        member: ShareMember,
        old: ShareMember | None,
    ) -> None:
        if request.topics is None:
            return
        now = self._journal.now
        self._memory.check(
            request.group_id,
            0 if group is None else group.size_bytes,
            member.size_bytes - (0 if old is None else old.size_bytes),
            now,
        )
        self._memory.check_record(request.group_id, member.stored_bytes, now)

    def _group(self, group_id: str) -> ShareGroup:
        return share_group(self._groups.by_id.get(group_id), group_id)

    def extend_session(self, group_id: str, member_id: str, times: GroupTimes | None = None) -> None:
        timeout_ms = (times or self._times_of(group_id)).session_timeout_ms
        self._timers.schedule(
            Timer(SESSION, group_id, member_id), self._journal.now.monotonic_ms + timeout_ms
        )

    # --- leaving

    def _leave(self, group: ShareGroup, member: ShareMember) -> None:
        log.info("member %s leaves share group %s", member.member_id, group.group_id)
        self._remove_member(group, member.member_id)
        self._bump_epoch(group, force=True)
        if group.is_empty:
            self._put_assignment_epoch(group, 0)

    def member_expired(self, group: ShareGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            log.info("member %s of share group %s is fenced: its session expired", member_id, group.group_id)
            self._leave(group, member)

    def _remove_member(self, group: ShareGroup, member_id: str) -> None:
        self._journal.write(ShareGroupCurrentMemberAssignmentKey(group.group_id, member_id), None)
        self._journal.write(ShareGroupTargetAssignmentMemberKey(group.group_id, member_id), None)
        self._journal.write(ShareGroupMemberMetadataKey(group.group_id, member_id), None)
        self._timers.cancel(Timer(SESSION, group.group_id, member_id))

    def remove_group(self, group: ShareGroup) -> None:
        """Tombstones for everything, members first."""
        for member_id in sorted(group.members.keys() | group.target.keys()):
            self._remove_member(group, member_id)
        self._journal.write(ShareGroupStatePartitionMetadataKey(group.group_id), None)
        self._journal.write(ShareGroupTargetAssignmentMetadataKey(group.group_id), None)
        self._journal.write(ShareGroupMetadataKey(group.group_id), None)

    # --- assignment

    def _bump_epoch(self, group: ShareGroup, *, force: bool) -> None:
        if not force and not group.is_stale:
            return
        group.is_stale = False
        digest = metadata_hash(self.topics, group.subscribed_topics)
        if force or digest != group.metadata_hash or self._assignable(group) != _assigned(group):
            self._put_epoch(group, group.epoch + 1, digest)

    def _put_epoch(self, group: ShareGroup, epoch: int, digest: int) -> None:
        self._journal.write(
            ShareGroupMetadataKey(group.group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=digest)
        )

    def _put_assignment_epoch(self, group: ShareGroup, timestamp_ms: int) -> None:
        self._journal.write(
            ShareGroupTargetAssignmentMetadataKey(group.group_id),
            ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=group.epoch, assignment_timestamp=timestamp_ms
            ),
        )

    def _assignable(self, group: ShareGroup) -> dict[uuid.UUID, frozenset[int]]:
        """Partitions of topics that are subscribed to, exist and have a state."""
        found = {}
        for name in group.subscribed_topics:
            topic = self.topics.topics.get(name)
            if topic is not None and (shared := group.states.initialized.get(topic.id)) is not None:
                found[topic.id] = shared.partitions
        return found

    def _assign(self, group: ShareGroup) -> None:
        if group.assignment_epoch >= group.epoch or not self._may_assign(group):
            return
        partitions = self._assignable(group)
        known = self.topics.topics
        subscriptions = {
            member_id: frozenset(known[name].id for name in member.topics if name in known)
            for member_id, member in sorted(group.members.items())
        }
        for member_id, target in assign_simple(subscriptions, group.target, partitions).items():
            if member_id not in group.target or target != group.target[member_id]:
                self._journal.write(
                    ShareGroupTargetAssignmentMemberKey(group.group_id, member_id),
                    share_target_record(target),
                )
        self._put_assignment_epoch(group, self._journal.now.wall_ms)
        log.info("share group %s: new target assignment for epoch %d", group.group_id, group.epoch)

    def _may_assign(self, group: ShareGroup) -> bool:
        interval_ms = self._times_of(group.group_id).assignment_interval_ms
        if interval_ms == 0 or group.assignment_timestamp_ms <= 0:
            return True
        # Such as those whose states had not begun at the assignment a moment ago.
        if self._has_unread(group):
            return True
        age_ms = self._journal.now.wall_ms - group.assignment_timestamp_ms
        # A clock that was set back must not hold up a group.
        return age_ms < 0 or age_ms >= interval_ms

    def _has_unread(self, group: ShareGroup) -> bool:
        """Whether there are partitions that nobody has been assigned."""
        assigned = _assigned(group)
        return any(
            not some <= assigned.get(id_, frozenset()) for id_, some in self._assignable(group).items()
        )

    def _reconcile(self, group: ShareGroup, member: ShareMember) -> ShareMember:
        """Nobody has to give anything up before: leaders of partitions keep their readers apart."""
        if member.epoch == group.assignment_epoch:
            return member
        updated = replace(
            member,
            epoch=group.assignment_epoch,
            previous_epoch=member.epoch,
            assigned=group.target.get(member.member_id, {}),
        )
        self._journal.write(
            ShareGroupCurrentMemberAssignmentKey(group.group_id, member.member_id),
            updated.to_current_record(),
        )
        return updated

    # --- states

    def _initialize(self, group: ShareGroup) -> InitializeStates | None:
        """What has no state yet, unless the share coordinator is being asked for it."""
        now_ms = self._journal.now.monotonic_ms
        if now_ms < group.initializing_until_ms:
            return None
        missing = self._missing(group)
        if not missing:
            return None
        group.initializing_until_ms = now_ms + _INITIALIZING_MS
        if without(missing, group.states.initializing):
            self._put_states(group, group.states.begun(missing))
        return InitializeStates(
            group.group_id,
            group.epoch,
            {
                # Who has read a topic misses nothing of a partition that was added to it.
                topic_id: dict.fromkeys(
                    sorted(topic.partitions), 0 if topic_id in group.states.initialized else FROM_SETTING
                )
                for topic_id, topic in missing.items()
            },
        )

    def _missing(self, group: ShareGroup) -> dict[uuid.UUID, TopicShare]:
        missing = {}
        for name in group.subscribed_topics:
            topic = self.topics.topics.get(name)
            if topic is None:
                continue
            known = group.states.initialized.get(topic.id)
            if known is None or len(known.partitions) < len(topic.partitions):
                missing[topic.id] = TopicShare(name, frozenset(range(len(topic.partitions))))
        return without(missing, group.states.initialized)

    def _put_states(self, group: ShareGroup, states: StatePartitions) -> None:
        self._journal.write(ShareGroupStatePartitionMetadataKey(group.group_id), states.to_record())

    def initialized(self, group_id: str, partitions: Partitions) -> None:
        """The share coordinator has begun these; another of the group's partitions may be asked for now."""
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ShareGroup):
            return
        group.initializing_until_ms = 0
        done = {
            topic_id: TopicShare(self.topics.topic_names[topic_id], some)
            for topic_id, some in partitions.items()
            if some and topic_id in self.topics.topic_names
        }
        if done:
            self._put_states(group, group.states.done(done))

    def topics_deleted(self, topic_ids: Collection[uuid.UUID]) -> None:
        """Their states are forgotten without being asked for."""
        for _, group in sorted(self._groups.by_id.items()):
            if isinstance(group, ShareGroup) and not group.states.topic_ids.isdisjoint(topic_ids):
                self._put_states(group, group.states.forgotten(topic_ids))

    # --- offsets

    def shared_topics(self, group_id: str) -> Mapping[uuid.UUID, TopicShare]:
        """Partitions that have a state."""
        return self._group(group_id).states.initialized

    def alter(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> InitializeStates:
        """The state of each partition is begun anew, in a new epoch. Of partitions that exist."""
        found = self._groups.by_id.get(group_id)
        if found is not None:
            self._check_empty(share_group(found, group_id))
        known = self.topics.topics
        starts = {known[name].id: dict(some) for name, some in offsets.items() if name in known and some}
        epoch = 1 if not isinstance(found, ShareGroup) else found.epoch + 1
        digest = 0 if not isinstance(found, ShareGroup) else found.metadata_hash
        self._journal.write(
            ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=digest)
        )
        group = self._group(group_id)
        shares = {
            known[name].id: TopicShare(name, frozenset(some))
            for name, some in offsets.items()
            if name in known and some
        }
        if shares:
            self._put_states(group, group.states.begun(shares))
        return InitializeStates(group_id, epoch, starts)

    def begin_forgetting(
        self, group_id: str, topics: Collection[str] | None
    ) -> dict[str, tuple[uuid.UUID, frozenset[int]]]:
        """By topic, the partitions whose states are to be deleted. None: of all topics, with the group.

        What an earlier attempt did not come to the end of is part of it.
        """
        group = self._group(group_id)
        self._check_empty(group)
        known = self._deletable(group)
        found: dict[str, tuple[uuid.UUID, frozenset[int]]] = {
            topic.name: (topic_id, topic.partitions)
            for topic_id, topic in known.items()
            if topics is None or topic.name in topics
        }
        if found:
            self._put_states(group, group.states.forgetting([topic_id for topic_id, _ in found.values()]))
        return found

    def _deletable(self, group: ShareGroup) -> dict[uuid.UUID, TopicShare]:
        unfinished = {}
        for topic_id, name in group.states.deleting.items():
            topic = self.topics.topics.get(name)
            if topic is not None and topic.id == topic_id:
                unfinished[topic_id] = TopicShare(name, frozenset(range(len(topic.partitions))))
        return with_more(group.states.all_partitions(), unfinished)

    def forgotten(self, group_id: str, topic_ids: Collection[uuid.UUID]) -> None:
        group = self._groups.by_id.get(group_id)
        if isinstance(group, ShareGroup) and topic_ids:
            self._put_states(group, group.states.forgotten(topic_ids))

    def _check_empty(self, group: ShareGroup) -> None:
        if not group.is_empty:
            raise NonEmptyGroup(f"share group {group.group_id} has members; stop them first")


def share_group(group: Group | None, group_id: str) -> ShareGroup:
    if isinstance(group, ShareGroup):
        return group
    if group is None:
        raise GroupIdNotFound(f"there is no share group {group_id}; join with epoch 0")
    raise GroupIdNotFound(f"group {group_id} is not a share group")


def _assigned(group: ShareGroup) -> dict[uuid.UUID, frozenset[int]]:
    found: dict[uuid.UUID, frozenset[int]] = {}
    for target in group.target.values():
        for topic_id, partitions in target.items():
            found[topic_id] = found.get(topic_id, frozenset()) | partitions
    return found


def _updated(member: ShareMember, request: ShareHeartbeatRequest) -> ShareMember:
    mentioned: dict[str, Any] = {"client_id": request.client_id, "client_host": request.client_host}
    if request.topics is not None:
        mentioned["topics"] = tuple(sorted(set(request.topics)))
    if request.rack_id is not None:
        mentioned["rack_id"] = request.rack_id
    return replace(member, **mentioned)


def _validate(request: ShareHeartbeatRequest) -> None:
    for name, value, is_needed in (
        ("GroupId", request.group_id, True),
        ("MemberId", request.member_id, True),
        ("RackId", request.rack_id, request.rack_id is not None),
    ):
        if is_needed and not (value or "").strip():
            raise InvalidRequest(f"{name} must not be empty")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest(f"MemberEpoch {request.member_epoch} is invalid")
    if request.member_epoch == 0 and not request.topics:
        raise InvalidRequest("SubscribedTopicNames must be given when joining")
