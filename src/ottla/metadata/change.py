"""What lies between two images, so that who follows the metadata need not look at all of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ottla.metadata.image import MetadataImage, ResourceType, TopicImage


class TopicChange(NamedTuple):
    """A topic that came (no `before`), went (no `after`), or whose partitions changed.

    One that was deleted and created anew in between has both, with different ids.
    """

    name: str
    before: TopicImage | None
    after: TopicImage | None

    @property
    def removed(self) -> TopicImage | None:
        """The topic that is gone, though there may be another of its name."""
        if self.before is not None and (self.after is None or self.after.id != self.before.id):
            return self.before
        return None


class MetadataChange(NamedTuple):
    before: MetadataImage
    after: MetadataImage
    topics: Collection[TopicChange]
    """Each topic once. One that came and went between the two images is not among them."""
    configs: Collection[tuple[int, str]]
    """Resources, by type and name, whose settings are not the same in both images."""

    @property
    def changes_broker_configs(self) -> bool:
        return any(kind == ResourceType.BROKER for kind, _ in self.configs)


def between(before: MetadataImage, after: MetadataImage) -> MetadataChange:
    """By looking at all of both. A commit knows what it changed; this is for a start."""
    names = sorted({*before.topics, *after.topics})
    topics = [
        TopicChange(name, before.topics.get(name), after.topics.get(name))
        for name in names
        if before.topics.get(name) is not after.topics.get(name)
    ]
    resources = sorted({*before.configs, *after.configs})
    configs = [key for key in resources if before.config(*key) != after.config(*key)]
    return MetadataChange(before, after, topics, configs)
