"""What older request versions said in fields the newest version no longer has.

Widening an old request to the newest class (see `messages`) fills in what it lacks; here is the opposite
case, the few requests whose old fields would otherwise be lost. Keyed by API; each function gets the request
as received and as widened, and returns what the handler shall see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.metadata.v13.request import MetadataRequest

from ottla.wire.api import ApiKey

__all__ = ["UPGRADES", "ClusterOperationsMetadataRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOperationsMetadataRequest(MetadataRequest):
    """Metadata 8 to 10, which could also ask what the client may do to the cluster (KIP-430)."""

    include_cluster_authorized_operations: bool = field(metadata={"kafka_type": "bool"}, default=False)


def _metadata(old: Any, widened: MetadataRequest) -> MetadataRequest:
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


def _delete_topics(old: Any, widened: DeleteTopicsRequest) -> DeleteTopicsRequest:
    """Before version 6 topics were a plain list of names."""
    return replace(widened, topics=tuple(DeleteTopicState(name=n, topic_id=None) for n in old.topic_names))


UPGRADES: dict[int, Callable[[Any, Any], Any]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.DELETE_TOPICS: _delete_topics,
}
