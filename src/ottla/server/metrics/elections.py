"""How often partitions got another leader, as the metadata tells it."""

from __future__ import annotations

from ottla.metadata.change import MetadataChange
from ottla.metadata.records import NO_LEADER


class Elections:
    def __init__(self) -> None:
        self.count = 0
        self.unclean = 0
        """Of these, where the new leader may lack what was committed."""

    def apply(self, change: MetadataChange) -> None:
        for topic in change.topics:
            if topic.before is None or topic.after is None or topic.before.id != topic.after.id:
                continue
            for before, after in zip(topic.before.partitions, topic.after.partitions, strict=False):
                if after.leader in (before.leader, NO_LEADER):
                    continue
                self.count += 1
                self.unclean += after.leader not in (*before.isr, *before.eligible_leader_replicas)
