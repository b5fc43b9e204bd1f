"""Micro-batches into topics at least once: records are there to be read as soon as they are written, and the
offsets of the sources follow them. A micro-batch that is done again after a crash is written again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.client.admin.groups import commit_offsets
from ottla.client.admin.topics import Partition
from ottla.client.transaction import new_producer
from ottla.spark.exactly_once import MicroBatchWriter, Stopwatch
from ottla.spark.sink_options import SinkOptions
from ottla.spark.spool import Collected
from ottla.spark.task_writing import (
    WRITTEN_SCHEMA,
    WRITTEN_TYPES,
    BatchSender,
    as_arrow,
    send_batches,
    sink_connection,
)


@dataclass(frozen=True, slots=True)
class PlainWriteTask:
    """Record batches → their partitions, for `mapInArrow`."""

    options: SinkOptions

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        connection = sink_connection(self.options)
        with BatchSender(connection, connection.run(new_producer(connection.cluster)), None) as sender:
            send_batches(sender, batches)
        rows = [(0, *target, *sent) for target, sent in sorted(sender.sent.items())]
        yield as_arrow(rows, WRITTEN_SCHEMA)


class AtLeastOnceWriter(MicroBatchWriter):
    """As `MicroBatchWriter`, without transactions."""

    _sender: BatchSender | None = None

    def _write_once(self, batches: Any, batch_id: int) -> None:
        watch = Stopwatch()
        offsets = self._connection.run(self._offsets_here(batch_id))
        watch.lap("begin")
        if self._spool is None:
            batches.mapInArrow(PlainWriteTask(self._options), WRITTEN_TYPES).collect()
            watch.lap("job")
        else:
            collected = self._spool.collect(batches, is_small=self._is_small(batch_id))
            watch.lap("job")
            self._send_plainly(collected)
            watch.lap("produce")
        if offsets:
            by_partition = {Partition(*place): offset for place, offset in offsets.items()}
            cluster = self._connection.cluster
            self._connection.run(
                commit_offsets(cluster, self._application_id, by_partition, self._mark(batch_id))
            )
        watch.lap("commit")
        self._log_times(batch_id, watch)

    def _send_plainly(self, collected: Collected) -> None:
        # One producer for all micro-batches; its sequence numbers go on. After a failure it is another one.
        sender, self._sender = self._sender, None
        if sender is None:
            producer = self._connection.run(new_producer(self._connection.cluster))
            sender = BatchSender(self._connection, producer, None)
        with sender:
            for target, record_count, data in collected.batches:
                sender.send(target, record_count, data)
        self._sender = sender
