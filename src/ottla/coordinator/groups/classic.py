"""The classic group protocol: who is in, when a rebalance starts and ends, who has fallen silent.

A rebalance collects JoinGroup requests, parked until everybody is there or the time-out has passed; the
leader then assigns, and everybody's SyncGroup, parked until it has, is answered with what they got. Joining,
the most involved part, is in `classic_join`.
"""

from __future__ import annotations

import logging

from ottla.coordinator.groups.classic_group import ClassicGroup, ClassicMember, State
from ottla.coordinator.groups.commands import (
    UNKNOWN_MEMBER,
    HeartbeatRequest,
    JoinReply,
    LeavingMember,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from ottla.coordinator.groups.memory import GroupMemory
from ottla.coordinator.groups.records import GroupMetadataKey
from ottla.coordinator.groups.settings import GroupSettings
from ottla.coordinator.groups.state import GroupJournal, Groups
from ottla.coordinator.host.journal import Ticket
from ottla.coordinator.host.timers import Timer, Timers
from ottla.wire.errors import ErrorCode, IllegalGeneration, InconsistentGroupProtocol, KafkaError

log = logging.getLogger(__name__)

SESSION = "classic-session"
JOIN = "classic-join"
SYNC = "classic-sync"


class ClassicRebalance:
    """What joining, syncing, leaving and time-outs share: starting, completing and abandoning a rebalance."""

    def __init__(
        self,
        groups: Groups,
        journal: GroupJournal,
        timers: Timers,
        settings: GroupSettings,
        memory: GroupMemory,
    ) -> None:
        self.memory = memory
        self.groups = groups
        self.journal = journal
        self.timers = timers
        self.settings = settings

    # --- parked requests

    def answer_join(self, member: ClassicMember, reply: JoinReply) -> None:
        if member.join_ticket is not None:
            self.journal.reply(member.join_ticket, reply)
            member.join_ticket = None

    def answer_sync(self, member: ClassicMember, reply: SyncReply) -> bool:
        if member.sync_ticket is None:
            return False
        self.journal.reply(member.sync_ticket, reply)
        member.sync_ticket = None
        return True

    def park_join(self, member: ClassicMember, ticket: Ticket) -> None:
        # A client that gave up waiting and asks again: the request it no longer waits for must end too.
        self.answer_join(member, JoinReply(ErrorCode.rebalance_in_progress, member.member_id))
        member.join_ticket = ticket

    # --- rebalance

    def rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance():
            self.prepare(group, reason)
        else:
            self.complete_join_if_all_there(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        if group.state is State.COMPLETING:
            group.assign({})
            for member in group.members.values():
                if self.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress)):
                    self.extend_session(group, member)
        group.pending_syncs.clear()
        self.timers.cancel(Timer(SYNC, group.group_id))
        is_initial = group.is_empty
        log.info(
            "preparing to rebalance group %s from state %s, generation %d: %s",
            group.group_id,
            group.state.value,
            group.generation,
            reason,
        )
        group.transition_to(State.PREPARING, self.journal.now.wall_ms)
        if is_initial:
            # Members of a new group start one after another; one rebalance for all beats one for each.
            group.delay_ms = self.settings.group_initial_rebalance_delay_ms
            group.delay_left_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
            group.member_added_during_delay = False
            self._schedule_join(group, group.delay_ms)
        elif group.have_all_joined():
            self.complete_join(group)
        else:
            self._schedule_join(group, group.rebalance_timeout_ms)

    def _schedule_join(self, group: ClassicGroup, delay_ms: int) -> None:
        self.timers.schedule(Timer(JOIN, group.group_id), self.journal.now.monotonic_ms + delay_ms)

    def complete_join_if_all_there(self, group: ClassicGroup) -> None:
        if group.state is State.PREPARING and not group.is_initial_rebalance and group.have_all_joined():
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Go on with those who joined. Static members keep their place until their session ends."""
        self.timers.cancel(Timer(JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                group.remove(member.member_id)
                self.timers.cancel(Timer(SESSION, group.group_id, member.member_id))
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none came: wait until their sessions end or one does.
            self._schedule_join(group, group.rebalance_timeout_ms)
            return
        group.start_generation(self.journal.now.wall_ms)
        if group.is_empty:
            self.store(group)
            return
        log.info("group %s, generation %d: %d members", group.group_id, group.generation, len(group.members))
        for member in group.members.values():
            self.answer_join(member, self.joined(group, member))
            self.extend_session(group, member)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self.timers.schedule(
            Timer(SYNC, group.group_id),
            self.journal.now.monotonic_ms + group.rebalance_timeout_ms,
            group.generation,
        )

    def joined(self, group: ClassicGroup, member: ClassicMember) -> JoinReply:
        is_leader = group.leader_id == member.member_id
        return JoinReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or UNKNOWN_MEMBER,
            members=self.membership(group) if is_leader else (),
        )

    def membership(self, group: ClassicGroup) -> tuple[tuple[str, str | None, bytes], ...]:
        protocol = group.protocol_name or ""
        return tuple((m.member_id, m.instance_id, m.metadata(protocol)) for m in group.members.values())

    def store(self, group: ClassicGroup) -> None:
        self.journal.persist(GroupMetadataKey(group.group_id), group.to_record())

    def extend_session(self, group: ClassicGroup, member: ClassicMember, timeout_ms: int = 0) -> None:
        self.timers.schedule(
            Timer(SESSION, group.group_id, member.member_id),
            self.journal.now.monotonic_ms + (timeout_ms or member.session_timeout_ms),
        )

    def remove(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Whatever it still waits for ends here: the client may rejoin if it is alive."""
        self.answer_join(member, JoinReply(ErrorCode.unknown_member_id))
        self.answer_sync(member, SyncReply(ErrorCode.unknown_member_id))
        self.timers.cancel(Timer(SESSION, group.group_id, member.member_id))
        group.remove(member.member_id)


