"""Tells of stored settings that this broker cannot follow, each once.

Such records come from another version, or contradict a file that was edited since. They are in force and
stay: refusing to start because of one would take everything down for the sake of a single topic.
"""

from __future__ import annotations

import logging

from ottla.config import BrokerConfig, topic_faults
from ottla.metadata.image import MetadataImage, ResourceType

log = logging.getLogger(__name__)


class ConfigFaults:
    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, config: BrokerConfig, image: MetadataImage) -> None:
        """`config` is the broker's as of `image`."""
        found = [
            f"setting of the broker, stored in the metadata: {setting.reason}; it is kept and has no effect"
            for setting in config.unused
        ]
        for (resource_type, name), overrides in image.configs.items():
            if resource_type == ResourceType.TOPIC:
                found += (f"topic {name}: {fault}" for fault in topic_faults(config, overrides))
        for fault in found:
            if fault not in self._told:
                log.warning("%s", fault)
        # One that was mended and comes again is news.
        self._told = set(found)
