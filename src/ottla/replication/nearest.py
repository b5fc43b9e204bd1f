"""From which replica a consumer should read: one in its own rack (KIP-392).

Only replicas in sync are chosen: others may stay behind for good, and the consumer with them. And only one
that has the offset, or the consumer would be told that it is out of range.
"""

from __future__ import annotations

from ottla.config import BrokerConfig
from ottla.config.cluster_keys import RACK_AWARE_SELECTOR
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.wire.fetch import NO_REPLICA


class RackAware:
    def __init__(self, in_sync: InSync) -> None:
        self._in_sync = in_sync

    def select(self, partition: Partition, offset: int, rack: str, listener: str) -> int:
        """Another broker than this one, which leads the partition; NO_REPLICA: this one is as good as any."""
        leading = partition.leadership
        if leading is None or self._is_in(self._in_sync.node_id, rack, listener):
            return NO_REPLICA
        near = [
            (follower.end_offset, follower.caught_up_at, broker_id)
            for broker_id, follower in leading.followers.items()
            if broker_id in leading.isr
            and follower.start_offset <= offset <= follower.end_offset
            and self._is_in(broker_id, rack, listener)
        ]
        return max(near)[-1] if near else NO_REPLICA

    def _is_in(self, broker_id: int, rack: str, listener: str) -> bool:
        """And can be asked by the consumer."""
        broker = self._in_sync.image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and any(endpoint.name == listener for endpoint in broker.endpoints)
        )


def replica_selector(config: BrokerConfig, in_sync: InSync) -> RackAware | None:
    """As configured; None where all consumers read from leaders."""
    chosen = config.optional_string("replica.selector.class")
    return RackAware(in_sync) if chosen == RACK_AWARE_SELECTOR else None
