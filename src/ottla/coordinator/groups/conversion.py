"""Turning a classic group into a consumer group and back while its members are being rolled.

The first consumer of the new protocol to join a classic group upgrades it; the members of the old protocol
stay on as classic members of a consumer group. When the last member of the new protocol leaves, it goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from ottla.coordinator.groups import classic
from ottla.coordinator.groups.classic import ClassicRebalance
from ottla.coordinator.groups.classic_group import ClassicGroup, ClassicMember
from ottla.coordinator.groups.commands import JoinReply, Partitions, SyncReply
from ottla.coordinator.groups.consumer_group import ConsumerGroup, ConsumerMember
from ottla.coordinator.groups.consumer_rebalance import ConsumerRebalance
from ottla.coordinator.groups.embedded import (
    PROTOCOL_TYPE,
    MalformedProtocol,
    encode_assignment,
    parse_assignment,
    parse_subscription,
    subscription_version,
)
from ottla.coordinator.groups.records import ClassicMemberMetadata, ClassicProtocol, GroupMetadataKey
from ottla.coordinator.groups.topics import metadata_hash, partitions_by_id
from ottla.coordinator.host.timers import Timer
from ottla.wire.errors import ErrorCode, GroupIdNotFound

log = logging.getLogger(__name__)


class Conversion:
    def __init__(self, classic_rebalance: ClassicRebalance, consumer_rebalance: ConsumerRebalance) -> None:
        self._classic = classic_rebalance
        self._consumer = consumer_rebalance
        self._journal = classic_rebalance.journal
        self._settings = classic_rebalance.settings

    # --- classic to consumer

    def upgrade(self, group: ClassicGroup) -> ConsumerGroup:
        """Raises GroupIdNotFound, as Kafka does, where the group must stay as it is."""
        self._check_upgrade(group)
        try:
            members = self._consumer_members(group)
        except MalformedProtocol as error:
            raise GroupIdNotFound(f"classic group {group.group_id} cannot be upgraded: {error}") from error
        self.dissolve(group)
        for member, _ in members:
            self._consumer.put_metadata(group.group_id, member)
            self._consumer.extend_session(group.group_id, member)
        upgraded = self._journal_group(group.group_id)
        digest = metadata_hash(self._consumer.topics, upgraded.subscribed_topics())
        self._consumer.put_epoch(upgraded, group.generation, digest)
        for member, target in members:
            self._consumer.put_target(upgraded, member.member_id, target)
        self._consumer.put_assignment_epoch(upgraded, group.generation, 0)
        for member, _ in members:
            self._consumer.put_current(upgraded, member)
        log.info("group %s: classic group upgraded at generation %d", group.group_id, group.generation)
        return upgraded

    def _check_upgrade(self, group: ClassicGroup) -> None:
        if not self._settings.can_upgrade:
            reason = "group.consumer.migration.policy does not allow it"
        elif not group.uses_consumer_protocol:
            reason = f"its members are of type {group.protocol_type}, not consumers"
        elif len(group.members) > self._settings.consumer_max_size:
            reason = f"it has more than group.consumer.max.size = {self._settings.consumer_max_size} members"
        else:
            return
        raise GroupIdNotFound(f"classic group {group.group_id} cannot be upgraded: {reason}")

    def dissolve(self, group: ClassicGroup) -> None:
        """The classic group is no more; its offsets stay."""
        for member in group.members.values():
            # Told to rejoin, they come back as classic members of the consumer group.
            self._classic.answer_join(member, JoinReply(ErrorCode.rebalance_in_progress, member.member_id))
            self._classic.answer_sync(member, SyncReply(ErrorCode.rebalance_in_progress))
        for member_id in (*group.members, *group.pending_joins):
            self._classic.timers.cancel(Timer(classic.SESSION, group.group_id, member_id))
        for kind in (classic.JOIN, classic.SYNC):
            self._classic.timers.cancel(Timer(kind, group.group_id))
        self._journal.write(GroupMetadataKey(group.group_id), None)

    def _journal_group(self, group_id: str) -> ConsumerGroup:
        group = self._consumer.groups.by_id.get(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def _consumer_members(self, group: ClassicGroup) -> list[tuple[ConsumerMember, Partitions]]:
        taken: set[tuple[str, int]] = set()
        result: list[tuple[ConsumerMember, Partitions]] = []
        for member in group.members.values():
            names, user_data = parse_assignment(member.assignment)
            if user_data:
                raise MalformedProtocol(
                    "its assignor keeps data of its own in assignments, which would be lost"
                )
            # An assignor of the user's may have given a partition twice; here each has one owner.
            free = {t: [p for p in parts if (t, p) not in taken] for t, parts in names.items()}
            taken |= {(t, p) for t, parts in free.items() for p in parts}
            target = partitions_by_id(self._consumer.topics, free)
            result.append((_consumer_member(group, member, target), target))
        return result

    # --- consumer to classic

    def can_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Whether, without those who leave, only classic members are left."""
        staying = [m for m in group.members.values() if m.member_id not in leaving]
        if not staying or any(member.classic is None for member in staying):
            return False
        protocols = [
            {p.name for p in m.classic.supported_protocols} for m in staying if m.classic is not None
        ]
        return (
            self._settings.can_downgrade
            and len(staying) <= self._settings.group_max_size
            and bool(set.intersection(*protocols))
        )

    def downgrade(self, group: ConsumerGroup, leaving: Collection[str], *, rebalance: bool) -> ClassicGroup:
        downgraded = self._classic_group(group, leaving)
        staying = [group.members[member_id] for member_id in downgraded.members]
        rebalance = rebalance or any(
            member.held != {t: p for t, p in group.target_of(member.member_id).items() if p}
            for member in staying
        )
        self._consumer.remove_group(group)
        self._classic.groups.by_id[group.group_id] = downgraded
        record = downgraded.to_record()
        if rebalance:
            # That it is to be rebalanced is not stored. Whoever loads it before that is over finds a
            # generation that no member has, so all come again, and what was left is read by somebody.
            record = replace(record, generation=downgraded.generation + 1)
        self._journal.persist(GroupMetadataKey(group.group_id), record)
        for member in downgraded.members.values():
            self._classic.extend_session(downgraded, member)
        log.info("group %s: consumer group downgraded at epoch %d", group.group_id, group.epoch)
        if rebalance:
            self._classic.prepare(downgraded, "the last member of the consumer protocol left")
        return downgraded

    def _classic_group(self, group: ConsumerGroup, leaving: Collection[str]) -> ClassicGroup:
        # As a record of a finished rebalance would load it, but with all protocols that members support.
        downgraded = ClassicGroup(group.group_id, self._journal.now.wall_ms)
        for member in group.members.values():
            if member.member_id not in leaving:
                downgraded.add(_classic_member(member), PROTOCOL_TYPE)
        downgraded.become_stable(group.epoch)
        # Not what they were to read: should the group be upgraded again before they are told, somebody else
        # would be given what they still hold.
        downgraded.assign(
            {
                member.member_id: encode_assignment(
                    subscription_version(member.metadata(downgraded.protocol_name or "")),
                    group.members[member.member_id].held,
                    self._consumer.topics,
                )
                for member in downgraded.members.values()
            }
        )
        return downgraded


def _consumer_member(group: ClassicGroup, member: ClassicMember, target: Partitions) -> ConsumerMember:
    protocols = dict(member.protocols)
    # A group still in its first rebalance has no protocol yet; all of a member's say the same here.
    metadata = protocols.get(group.protocol_name or "", member.protocols[0][1])
    subscription = parse_subscription(metadata)
    return ConsumerMember(
        member_id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        assigned={t: dict.fromkeys(sorted(parts), group.generation) for t, parts in target.items() if parts},
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=data) for name, data in member.protocols
            ),
        ),
    )


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple((p.name, p.metadata) for p in member.classic.supported_protocols),
    )
