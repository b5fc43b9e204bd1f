"""The broker's settings that the share coordinator goes by, read once into typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ConfigView(Protocol):
    def integer(self, name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ShareSettings:
    partitions: int = 50
    """That the topic of states is created with."""
    updates_per_snapshot: int = 500
    prune_interval_ms: int = 5 * 60 * 1000
    codec: int = 0

    @classmethod
    def from_config(cls, config: ConfigView) -> ShareSettings:
        return cls(
            partitions=config.integer("share.coordinator.state.topic.num.partitions"),
            updates_per_snapshot=config.integer("share.coordinator.snapshot.update.records.per.snapshot"),
            prune_interval_ms=config.integer("share.coordinator.state.topic.prune.interval.ms"),
            codec=config.integer("share.coordinator.state.topic.compression.codec"),
        )
