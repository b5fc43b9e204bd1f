"""Who leads a partition that a client took this broker for, as the metadata says."""

from __future__ import annotations

from uuid import UUID

from ottla.handlers.nodes import node_on
from ottla.metadata.image import TopicImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.wire.current_leader import CurrentLeader, NodeEndpoint


class CurrentLeaders:
    def __init__(self, metadata: MetadataPublisher) -> None:
        self._metadata = metadata

    def find(self, listener: str, topic: bytes, partition: int, *, by_id: bool) -> CurrentLeader | None:
        found = self._topic(topic, by_id=by_id)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        state = found.partitions[partition]
        node = node_on(self._metadata.image, listener, state.leader)
        alive = (
            None if node is None or node.fenced else NodeEndpoint(node.id, node.host, node.port, node.rack)
        )
        return CurrentLeader(state.leader, state.leader_epoch, alive)

    def _topic(self, topic: bytes, *, by_id: bool) -> TopicImage | None:
        image = self._metadata.image
        if by_id:
            return image.topic_by_id(UUID(bytes=topic))
        return image.topics.get(topic.decode(errors="replace"))
