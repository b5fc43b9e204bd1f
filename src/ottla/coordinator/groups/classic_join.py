"""JoinGroup to a classic group: new members, returning ones, static ones that replace their former selves."""

from __future__ import annotations

from collections.abc import Callable

from ottla.coordinator.groups.classic import SESSION, ClassicRebalance
from ottla.coordinator.groups.classic_group import ClassicGroup, ClassicMember, State, pending_bytes
from ottla.coordinator.groups.commands import UNKNOWN_MEMBER, JoinReply, JoinRequest, SyncReply
from ottla.coordinator.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.coordinator.host.journal import Ticket
from ottla.coordinator.host.timers import Timer
from ottla.wire.errors import (
    ErrorCode,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    UnknownMemberId,
)


class ClassicJoin:
    def __init__(self, rebalance: ClassicRebalance, new_id: Callable[[], str]) -> None:
        self._rebalance = rebalance
        self._journal = rebalance.journal
        self._timers = rebalance.timers
        self._new_id = new_id

    def new_group(self, request: JoinRequest) -> ClassicGroup:
        """For someone who may found one. It exists once that member has joined."""
        if request.member_id != UNKNOWN_MEMBER:
            raise UnknownMemberId(f"there is no group {request.group_id}; join without a member id")
        group = ClassicGroup(request.group_id, self._journal.now.wall_ms)
        _check_protocols(group, request)
        self._check_memory(group, request)
        return group

    def join(self, group: ClassicGroup, request: JoinRequest, ticket: Ticket) -> None:
        _check_protocols(group, request)
        if self._is_full(group, request):
            self._reject(group, request.member_id, ticket)
            return
        try:
            self._check_memory(group, request)
        except GroupMaxSizeReached:
            if request.member_id in group.members:
                # It has its place, and may keep it with what it said before.
                raise
            self._reject(group, request.member_id, ticket)
            return
        if group.group_id not in self._rebalance.groups.by_id:
            self._rebalance.groups.by_id[group.group_id] = group
            self._rebalance.store(group)
        if request.member_id == UNKNOWN_MEMBER:
            self._join_new(group, request, ticket)
        elif request.member_id in group.pending_joins:
            self._add(group, request, request.member_id, ticket)
        else:
            self._join_existing(group, request, ticket)

    def _is_full(self, group: ClassicGroup, request: JoinRequest) -> bool:
        size_max = self._rebalance.settings.group_max_size
        if request.instance_id is not None and request.instance_id in group.static_members:
            return False  # it takes its own place
        member = group.members.get(request.member_id)
        if group.state is State.PREPARING:
            # Those who have joined count, so that a group over a lowered limit sheds its last to return.
            return (member is None or member.join_ticket is None) and group.joined_count >= size_max
        return member is None and len(group.members) >= size_max

    def _check_memory(self, group: ClassicGroup, request: JoinRequest) -> None:
        current_id = group.static_members.get(request.instance_id or "", request.member_id)
        current = group.members.get(current_id)
        member = _member(request, request.member_id)
        more_bytes = member.size_bytes
        if current is not None:
            # Until it is replaced, its assignment stays.
            more_bytes -= current.size_bytes - len(current.assignment)
        elif request.member_id in group.pending_joins:
            more_bytes -= pending_bytes(request.member_id)
        memory, now = self._rebalance.memory, self._journal.now
        memory.check(group.group_id, group.size_bytes, more_bytes, now)
        protocol = group.protocol_name
        if (
            current is not None
            and request.member_id == UNKNOWN_MEMBER
            and group.state is State.STABLE
            and any(name == protocol for name, _ in request.protocols)
        ):
            # It takes its former place at once, and the group is stored.
            others = [other for other in group.members.values() if other is not current]
            stored_bytes = member.stored_bytes(protocol or "", current.assignment) + sum(
                other.stored_bytes(protocol or "", other.assignment) for other in others
            )
            memory.check_record(group.group_id, stored_bytes, now)

    def _reject(self, group: ClassicGroup, member_id: str, ticket: Ticket) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalance.remove(group, member)
        group.remove(member_id)
        self._journal.reply(ticket, JoinReply(ErrorCode.group_max_size_reached))
        self._rebalance.complete_join_if_all_there(group)

    def _join_new(self, group: ClassicGroup, request: JoinRequest, ticket: Ticket) -> None:
        member_id = f"{request.instance_id or request.client_id}-{self._new_id()}"
        if request.instance_id is not None:
            current = group.static_members.get(request.instance_id)
            if current is None:
                self._add(group, request, member_id, ticket)
            else:
                self._replace(group, group.members[current], request, member_id, ticket)
        elif request.requires_known_member_id:
            group.expect(member_id)
            self._timers.schedule(
                Timer(SESSION, group.group_id, member_id),
                self._journal.now.monotonic_ms + request.session_timeout_ms,
            )
            self._journal.reply(ticket, JoinReply(ErrorCode.member_id_required, member_id))
        else:
            self._add(group, request, member_id, ticket)

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str, ticket: Ticket) -> None:
        if group.is_initial_rebalance:
            group.member_added_during_delay = True
        member = _member(request, member_id)
        member.is_new = True
        member.join_ticket = ticket
        group.add(member, request.protocol_type)
        # It cannot heartbeat while parked, and its connection is not read from: without a limit, clients that
        # give up and come back would leave a trail of ghosts.
        self._rebalance.extend_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.rebalance_or_complete(
            group, f"{member_id} joins ({request.reason or 'no reason given'})"
        )

    def _join_existing(self, group: ClassicGroup, request: JoinRequest, ticket: Ticket) -> None:
        member = group.validate_member(request.member_id, request.instance_id)
        match group.state:
            case State.PREPARING:
                self._update(group, member, request, ticket)
            case State.COMPLETING if member.protocols == request.protocols:
                # The answer to its first join got lost.
                self._journal.reply(ticket, self._rebalance.joined(group, member))
            case State.STABLE if (
                group.leader_id != member.member_id and member.protocols == request.protocols
            ):
                self._journal.reply(ticket, self._rebalance.joined(group, member))
            case State.STABLE | State.COMPLETING:
                # A leader rejoins when topics have changed, which shows in nobody's metadata.
                self._update(group, member, request, ticket)
            case _:
                raise UnknownMemberId(
                    f"group {group.group_id} is {group.state.value}; join without a member id"
                )

    def _update(
        self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, ticket: Ticket
    ) -> None:
        group.renew(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._rebalance.park_join(member, ticket)
        self._rebalance.rebalance_or_complete(
            group, f"{member.member_id} rejoins ({request.reason or 'no reason given'})"
        )

    def _replace(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        request: JoinRequest,
        member_id: str,
        ticket: Ticket,
    ) -> None:
        """A static member restarted: in a stable group it has its partitions back without a rebalance."""
        leader_before = group.leader_id or UNKNOWN_MEMBER
        self._rebalance.answer_join(old, JoinReply(ErrorCode.fenced_instance_id, old.member_id))
        self._rebalance.answer_sync(old, SyncReply(ErrorCode.fenced_instance_id))
        self._timers.cancel(Timer(SESSION, group.group_id, old.member_id))
        member = _member(request, member_id)
        member.assignment = old.assignment
        group.replace_static(old, member)
        self._rebalance.extend_session(group, member)
        if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
            self._rebalance.store(group)
            self._journal.reply(ticket, self._welcome_back(group, member, request, leader_before))
            return
        member.join_ticket = ticket
        # A leader that is assigning does so for the old member id: the new one would get nothing.
        self._rebalance.rebalance_or_complete(
            group, f"static member {request.instance_id} is now {member_id}"
        )

    def _welcome_back(
        self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, leader_before: str
    ) -> JoinReply:
        is_leader = group.leader_id == member.member_id
        if request.can_skip_assignment:
            members = self._rebalance.membership(group) if is_leader else ()
            leader = group.leader_id or UNKNOWN_MEMBER
        else:
            # Naming the leader of before keeps this one from assigning in a group that is stable.
            members, leader = (), leader_before
        return JoinReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=leader,
            members=members,
            skip_assignment=is_leader and request.can_skip_assignment,
        )


def _check_protocols(group: ClassicGroup, request: JoinRequest) -> None:
    if not group.supports(request.protocol_type, request.protocols):
        raise InconsistentGroupProtocol(
            f"group {group.group_id} ({group.protocol_type}) has members that support none of "
            f"{[name for name, _ in request.protocols]} ({request.protocol_type})"
        )


def _member(request: JoinRequest, member_id: str) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )
