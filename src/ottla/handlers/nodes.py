"""The brokers of a cluster as clients of one listener see them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla.metadata.image import MetadataImage

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def node_on(image: MetadataImage, listener: str, broker_id: int) -> Node | None:
    """None for one that does not exist, or does not have the listener."""
    broker = image.brokers.get(broker_id)
    for endpoint in () if broker is None else broker.endpoints:
        if broker is not None and endpoint.name == listener:
            return Node(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
    return None


def nodes_on(image: MetadataImage, listener: str) -> dict[int, Node]:
    """Every broker that has the listener, fenced ones too, by id and in the order of ids."""
    found = ((broker_id, node_on(image, listener, broker_id)) for broker_id in sorted(image.brokers))
    return {broker_id: node for broker_id, node in found if node is not None}


def whom_to_ask(here: int, alive: Collection[int]) -> int:
    """Whom clients take for the controller: any broker that is alive, since each hands on what is for it.

    Never one that is not among those that a client is told of: it would wait for that one to appear.
    """
    return here if here in alive else min(alive, default=NOBODY)
