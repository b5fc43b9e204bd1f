"""The broker's settings that groups go by, read once into typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.config import GroupTimes

_UNLIMITED = 2**31 - 1
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member's parked JoinGroup is given up after this: without a member id it cannot heartbeat."""


class ConfigView(Protocol):
    def integer(self, name: str) -> int: ...

    def string(self, name: str) -> str: ...


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _UNLIMITED
    group_bytes_max: int = 64 * 1024 * 1024
    groups_bytes_max: int = 512 * 1024 * 1024
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 0
    consumer_max_size: int = _UNLIMITED
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    share_max_size: int = 200
    offset_metadata_max_bytes: int = 4_096
    offsets_partitions: int = 50
    """That the topic of offsets is created with."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def consumer_times(self) -> GroupTimes:
        """Of groups that have no settings of their own."""
        return GroupTimes(
            self.consumer_session_timeout_ms,
            self.consumer_heartbeat_interval_ms,
            self.consumer_assignment_interval_ms,
        )

    @property
    def can_upgrade(self) -> bool:
        return self.consumer_migration_policy.lower() in ("bidirectional", "upgrade")

    @property
    def can_downgrade(self) -> bool:
        return self.consumer_migration_policy.lower() in ("bidirectional", "downgrade")

    @classmethod
    def from_config(cls, config: ConfigView) -> GroupSettings:
        return cls(
            group_min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
            group_max_size=config.integer("group.max.size"),
            group_bytes_max=config.integer("ottla.group.max.bytes"),
            groups_bytes_max=config.integer("ottla.groups.max.bytes"),
            consumer_session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
            consumer_max_size=config.integer("group.consumer.max.size"),
            consumer_migration_policy=config.string("group.consumer.migration.policy"),
            consumer_regex_refresh_interval_ms=config.integer("group.consumer.regex.refresh.interval.ms"),
            share_max_size=config.integer("group.share.max.size"),
            offsets_partitions=config.integer("offsets.topic.num.partitions"),
            offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        )
