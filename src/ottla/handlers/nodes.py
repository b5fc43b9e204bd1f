"""The brokers of a cluster as clients of one listener see them."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.metadata.image import MetadataImage


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def nodes_on(image: MetadataImage, listener: str) -> dict[int, Node]:
    """Every broker that has the listener, fenced ones too, by id and in the order of ids."""
    return {
        broker_id: Node(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
        for broker_id, broker in sorted(image.brokers.items())
        for endpoint in broker.endpoints
        if endpoint.name == listener
    }
