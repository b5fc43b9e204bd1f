"""What a share group's settings mean to the leader of a partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.config import BrokerConfig, share_group_config
from ottla.metadata.image import MetadataImage, ResourceType

THROTTLED_DELIVERIES_MIN = 2
_NONE: Mapping[str, str] = {}


class ShareSettings(NamedTuple):
    lock_duration_ms: int = 30_000
    deliveries_max: int = 5
    in_flight_max: int = 2000
    """Records between the first that is not done with and the last that was given to somebody."""
    begins_at: str = "latest"
    """Of a group that has no state yet: earliest, latest or by_duration."""
    begins_ms_ago: int = 0
    read_committed: bool = False
    may_renew: bool = True

    @property
    def careful_from(self) -> int:
        """Deliveries after which records are given out in ever smaller portions, so that a record that nobody
        can process costs its neighbours as few of their deliveries as possible."""
        return max(THROTTLED_DELIVERIES_MIN, math.ceil(self.deliveries_max / 2))


SettingsOf: TypeAlias = Callable[[str], ShareSettings]
"""By group id, as of now."""


class SettingsOfGroups:
    """What counts for a group now: its own settings on top of the broker's."""

    def __init__(self, config: Callable[[], BrokerConfig], image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._image = image
        self._found: dict[str, tuple[BrokerConfig, Mapping[str, str], ShareSettings]] = {}
        """Of groups that have some of their own, and of all others under an empty name."""

    def __call__(self, group_id: str) -> ShareSettings:
        config = self._config()
        overrides = self._image().configs.get((ResourceType.GROUP, group_id), _NONE)
        name = "" if overrides is _NONE else group_id
        found = self._found.get(name)
        if found is not None and found[0] is config and found[1] is overrides:
            return found[2]
        settings = _resolved(config, overrides)
        self._found[name] = config, overrides, settings
        return settings


def _resolved(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareSettings:
    found = share_group_config(config, overrides)
    return ShareSettings(
        lock_duration_ms=found.record_lock_duration_ms,
        deliveries_max=found.delivery_count_limit,
        in_flight_max=found.partition_max_record_locks,
        begins_at=found.offset_reset.strategy,
        begins_ms_ago=found.offset_reset.duration_ms,
        read_committed=found.is_read_committed,
        may_renew=found.can_renew,
    )
