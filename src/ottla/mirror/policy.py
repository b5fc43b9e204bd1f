"""What a topic is called on the other side, and where it comes from: MirrorMaker 2's two replication
policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEARTBEATS: Final = "heartbeats"
SEPARATOR: Final = "."


@dataclass(frozen=True, slots=True)
class ReplicationPolicy:
    """`keeps_names` is the IdentityReplicationPolicy: topics are called the same everywhere."""

    separator: str = SEPARATOR
    keeps_names: bool = False
    separates_internal: bool = True
    """Whether names of the mirror's own topics have the separator, too."""

    def remote_topic(self, source: str, topic: str) -> str:
        if self._is_kept(topic):
            return topic
        return f"{source}{self.separator}{topic}"

    def source_of(self, topic: str) -> str | None:
        """The alias in a name; None for a topic that was made here, or where names do not tell."""
        if self._is_kept(topic):
            return None
        source, _, rest = topic.partition(self.separator)
        return source if source and rest else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.source_of(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        upstream = self.upstream_topic(topic)
        return topic if upstream is None else self.original_topic(upstream)

    def has_passed(self, topic: str, *aliases: str) -> bool:
        """Whether records of the topic have been in one of these clusters before, as its name tells."""
        source = self.source_of(topic)
        if source is None:
            return False
        upstream = self.upstream_topic(topic)
        return source in aliases or (upstream is not None and self.has_passed(upstream, *aliases))

    def is_heartbeats(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """Kafka's own topics, and those of mirrors."""
        end = f"{self._internal_separator}internal"
        is_mirrors = (topic.startswith("mm2") and topic.endswith(end)) or topic.endswith(
            f"{self._internal_separator}checkpoints{end}"
        )
        return is_mirrors or topic.startswith(("__", "."))

    def offset_syncs_topic(self, alias: str) -> str:
        separator = self._internal_separator
        return f"mm2-offset-syncs{separator}{alias}{separator}internal"

    def checkpoints_topic(self, alias: str) -> str:
        separator = self._internal_separator
        return f"{alias}{separator}checkpoints{separator}internal"

    @property
    def _internal_separator(self) -> str:
        return self.separator if self.separates_internal else SEPARATOR

    def _is_kept(self, topic: str) -> bool:
        # Heartbeats of many clusters meet in one: they are told apart by their topics in any case.
        return self.keeps_names and not topic.endswith(HEARTBEATS)
