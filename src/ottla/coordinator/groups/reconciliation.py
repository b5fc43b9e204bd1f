"""One member's way from what it owns to what it shall own, never letting two members own the same.

STABLE ──new target takes something away──▶ UNREVOKED_PARTITIONS ──client no longer reports it──┐
  ▲  └──new target, nothing to give up──▶ ┐                                                     │
  │                                       ▼                                                     ▼
  └──────────── everything free ◀── move to the target's epoch ──someone else still owns──▶ UNRELEASED_
                                          ▲                                                 PARTITIONS
                                          └─────────────── on each heartbeat ─────────────────┘
"""

from __future__ import annotations

import uuid
from collections.abc import Container
from dataclasses import replace

from ottla.coordinator.groups.commands import Partitions
from ottla.coordinator.groups.consumer_group import ConsumerMember, Epochs, MemberState


class Reconciliation:
    """`owners` holds each (topic, partition) that any member owns or has still to give up."""

    def __init__(
        self,
        target_epoch: int,
        target: Partitions,
        subscribed: Container[uuid.UUID],
        owners: Container[tuple[uuid.UUID, int]],
        owned: Partitions | None,
        has_subscription_changed: bool,
    ) -> None:
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._owners = owners
        self._owned = owned
        self._has_subscription_changed = has_subscription_changed

    def step(self, member: ConsumerMember) -> ConsumerMember:
        match member.state:
            case MemberState.STABLE if member.epoch == self._target_epoch:
                return self._drop_unsubscribed(member) if self._has_subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS if self._still_owns(member.revoking):
                return self._drop_unsubscribed(member) if self._has_subscription_changed else member
            case _:
                return self._advance(member)

    def _still_owns(self, partitions: Epochs) -> bool:
        """A client that does not say what it owns is taken to own everything still."""
        if self._owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, {})
            for topic_id, owned in self._owned.items()
            for partition in owned
        )

    def _drop_unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        gone = {t: epochs for t, epochs in member.assigned.items() if t not in self._subscribed}
        if not gone:
            return member
        kept = {t: epochs for t, epochs in member.assigned.items() if t in self._subscribed}
        revoking = {**member.revoking}
        for topic_id, epochs in gone.items():
            revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
        if self._still_owns(revoking):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        return replace(member, previous_epoch=member.epoch, assigned=kept)

    def _advance(self, member: ConsumerMember) -> ConsumerMember:
        kept: dict[uuid.UUID, dict[int, int]] = {}
        revoking: dict[uuid.UUID, dict[int, int]] = {}
        gained: dict[uuid.UUID, list[int]] = {}
        is_waiting = False
        for topic_id in sorted({*self._target, *member.assigned}):
            target = self._target.get(topic_id, frozenset()) if topic_id in self._subscribed else frozenset()
            current = member.assigned.get(topic_id, {})
            for partition, epoch in current.items():
                (kept if partition in target else revoking).setdefault(topic_id, {})[partition] = epoch
            being_revoked = member.revoking.get(topic_id, {})
            for partition in sorted(target - current.keys()):
                if (topic_id, partition) in self._owners and partition not in being_revoked:
                    is_waiting = True
                else:
                    gained.setdefault(topic_id, []).append(partition)
        if revoking and self._still_owns(revoking):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        for topic_id, partitions in gained.items():
            for partition in partitions:
                kept.setdefault(topic_id, {})[partition] = self._target_epoch
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
            epoch=self._target_epoch,
            previous_epoch=member.epoch,
            assigned=kept,
            revoking={},
        )