class ClassicProtocol:
    """SyncGroup, Heartbeat, LeaveGroup and the time-outs."""

    def __init__(self, rebalance: ClassicRebalance) -> None:
        self._rebalance = rebalance
        self._journal = rebalance.journal
        self._timers = rebalance.timers

    def sync(self, group: ClassicGroup, request: SyncRequest, ticket: Ticket) -> None:
        member = group.validate_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        _check_protocol(group, request)
        match group.state:
            case State.PREPARING:
                self._journal.reply(ticket, SyncReply(ErrorCode.rebalance_in_progress))
            case State.COMPLETING:
                assignments = dict(request.assignments) if group.leader_id == member.member_id else None
                if assignments is not None:
                    self._check_room(group, assignments)
                self._rebalance.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress))
                member.sync_ticket = ticket
                self._synced(group, member)
                if assignments is not None:
                    self._assign(group, assignments)
            case State.STABLE:
                self._synced(group, member)
                self._journal.reply(ticket, _assigned(group, member))
            case _:
                self._journal.reply(ticket, SyncReply(ErrorCode.unknown_member_id))

    def _synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            self._timers.cancel(Timer(SYNC, group.group_id))

    def _check_room(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        more_bytes = sum(
            len(assignments.get(member.member_id, b"")) - len(member.assignment)
            for member in group.members.values()
        )
        memory, now = self._rebalance.memory, self._journal.now
        memory.check(group.group_id, group.size_bytes, more_bytes, now)
        stored_bytes = sum(
            member.stored_bytes(group.protocol_name or "", assignments.get(member.member_id, b""))
            for member in group.members.values()
        )
        memory.check_record(group.group_id, stored_bytes, now)

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        group.assign(assignments)
        group.transition_to(State.STABLE, self._journal.now.wall_ms)
        self._rebalance.store(group)
        for member in group.members.values():
            if self._rebalance.answer_sync(member, _assigned(group, member)):
                # Its session may have run out unnoticed while the request was parked.
                self._rebalance.extend_session(group, member)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
        member = group.validate_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        self._rebalance.extend_session(group, member)
        return ErrorCode.rebalance_in_progress if group.state is State.PREPARING else ErrorCode.none

    def leave(self, group: ClassicGroup, leaving: tuple[LeavingMember, ...]) -> tuple[LeftMember, ...]:
        left = tuple(
            LeftMember(item.member_id, item.instance_id, self._leave_one(group, item)) for item in leaving
        )
        gone = [item.member_id or item.instance_id for item in left if item.error is ErrorCode.none]
        if gone:
            reason = f"members left: {', '.join(str(name) for name in gone)}"
            if group.state in (State.STABLE, State.COMPLETING):
                self._rebalance.rebalance_or_complete(group, reason)
            else:
                self._rebalance.complete_join_if_all_there(group)
        return left

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending_joins:
            group.remove(member_id)
            self._timers.cancel(Timer(SESSION, group.group_id, member_id))
            return ErrorCode.none
        if member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(leaving.instance_id, UNKNOWN_MEMBER)
        try:
            member = group.validate_member(member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
        self._rebalance.remove(group, member)
        return ErrorCode.none

    # --- time-outs

    def session_expired(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                group.remove(member_id)
                self._complete_after_loss(group)
            return
        if member.is_excused_from_heartbeat:
            return
        log.info("member %s of group %s has fallen silent", member_id, group.group_id)
        self._rebalance.remove(group, member)
        if group.state in (State.STABLE, State.COMPLETING):
            self._rebalance.rebalance_or_complete(group, f"the session of {member_id} expired")
        else:
            self._complete_after_loss(group)

    def _complete_after_loss(self, group: ClassicGroup) -> None:
        if group.state is State.PREPARING and group.have_all_joined():
            self._rebalance.complete_join(group)

    def join_expired(self, group: ClassicGroup) -> None:
        if group.state is not State.PREPARING:
            return
        if group.is_initial_rebalance and group.member_added_during_delay and group.delay_left_ms:
            group.member_added_during_delay = False
            delay_ms = min(self._rebalance.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
            group.delay_ms = delay_ms
            self._timers.schedule(Timer(JOIN, group.group_id), self._journal.now.monotonic_ms + delay_ms)
        else:
            self._rebalance.complete_join(group)

    def sync_expired(self, group: ClassicGroup, generation: int) -> None:
        """Members that joined but never came for their assignment would hold partitions nobody reads."""
        if generation != group.generation or group.state not in (State.COMPLETING, State.STABLE):
            return
        missing = list(group.pending_syncs)
        for member_id in missing:
            self._rebalance.remove(group, group.members[member_id])
        if missing:
            self._rebalance.prepare(group, f"no SyncGroup from {', '.join(missing)}")


def _assigned(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    return SyncReply(ErrorCode.none, member.assignment, group.protocol_type, group.protocol_name)


def _check_generation(group: ClassicGroup, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.group_id} is at generation {group.generation}, not {generation}; rejoin"
        )


def _check_protocol(group: ClassicGroup, request: SyncRequest) -> None:
    for theirs, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if theirs is not None and ours is not None and theirs != ours:
            raise InconsistentGroupProtocol(f"group {group.group_id} uses {ours}, not {theirs}")
