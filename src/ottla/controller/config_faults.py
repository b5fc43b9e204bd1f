"""Tells of stored settings that this broker cannot follow, each once.

Such records come from another version, or contradict a file that was edited since. They are in force and
stay: refusing to start because of one would take everything down for the sake of a single topic.
"""

from __future__ import annotations

import logging

from ottla.config import BrokerConfig, topic_faults
from ottla.metadata.change import MetadataChange
from ottla.metadata.image import ResourceType

log = logging.getLogger(__name__)


class ConfigFaults:
    def __init__(self) -> None:
        self._told: dict[tuple[int, str], list[str]] = {}
        """Of each resource that has any: one that was mended and comes again is news."""

    def tell(self, config: BrokerConfig, change: MetadataChange) -> None:
        """`config` is the broker's as of the image after the change."""
        resources = change.configs
        if change.changes_broker_configs:
            resources = change.after.configs.keys()
            self._tell(
                (ResourceType.BROKER, ""),
                [
                    f"setting of the broker, stored in the metadata: {setting.reason}; "
                    "it is kept and has no effect"
                    for setting in config.unused
                ],
            )
        for kind, name in resources:
            if kind == ResourceType.TOPIC:
                faults = topic_faults(config, change.after.config(kind, name))
                self._tell((kind, name), [f"topic {name}: {fault}" for fault in faults])

    def _tell(self, resource: tuple[int, str], faults: list[str]) -> None:
        known = self._told.pop(resource, ())
        for fault in faults:
            if fault not in known:
                log.warning("%s", fault)
        if faults:
            self._told[resource] = faults
