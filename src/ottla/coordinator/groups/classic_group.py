"""A classic group: its members, which of them are parked, and the states a rebalance goes through.

    Empty ──join──▶ PreparingRebalance ──all joined, or time-out──▶ CompletingRebalance ──sync──▶ Stable
      ▲                 │        ▲                                        │                         │
      └── nobody left ──┘        └────────── join, leave, time-out ───────┴─────────────────────────┘

Only what a completed rebalance (or the lack of members) leaves behind is stored; until the leader has synced,
a restart finds the generation before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.coordinator.groups.commands import Protocols
from ottla.coordinator.groups.embedded import PROTOCOL_TYPE, MalformedProtocol, subscribed_topics
from ottla.coordinator.groups.memory import MEMBER_BYTES, NAME_BYTES
from ottla.coordinator.groups.records import GroupMetadataValue, MemberMetadata
from ottla.coordinator.host.journal import Ticket
from ottla.wire.errors import FencedInstanceId, UnknownMemberId


class State(Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """No group has it; it is what a group that does not exist is said to be in."""


_BEFORE: dict[State, tuple[State, ...]] = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.STABLE, State.COMPLETING, State.EMPTY),
    State.COMPLETING: (State.PREPARING,),
    State.STABLE: (State.COMPLETING,),
}
NO_TIMESTAMP = -1
_NAMES_OF_ALL_MAX = 500_000
"""Reading more would hold up everybody; such a group counts as subscribed to everything."""


@dataclass(slots=True, eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Has not been told its member id yet, so it cannot heartbeat while its JoinGroup is parked."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @property
    def size_bytes(self) -> int:
        """What it makes the broker keep."""
        size = MEMBER_BYTES + len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        for name, metadata in self.protocols:
            size += NAME_BYTES + len(name) + len(metadata)
        return size + len(self.assignment)

    def stored_bytes(self, protocol: str, assignment: bytes) -> int:
        """At most, of the group's record once the member has this assignment."""
        strings = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        # Four bytes at most for a character.
        return NAME_BYTES + 4 * strings + len(self.metadata(protocol)) + len(assignment)

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(f"member {self.member_id} does not support protocol {protocol}")

    @property
    def is_excused_from_heartbeat(self) -> bool:
        """A parked request shows that the client is there, unless it never learned who it is."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


class ClassicGroup:
    __slots__ = (
        "delay_left_ms",
        "delay_ms",
        "generation",
        "group_id",
        "leader_id",
        "member_added_during_delay",
        "members",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "size_bytes",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int = NO_TIMESTAMP) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.size_bytes = 0
        """What members and pending ones make the broker keep."""
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, None] = {}
        """Ids given out whose owners have not come back to join with them; in order."""
        self.pending_syncs: dict[str, None] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """None: this is no group of consumers, or one whose subscriptions cannot be read."""
        self.delay_ms = 0
        self.delay_left_ms = 0
        self.member_added_during_delay = False

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def is_initial_rebalance(self) -> bool:
        return self.state is State.PREPARING and self.previous_state is State.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined_count(self) -> int:
        return sum(member.join_ticket is not None for member in self.members.values())

    def have_all_joined(self) -> bool:
        return not self.pending_joins and all(m.join_ticket is not None for m in self.members.values())

    def can_rebalance(self) -> bool:
        return self.state in _BEFORE[State.PREPARING]

    def transition_to(self, state: State, wall_ms: int) -> None:
        if self.state not in _BEFORE[state]:
            raise AssertionError(f"group {self.group_id} cannot go from {self.state} to {state}")
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = wall_ms

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self.size_bytes += member.size_bytes
        self._end_pending(member.member_id)

    def expect(self, member_id: str) -> None:
        """Its owner has been told this id and comes back with it."""
        self.pending_joins[member_id] = None
        self.size_bytes += pending_bytes(member_id)

    def _end_pending(self, member_id: str) -> None:
        if member_id in self.pending_joins:
            del self.pending_joins[member_id]
            self.size_bytes -= pending_bytes(member_id)

    def renew(
        self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """A member that joins again says anew what it wants."""
        self.size_bytes -= member.size_bytes
        member.protocols = protocols
        self.size_bytes += member.size_bytes
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Members that are not mentioned get nothing."""
        for member in self.members.values():
            assignment = assignments.get(member.member_id, b"")
            self.size_bytes += len(assignment) - len(member.assignment)
            member.assignment = assignment

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self.size_bytes -= member.size_bytes
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._end_pending(member_id)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """The new process behind an instance id takes the old one's place, assignment and all."""
        assert new.instance_id is not None
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self.size_bytes += new.size_bytes - old.size_bytes
        self.static_members[new.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_syncs:
            del self.pending_syncs[old.member_id]
            self.pending_syncs[new.member_id] = None

    def elect_joined_leader(self) -> bool:
        """Whether some member that has joined leads, electing one if need be."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader_id = member.member_id
                return True
        return False

    def start_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.transition_to(State.COMPLETING if self.members else State.EMPTY, wall_ms)

    def become_stable(self, generation: int) -> None:
        """Become what a finished rebalance leaves behind."""
        self.generation = generation
        self.state = State.STABLE
        self.protocol_name = self.select_protocol()
        self.subscribed_topics = self._subscribed_topics()

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        common = self._common_protocols()
        return self.protocol_type == protocol_type and any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """Every member votes for its first choice among what all support; the most votes win, then the
        vote cast first, so that every broker decides alike."""
        common = self._common_protocols()
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in common)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _common_protocols(self) -> set[str]:
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def validate_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.group_id} has no static member {instance_id}; rejoin")
            if current != member_id:
                raise FencedInstanceId(
                    f"static member {instance_id} of group {self.group_id} is {current} by now, not "
                    f"{member_id}: another consumer has started with the same group.instance.id"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id} has no member {member_id}; rejoin")
        return member

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if self.members and self.protocol_name is None:
            return None
        protocol = self.protocol_name or ""
        # Most members of a group say the same.
        distinct = dict.fromkeys(member.metadata(protocol) for member in self.members.values())
        topics: set[str] = set()
        named = 0
        try:
            for metadata in distinct:
                names = subscribed_topics(metadata)
                named += len(names)
                if named > _NAMES_OF_ALL_MAX:
                    return None
                topics.update(names)
        except MalformedProtocol:
            return None
        return frozenset(topics)

    def to_record(self) -> GroupMetadataValue:
        protocol = self.protocol_name or ""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=tuple(_member_record(member, protocol) for member in self.members.values()),
        )

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        group = cls(group_id, value.current_state_timestamp)
        group.members = {m.member_id: m for m in _members(value.members, value.protocol or "")}
        group.static_members = {
            m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
        }
        group.size_bytes = sum(m.size_bytes for m in group.members.values())
        group.state = State.STABLE if group.members else State.EMPTY
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        group.subscribed_topics = group._subscribed_topics()
        return group


def pending_bytes(member_id: str) -> int:
    return MEMBER_BYTES + len(member_id)


def _member_record(member: ClassicMember, protocol: str) -> MemberMetadata:
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def _members(records: Iterable[MemberMetadata], protocol: str) -> Iterable[ClassicMember]:
    for record in records:
        rebalance_timeout_ms = record.rebalance_timeout
        yield ClassicMember(
            member_id=record.member_id,
            instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.session_timeout
            if rebalance_timeout_ms == -1
            else rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout,
            protocols=((protocol, record.subscription),),
            assignment=record.assignment,
        )
