"""Metadata: version 0 asked for all topics with an empty list; 8 to 10 could ask for cluster operations."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from kio.schema.metadata.v13.request import MetadataRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOperationsMetadataRequest(MetadataRequest):
    """Metadata 8 to 10, which could also ask what the client may do to the cluster (KIP-430)."""

    include_cluster_authorized_operations: bool = field(metadata={"kafka_type": "bool"}, default=False)


def upgrade(old: Any, widened: MetadataRequest) -> MetadataRequest:
    if old.__version__ == 0 and not old.topics:
        # Version 0 could not send null, so its empty list means every topic.
        return replace(widened, topics=None)
    if getattr(old, "include_cluster_authorized_operations", False):
        return ClusterOperationsMetadataRequest(
            topics=widened.topics,
            allow_auto_topic_creation=widened.allow_auto_topic_creation,
            include_topic_authorized_operations=widened.include_topic_authorized_operations,
            include_cluster_authorized_operations=True,
        )
    return widened
