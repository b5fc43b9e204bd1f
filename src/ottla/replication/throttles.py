"""Replication that is held back so that others have room: at leaders, and at followers.

Which replicas is said by their topics, how fast by their brokers. Who is in sync is never held back, or it
would fall out of the ISR; but what it costs counts.
"""

from __future__ import annotations

from ottla.config import BrokerConfig
from ottla.log.throttle import Throttle
from ottla.replication.partition import Partition
from ottla.runtime.clock import Clock

ALL = "*"


class Throttles:
    def __init__(self, node_id: int, clock: Clock, config: BrokerConfig) -> None:
        self._node_id = node_id
        self._sending = Throttle(clock)
        self._fetching = Throttle(clock)
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        windows_max = config.integer("replication.quota.window.num")
        window_seconds = config.integer("replication.quota.window.size.seconds")
        for throttle, name in (
            (self._sending, "leader.replication.throttled.rate"),
            (self._fetching, "follower.replication.throttled.rate"),
        ):
            throttle.configure(config.integer(name), windows_max, window_seconds)

    # Leading.

    def holds_back_from(self, partition: Partition, replica: int) -> bool:
        """Whether a follower has to wait for more."""
        return (
            self._names(partition.log.config.leader_replication_throttled_replicas, partition)
            and replica not in partition.isr
            and self._sending.is_exceeded
        )

    def sent(self, partition: Partition, size: int) -> None:
        if self._names(partition.log.config.leader_replication_throttled_replicas, partition):
            self._sending.count(size)

    # Following.

    def holds_back(self, partition: Partition) -> bool:
        """Whether to wait with fetching more for a replica, which the caller knows to be behind."""
        return (
            self._names(partition.log.config.follower_replication_throttled_replicas, partition)
            and self._fetching.is_exceeded
        )

    def fetched(self, partition: Partition, size: int) -> None:
        if self._names(partition.log.config.follower_replication_throttled_replicas, partition):
            self._fetching.count(size)

    def _names(self, throttled: tuple[str, ...], partition: Partition) -> bool:
        if not throttled:
            return False
        return ALL in throttled or f"{partition.topic_partition.partition}:{self._node_id}" in throttled
