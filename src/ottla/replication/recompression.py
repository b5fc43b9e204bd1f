"""Records that go through another codec on their way into the log, away from the event loop.

Compressing a megabyte takes longer than a request may hold up all others. Whatever comes for the same
partition meanwhile waits behind, so that no record overtakes another.
"""

from __future__ import annotations

from collections import deque

from ottla.log.types import AppendResult, TopicPartition
from ottla.log.verification import Verification
from ottla.replication.partition import Partition
from ottla.replication.turns import Turn
from ottla.runtime import Offload
from ottla.runtime.disk import ReadableBuffer
from ottla.runtime.tasks import ByteBudget
from ottla.wire.errors import KafkaError, NotEnoughReplicas, UnknownTopicOrPartition

WAITING_BYTES_MAX = 64 * 1024 * 1024


class Recompressions:
    def __init__(self, waiting_bytes_max: int = WAITING_BYTES_MAX) -> None:
        self.queues: dict[TopicPartition, deque[Turn]] = {}
        """Empty most of the time."""
        self._waiting_bytes = ByteBudget(waiting_bytes_max)

    def join(self, partition: Partition, records: memoryview) -> Turn | None:
        """For records that have to wait: their place in the line. None if they can be appended at once.

        Raises NotEnoughReplicas, which producers retry, when too many wait already.
        """
        waiting = self.queues.get(partition.topic_partition)
        if not waiting and not partition.log.is_slow_to_recompress(records):
            return None
        if not self._waiting_bytes.reserve(len(records)):
            if waiting:
                raise NotEnoughReplicas(
                    f"{partition.topic_partition}: too many records wait to be compressed; retry"
                )
            return None
        if waiting is None:
            waiting = self.queues[partition.topic_partition] = deque()
        turn = Turn(waiting)
        waiting.append(turn)
        return turn

    async def append(
        self,
        offload: Offload,
        turn: Turn,
        partition: Partition,
        records: memoryview,
        acks: int,
        transaction: Verification | None,
    ) -> AppendResult:
        """Raises what appending raises. To be called for every turn that was given out."""
        prepared: ReadableBuffer | KafkaError = records
        try:
            # Those that wait are compressed side by side, and appended one after the other.
            if partition.log.is_slow_to_recompress(records):
                try:
                    prepared = await offload.run(partition.log.recompressed, records)
                except KafkaError as error:
                    prepared = error
            async with turn:
                if isinstance(prepared, KafkaError):
                    raise prepared
                if partition.removed:
                    raise UnknownTopicOrPartition(f"{partition.topic_partition} was deleted meanwhile")
                return partition.append(memoryview(prepared), acks, transaction=transaction)
        finally:
            self._waiting_bytes.release(len(records))
            if not self.queues.get(partition.topic_partition, True):
                del self.queues[partition.topic_partition]
