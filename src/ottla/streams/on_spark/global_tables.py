"""Global tables in Spark's workers: a full copy of their topics, brought up to date at the start of each
batch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from ottla.client.cluster import EARLIEST, LATEST
from ottla.spark.connection import shared_connection
from ottla.spark.range_reader import read_range
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import SourceOptions, source_options
from ottla.streams.on_spark.rows import read_rows
from ottla.streams.plan.plan import Plan
from ottla.streams.state.backend import MemoryBackend
from ottla.streams.state.spec import Store
from ottla.streams.tasks.task import Task

if TYPE_CHECKING:
    from ottla.streams.on_spark.worker_tasks import TaskSettings


class GlobalTable:
    """The nodes that fill global stores from one topic, and how far they have read."""

    def __init__(self, part: Plan, settings: TaskSettings) -> None:
        topics = sorted(topic for source in part.sources() for topic in source.topics)
        self._options: SourceOptions = source_options(
            {
                "subscribe": ",".join(topics),
                "kafka.bootstrap.servers": settings.bootstrap_servers,
                "kafka.isolation.level": "read_committed",
                "includeHeaders": "true",
                **{f"kafka.{name}": value for name, value in settings.client_properties.items()},
            },
            streaming=False,
        )
        self._topics = topics
        self._next: dict[tuple[str, int], int] = {}
        self._task = Task(
            part,
            application_id=settings.application_id,
            partition=-1,
            backends=lambda store: MemoryBackend(),
            emit=lambda output: None,
            now_ms=lambda: 0,
            # Every worker reads the topic, each would send a dead letter.
            errors=settings.errors.without_dead_letters(),
        )

    def stores(self) -> Mapping[str, Store]:
        return self._task.stores

    def refresh(self) -> None:
        """Read what was committed since the last time."""
        connection = shared_connection(self._options.bootstrap_servers, self._options.client_properties)
        cluster = connection.cluster
        found = connection.run(cluster.topics(self._topics))
        places = [(name, index) for name, topic in found.items() for index in topic.partitions]
        fresh = {place: EARLIEST for place in places if place not in self._next}
        if fresh:
            starts = connection.run(cluster.list_offsets(fresh))
            self._next.update((place, at.offset) for place, at in starts.items())
        ends = connection.run(cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=True))
        for (topic, partition), end in sorted(ends.items()):
            start = self._next[topic, partition]
            if end.offset > start:
                wanted = OffsetRange(topic, partition, start, end.offset)
                for batch in read_range(wanted, self._options):
                    self._task.process_all(read_rows(batch))
                self._next[topic, partition] = end.offset
        self._task.flush()


class GlobalTables:
    """The global tables of this worker process, which serves many batches one after the other."""

    _tables: ClassVar[dict[tuple[int, str, str], GlobalTable]] = {}

    @classmethod
    def stores(cls, plan: Plan, settings: TaskSettings) -> dict[str, Store]:
        """The global stores a part looks up, up to date."""
        found: dict[str, Store] = {}
        for part in settings.global_parts:
            if part.global_stores & plan.global_stores:
                name = (os.getpid(), settings.application_id, ",".join(sorted(part.nodes)))
                table = cls._tables.get(name)
                if table is None:
                    table = cls._tables[name] = GlobalTable(part, settings)
                table.refresh()
                found.update(table.stores())
        return found
