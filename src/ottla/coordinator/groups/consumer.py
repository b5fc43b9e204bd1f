"""The consumer group protocol (KIP-848): everything happens on a member's heartbeat, nothing is parked.

A heartbeat brings changed subscriptions and owned partitions; the group moves to a new epoch where that calls
for one, the target assignment follows, and the member is told how to get there. Members that fall silent, or
keep partitions they were asked to give up, are fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeAlias

from ottla.coordinator.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from ottla.coordinator.groups.classic_group import ClassicGroup
from ottla.coordinator.groups.commands import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    Partitions,
)
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, Epochs, MemberState
from ottla.coordinator.groups.consumer_rebalance import JOIN, SYNC, ConsumerRebalance
from ottla.coordinator.groups.conversion import Conversion
from ottla.coordinator.groups.share_group import ShareGroup
from ottla.coordinator.groups.state import Group
from ottla.runtime.regex import RegexError, compile_regex
from ottla.wire.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

log = logging.getLogger(__name__)

_OfConsumers: TypeAlias = ClassicGroup | ConsumerGroup
"""A partition has one reader in these."""


class ConsumerProtocol:
    def __init__(
        self, rebalance: ConsumerRebalance, conversion: Conversion, new_id: Callable[[], str]
    ) -> None:
        self._rebalance = rebalance
        self._conversion = conversion
        self._new_id = new_id

    def heartbeat(self, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatReply:
        _validate(request)
        found = self._rebalance.groups.by_id.get(request.group_id)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(_consumer_group(found, request.group_id), request)
        # All that can fail comes before the first record: what is written is done.
        if isinstance(found, ShareGroup):
            raise GroupIdNotFound(f"group {request.group_id} is a share group, no consumer group")
        _check_regex(request.regex)
        if request.member_epoch > 0:
            group = _consumer_group(found, request.group_id)
            member = _known_member(group, request)
            self._check_memory(group, request, member)
            return self._update(group, request, member)
        check_room(found, request.member_id, request.instance_id, self._rebalance.settings.consumer_max_size)
        returning = None
        if isinstance(found, ConsumerGroup):
            _check_released(found, request)
            returning = found.static_member(request.instance_id) or found.members.get(request.member_id)
        self._check_memory(found, request, returning)
        return self._join(found, request)

    def _check_memory(
        self, group: Group | None, request: ConsumerHeartbeatRequest, old: ConsumerMember | None
    ) -> None:
        if request.topics is None and request.regex is None:
            return
        member = _updated(old or ConsumerMember(request.member_id), request)
        self._rebalance.memory.check(
            request.group_id,
            0 if group is None else group.size_bytes,
            member.size_bytes - (0 if old is None else old.size_bytes),
            self._rebalance.journal.now,
        )
        self._rebalance.memory.check_record(
            request.group_id, member.stored_bytes, self._rebalance.journal.now
        )

    def _join(self, found: _OfConsumers | None, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatReply:
        member_id = request.member_id or self._new_id()
        group = self._own_group(found)
        existing = None
        if group is not None:
            existing = group.static_member(request.instance_id) or group.members.get(member_id)
            if existing is not None and existing.member_id != member_id:
                existing = self._rebalance.replace_member(group, existing, member_id)
        if existing is None:
            log.info("member %s joins consumer group %s", member_id, request.group_id)
        return self._update(group, replace(request, member_id=member_id), existing)

    def _own_group(self, found: _OfConsumers | None) -> ConsumerGroup | None:
        if isinstance(found, ClassicGroup):
            if found.members:
                return self._conversion.upgrade(found)
            # Empty, or about to be: its last member may have left while others were waited for.
            self._conversion.dissolve(found)
            return None
        return found

    def _update(
        self, group: ConsumerGroup | None, request: ConsumerHeartbeatRequest, old: ConsumerMember | None
    ) -> ConsumerHeartbeatReply:
        assignor = DEFAULT_ASSIGNOR if group is None else group.preferred_assignor(DEFAULT_ASSIGNOR)
        before = old or ConsumerMember(request.member_id)
        member = _updated(before, request)
        if group is None or old is None or member != old:
            group = self._rebalance.put_metadata(request.group_id, member)
        if before.classic is not None:
            self._rebalance.cancel(group.group_id, member.member_id, (JOIN, SYNC))
        has_changed = old is None or member.topics != before.topics or member.regex != before.regex
        has_new_topics = self._rebalance.refresh_regexes(group)
        self._rebalance.bump_epoch(
            group,
            force=has_changed or has_new_topics or group.preferred_assignor(DEFAULT_ASSIGNOR) != assignor,
        )
        self._rebalance.assign(group)
        member = self._rebalance.reconcile(group, member, request.owned, has_subscription_changed=has_changed)
        self._rebalance.extend_session(group.group_id, member)
        return ConsumerHeartbeatReply(
            member.member_id,
            member.epoch,
            self._rebalance.times_of(group.group_id).heartbeat_interval_ms,
            # Otherwise the member knows already.
            _partitions(member.assigned) if _is_full(request) or member.assigned != before.assigned else None,
        )

    # --- leaving

    def _leave(self, group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatReply:
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = known_static_member(group, request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            # It keeps its partitions until its session ends, or it is back.
            reset = {topic_id: dict.fromkeys(parts, 0) for topic_id, parts in member.assigned.items()}
            self._rebalance.put_current(
                group, replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=reset, revoking={})
            )
        else:
            log.info("member %s leaves consumer group %s", member.member_id, group.group_id)
            self.fence(group, [member.member_id])
        return ConsumerHeartbeatReply(member.member_id, request.member_epoch)

    def fence(self, group: ConsumerGroup, member_ids: Collection[str]) -> None:
        if not member_ids:
            return
        if self._conversion.can_downgrade(group, member_ids):
            self._conversion.downgrade(group, member_ids, rebalance=True)
            return
        for member_id in sorted(set(member_ids)):
            self._rebalance.remove_member(group, member_id)
        self._rebalance.refresh_regexes(group)
        self._rebalance.bump_epoch(group, force=True)
        if group.is_empty:
            self._rebalance.put_assignment_epoch(group, group.epoch, 0)

    # --- time-outs

    def member_expired(self, group: ConsumerGroup, member_id: str, reason: str) -> None:
        if member_id in group.members:
            log.info("member %s of group %s is fenced: %s", member_id, group.group_id, reason)
            self.fence(group, [member_id])

    def rebalance_expired(self, group: ConsumerGroup, member_id: str, epoch: int) -> None:
        member = group.members.get(member_id)
        if member is not None and member.epoch == epoch:
            self.member_expired(group, member_id, f"it kept partitions to be revoked in epoch {epoch}")


def known_static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"group {group.group_id} has no static member {instance_id}; rejoin")
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"static member {instance_id} of group {group.group_id} is {member.member_id} by now, not "
            f"{member_id}: another consumer has started with the same group.instance.id"
        )
    return member


def check_room(group: _OfConsumers | None, member_id: str, instance_id: str | None, size_max: int) -> None:
    """A static member that comes back takes its own place."""
    if group is None or len(group.members) < size_max or member_id in group.members:
        return
    if instance_id is None or instance_id not in group.static_members:
        raise GroupMaxSizeReached(f"group {group.group_id} is at its limit of {size_max} members")


def _consumer_group(group: Group | None, group_id: str) -> ConsumerGroup:
    if isinstance(group, ConsumerGroup):
        return group
    raise GroupIdNotFound(f"there is no consumer group {group_id}; join with epoch 0")


def _check_released(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> None:
    current = group.static_member(request.instance_id)
    if (
        current is not None
        and current.classic is None
        and current.epoch != LEAVE_STATIC_EPOCH
        and current.member_id != request.member_id
    ):
        raise UnreleasedInstanceId(
            f"static member {request.instance_id} of group {group.group_id} is {current.member_id}: stop "
            "that consumer, or wait for its session to end"
        )


def _known_member(group: ConsumerGroup, request: ConsumerHeartbeatRequest) -> ConsumerMember:
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = known_static_member(group, request.member_id, request.instance_id)
    epoch = request.member_epoch
    # The reply that told it the new epoch may have got lost; then it owns nothing it was not given.
    is_one_behind = epoch == member.previous_epoch < member.epoch
    if epoch != member.epoch and not (is_one_behind and _is_subset(request.owned, member.assigned)):
        raise FencedMemberEpoch(
            f"member {member.member_id} of group {group.group_id} is at epoch {member.epoch}, not {epoch}; "
            "give up all partitions and rejoin with epoch 0"
        )
    if member.state is MemberState.UNKNOWN:
        raise FencedMemberEpoch(
            f"member {member.member_id} of group {group.group_id} is in a state that a newer release wrote; "
            "give up all partitions and rejoin with epoch 0"
        )
    return member


def _is_subset(owned: Partitions | None, assigned: Epochs) -> bool:
    return owned is not None and all(
        partition in assigned.get(topic_id, {}) for topic_id, parts in owned.items() for partition in parts
    )


def _updated(member: ConsumerMember, request: ConsumerHeartbeatRequest) -> ConsumerMember:
    """What the request does not mention stays; most heartbeats mention nothing."""
    mentioned: dict[str, Any] = {}
    if request.topics is not None:
        mentioned["topics"] = tuple(sorted(set(request.topics)))
    if request.regex is not None:
        mentioned["regex"] = request.regex
    if request.rebalance_timeout_ms != -1:
        mentioned["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    for name in ("instance_id", "rack_id", "assignor"):
        if (value := getattr(request, name)) is not None:
            mentioned[name] = value
    if (request.client_id, request.client_host) != (member.client_id, member.client_host):
        mentioned |= {"client_id": request.client_id, "client_host": request.client_host}
    if member.classic is not None:
        mentioned["classic"] = None
    if not mentioned:
        return member
    updated = replace(member, **mentioned)
    return member if updated == member else updated


def _is_full(request: ConsumerHeartbeatRequest) -> bool:
    """Sent on joining and after errors: the member wants to know where it stands."""
    return request.member_epoch == 0 or (
        request.rebalance_timeout_ms != -1
        and (request.topics is not None or request.regex is not None)
        and request.owned is not None
    )


def _partitions(epochs: Epochs) -> Partitions:
    return {topic_id: frozenset(parts) for topic_id, parts in epochs.items() if parts}


def _check_regex(regex: str | None) -> None:
    if regex:
        try:
            compile_regex(regex)
        except RegexError as error:
            raise InvalidRegularExpression(
                f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}"
            ) from error


def _validate(request: ConsumerHeartbeatRequest) -> None:
    epoch = request.member_epoch
    needs_member_id = request.requires_member_id or epoch > 0 or epoch == LEAVE_EPOCH
    for name, value, is_needed in (
        ("GroupId", request.group_id, True),
        ("MemberId", request.member_id, needs_member_id),
        ("InstanceId", request.instance_id, request.instance_id is not None or epoch == LEAVE_STATIC_EPOCH),
        ("RackId", request.rack_id, request.rack_id is not None),
    ):
        if is_needed and not (value or "").strip():
            raise InvalidRequest(f"{name} must not be empty")
    if epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"MemberEpoch {epoch} is invalid")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be given when joining")
        if request.owned is None or request.owned:
            raise InvalidRequest("TopicPartitions must be empty when joining")
        if request.topics is None and request.regex is None:
            raise InvalidRequest("SubscribedTopicNames or SubscribedTopicRegex must be given when joining")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(
            f"assignor {request.assignor} is not supported; supported are {', '.join(sorted(ASSIGNORS))}"
        )
