"""Members of the classic protocol in a consumer group, while an application is being rolled.

They see a classic group whose generation is their own epoch and whose leader is nobody: the broker assigns.
Nothing is parked; a member that must give something up, or may take something, is told to rejoin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.coordinator.groups.commands import (
    UNKNOWN_MEMBER,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from ottla.coordinator.groups.consumer import ConsumerProtocol, check_room, known_static_member
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember, MemberState
from ottla.coordinator.groups.consumer_rebalance import JOIN, SYNC, ConsumerRebalance
from ottla.coordinator.groups.conversion import Conversion
from ottla.coordinator.groups.embedded import (
    PROTOCOL_TYPE,
    MalformedProtocol,
    Subscription,
    encode_assignment,
    parse_subscription,
    subscription_version,
)
from ottla.coordinator.groups.records import ClassicMemberMetadata, ClassicProtocol
from ottla.coordinator.groups.topics import partitions_by_id
from ottla.coordinator.host.timers import Timer
from ottla.wire.errors import (
    ErrorCode,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)


class ClassicMembers:
    def __init__(
        self,
        rebalance: ConsumerRebalance,
        conversion: Conversion,
        protocol: ConsumerProtocol,
        new_id: Callable[[], str],
    ) -> None:
        self._rebalance = rebalance
        self._conversion = conversion
        self._protocol = protocol
        self._timers = rebalance.timers
        self._settings = rebalance.settings
        self._new_id = new_id

    def join(self, group: ConsumerGroup, request: JoinRequest) -> JoinReply:
        subscription = self._check_join(group, request)
        is_unknown = request.member_id == UNKNOWN_MEMBER
        member_id = f"{request.client_id}-{self._new_id()}" if is_unknown else request.member_id
        if is_unknown and request.instance_id is None and request.requires_known_member_id:
            return JoinReply(ErrorCode.member_id_required, member_id)
        existing = self._existing(group, request)
        joining = _updated(existing or ConsumerMember(member_id), request, subscription)
        self._rebalance.memory.check(
            group.group_id,
            group.size_bytes,
            joining.size_bytes - (0 if existing is None else existing.size_bytes),
            self._rebalance.journal.now,
        )
        self._rebalance.memory.check_record(group.group_id, joining.stored_bytes, self._rebalance.journal.now)
        # When this replaces the last member of the new protocol, the group goes back to the old one.
        is_last_of_protocol = (
            existing is not None
            and existing.classic is None
            and group.classic_count == len(group.members) - 1
            and self._settings.can_downgrade
            and len(group.members) <= self._settings.group_max_size
        )
        if existing is not None and existing.member_id != member_id:
            existing = self._rebalance.replace_member(group, existing, member_id)
        before = existing or ConsumerMember(member_id)
        member = _updated(before, request, subscription)
        if existing is None or member != existing:
            self._rebalance.put_metadata(group.group_id, member)
        has_changed = existing is None or member.topics != before.topics or member.regex != before.regex
        has_new_topics = self._rebalance.refresh_regexes(group)
        self._rebalance.bump_epoch(group, force=has_changed or has_new_topics)
        is_stale = group.assignment_epoch < group.epoch
        if not (is_last_of_protocol and is_stale):
            self._rebalance.assign(group)
            owned = partitions_by_id(self._rebalance.topics, subscription.owned)
            member = self._rebalance.reconcile(group, member, owned, has_subscription_changed=has_changed)
        if is_last_of_protocol:
            self._conversion.downgrade(group, (), rebalance=is_stale)
        else:
            self._rebalance.extend_session(group.group_id, member)
            self._timers.cancel(Timer(JOIN, group.group_id, member_id))
            self._timers.schedule(
                Timer(SYNC, group.group_id, member_id),
                self._rebalance.journal.now.monotonic_ms + member.rebalance_timeout_ms,
            )
        return JoinReply(
            member_id=member_id,
            generation=member.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
        )

    def _check_join(self, group: ConsumerGroup, request: JoinRequest) -> Subscription:
        if not (self._settings.can_upgrade or self._settings.can_downgrade):
            raise InconsistentGroupProtocol(
                f"{group.group_id} is a consumer group and group.consumer.migration.policy is disabled; use "
                "group.protocol=consumer"
            )
        check_room(group, request.member_id, request.instance_id, self._settings.consumer_max_size)
        if not group.supports_classic(request.protocol_type, {name for name, _ in request.protocols}):
            raise InconsistentGroupProtocol(
                f"consumer group {group.group_id} has classic members that support none of "
                f"{[name for name, _ in request.protocols]} ({request.protocol_type})"
            )
        try:
            return parse_subscription(request.protocols[0][1])
        except MalformedProtocol as error:
            raise InconsistentGroupProtocol(
                f"cannot join consumer group {group.group_id}: {error}"
            ) from error

    def _existing(self, group: ConsumerGroup, request: JoinRequest) -> ConsumerMember | None:
        if request.instance_id is None:
            return group.members.get(request.member_id)
        if request.member_id == UNKNOWN_MEMBER:
            return group.static_member(request.instance_id)
        return known_static_member(group, request.member_id, request.instance_id)

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncReply:
        member, classic = self._classic_member(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        protocol = classic.supported_protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol.name,
        ):
            raise InconsistentGroupProtocol(
                f"member {member.member_id} joined with {protocol.name} ({PROTOCOL_TYPE}), not "
                f"{request.protocol_name} ({request.protocol_type})"
            )
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_rejoin(group, member)
            raise RebalanceInProgress(f"group {group.group_id} is rebalancing; rejoin")
        self._timers.cancel(Timer(SYNC, group.group_id, member.member_id))
        self._rebalance.extend_session(group.group_id, member)
        assigned = {topic_id: frozenset(parts) for topic_id, parts in member.assigned.items()}
        return SyncReply(
            ErrorCode.none,
            encode_assignment(subscription_version(protocol.metadata), assigned, self._rebalance.topics),
            PROTOCOL_TYPE,
            protocol.name,
        )

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest) -> ErrorCode:
        member, _ = self._classic_member(group, request.member_id, request.instance_id)
        _check_generation(member, request.generation)
        self._rebalance.extend_session(group.group_id, member)
        must_rejoin = (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS and not group.is_waiting_for_release(member)
            )
        )
        if not must_rejoin:
            return ErrorCode.none
        self._expect_rejoin(group, member)
        return ErrorCode.rebalance_in_progress

    def leave(self, group: ConsumerGroup, leaving: tuple[LeavingMember, ...]) -> tuple[LeftMember, ...]:
        left, gone = [], []
        for item in leaving:
            try:
                gone.append(self._leaving_member(group, item).member_id)
                error = ErrorCode.none
            except KafkaError as reason:
                error = reason.code
            left.append(LeftMember(item.member_id, item.instance_id, error))
        self._protocol.fence(group, gone)
        return tuple(left)

    def _leaving_member(self, group: ConsumerGroup, item: LeavingMember) -> ConsumerMember:
        if item.instance_id is None:
            return group.member(item.member_id)
        if item.member_id == UNKNOWN_MEMBER:
            # An administrator removes a static member by its instance id alone.
            member = group.static_member(item.instance_id)
            if member is not None:
                return member
        return known_static_member(group, item.member_id, item.instance_id)

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[ConsumerMember, ClassicMemberMetadata]:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = known_static_member(group, member_id, instance_id)
        if member.classic is None:
            raise UnknownMemberId(f"member {member_id} of group {group.group_id} uses the consumer protocol")
        return member, member.classic

    def _expect_rejoin(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._timers.schedule_if_absent(
            Timer(JOIN, group.group_id, member.member_id),
            self._rebalance.journal.now.monotonic_ms + member.rebalance_timeout_ms,
        )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"member {member.member_id} is at generation {member.epoch}, not {generation}; rejoin"
        )


def _updated(member: ConsumerMember, request: JoinRequest, subscription: Subscription) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in request.protocols
            ),
        ),
    )
