"""Topics as a data frame or a stream: what Spark asks of a source, answered from the cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.runtime.clock import Clock, SystemClock
from ottla.spark.connection import Connection, shared_connection
from ottla.spark.idling import Idling
from ottla.spark.positions import (
    CLUSTER,
    Offsets,
    Partition,
    Stored,
    TopicMissing,
    find_partitions,
    from_stored,
    offsets_at,
    resolve,
    to_stored,
)
from ottla.spark.pushdown import PushedFilters
from ottla.spark.range_reader import data_lost, read_range, read_ranges
from ottla.spark.ranges import OffsetRange, SmallRanges, limited, split, together
from ottla.spark.source_options import SourceOptions
from ottla.spark.values import decoded
from ottla.spark.workers import settle

# Spark asks an idle source for its latest offset dozens of times a second: each answer waits this long.
IDLE_WAIT_MS = 200


def _connect(options: SourceOptions) -> Connection:
    return shared_connection(options.bootstrap_servers, options.client_properties)


def _read(partition: InputPartition, options: SourceOptions, value_type: Any) -> Iterator[Any]:
    settle()
    match partition:
        case OffsetRange():
            batches = read_range(partition, options)
        case SmallRanges(ranges=ranges):
            batches = read_ranges(ranges, options)
        case _:
            # Spark plans one empty partition where there is nothing to read.
            return iter(())
    if value_type is None:
        return batches
    return (decoded(batch, options.values, value_type) for batch in batches)


class OttlaReader(DataSourceReader):
    """A topic as it is now, or between the offsets or times asked for."""

    def __init__(self, options: SourceOptions, value_type: Any = None) -> None:
        self._options = options
        self._value_type = value_type
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        connection = _connect(self._options)
        ranges = connection.run(self._plan(connection.cluster))
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._options, self._value_type)

    async def _plan(self, cluster: ClusterClient) -> list[OffsetRange]:
        options, pushed = self._options, self._pushed
        found = await find_partitions(cluster, options)
        start = await resolve(cluster, options.starting, found, options, is_start=True)
        end = await resolve(cluster, options.ending, found, options, is_start=False)
        wanted = [place for place in found if pushed.wants(*place)]
        since: Offsets = {}
        if pushed.timestamp_min_ms is not None:
            since = await offsets_at(cluster, wanted, max(pushed.timestamp_min_ms, 0), options)
        ranges = []
        for place in wanted:
            first, last = start[place], end[place]
            if place in since:
                first = max(first, since[place]) if since[place] >= 0 else last
            if pushed.offset_min is not None:
                first = max(first, pushed.offset_min)
            if pushed.offset_end is not None:
                last = min(last, pushed.offset_end)
            ranges.append(OffsetRange(*place, first, last))
        return ranges


class OttlaFilteringReader(OttlaReader):
    """A class of its own, since Spark refuses readers that take filters while its setting for them is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._pushed.take(filters)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches over topics. Partitions and topics that appear meanwhile are read from their start."""

    def __init__(self, options: SourceOptions, value_type: Any = None, clock: Clock | None = None) -> None:
        self._options = options
        self._value_type = value_type
        self._clock = clock or SystemClock()
        self._idling = Idling(options.max_task_idle_ms)
        self._initial: Stored | None = None
        self._latest: Offsets | None = None
        self._target: Offsets | None = None
        self._last_batch_ms = 0
        self._cluster_id: str | None = None

    def initialOffset(self) -> Stored:
        # Spark asks more than once, and the latest offset must not have moved in between.
        if self._initial is None:
            connection = _connect(self._options)
            self._initial = self._stored(
                connection, connection.run(self._resolve_initial(connection.cluster))
            )
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:
        connection = _connect(self._options)
        begin = from_stored(start)
        self._require_same_cluster(connection, start)
        end = connection.run(self._next_end(connection.cluster, begin, limit))
        # The same text where nothing is new, also where an earlier version wrote it, or Spark runs a batch.
        return start if end == begin else self._stored(connection, end)

    def reportLatestOffset(self) -> Stored | None:
        return None if self._latest is None else to_stored(self._latest, self._cluster_id)

    def prepareForTriggerAvailableNow(self) -> None:
        connection = _connect(self._options)
        self._target = connection.run(self._find_latest(connection.cluster, {}))

    def partitions(self, start: Stored, end: Stored) -> Sequence[InputPartition]:
        connection = _connect(self._options)
        ranges = connection.run(self._plan(connection.cluster, from_stored(start), from_stored(end)))
        options = self._options
        parts = split(ranges, options.min_partitions, options.max_records_per_partition)
        # Who says how many tasks there are, or how much is in one, gets that.
        is_free = options.min_partitions is None and options.max_records_per_partition is None
        return together(parts) if is_free else parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(partition, self._options, self._value_type)

    def _stored(self, connection: Connection, offsets: Offsets) -> Stored:
        return to_stored(offsets, self._cluster(connection))

    def _cluster(self, connection: Connection) -> str | None:
        if self._cluster_id is None:
            self._cluster_id = connection.run(connection.cluster.cluster()).cluster_id
        return self._cluster_id

    def _require_same_cluster(self, connection: Connection, start: Stored) -> None:
        before, now = start.get(CLUSTER), self._cluster(connection)
        if before is not None and now is not None and before != now:
            data_lost(
                f"The checkpoint has offsets of cluster {before}, and {self._options.bootstrap_servers} is "
                f"cluster {now}, where they mean other records.",
                self._options,
            )

    async def _resolve_initial(self, cluster: ClusterClient) -> Offsets:
        found = await find_partitions(cluster, self._options)
        return await resolve(cluster, self._options.starting, found, self._options, is_start=True)

    async def _next_end(self, cluster: ClusterClient, start: Offsets, limit: ReadLimit) -> Offsets:
        latest = self._target
        if latest is None:
            latest = await self._find_latest(cluster, start)
            if latest == start and start:
                await cluster.wait_for_records(
                    start, max_wait_ms=IDLE_WAIT_MS, read_committed=self._options.read_committed
                )
                latest = await self._find_latest(cluster, start)
        else:
            self._report_gone(start, latest)
        self._latest = latest
        begin = await self._with_new_partitions(cluster, start, latest)
        if self._options.max_task_idle_ms and self._target is None:
            latest, empty, wait_ms = self._idling.held(begin, latest, self._clock.now_ms())
            if latest == begin and wait_ms > 0:
                await cluster.wait_for_records(
                    {place: begin[place] for place in empty},
                    max_wait_ms=min(wait_ms, IDLE_WAIT_MS),
                    read_committed=self._options.read_committed,
                )
                return start
        if self._must_wait(begin, latest, limit):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = limited(begin, latest, limit.max_rows)
        if latest != start:
            self._last_batch_ms = self._clock.now_ms()
        return latest

    def _must_wait(self, begin: Offsets, latest: Offsets, limit: ReadLimit) -> bool:
        rows_min = self._options.min_offsets_per_trigger
        if rows_min is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        now_ms = self._clock.now_ms()
        self._last_batch_ms = self._last_batch_ms or now_ms
        available = sum(end - begin.get(place, end) for place, end in latest.items())
        return available < rows_min and now_ms - self._last_batch_ms < self._options.max_trigger_delay_ms

    async def _find_latest(self, cluster: ClusterClient, start: Offsets) -> Offsets:
        try:
            found = await find_partitions(cluster, self._options)
        except TopicMissing as error:
            data_lost(f"{error}", self._options)
            existing = await cluster.topics({topic for topic, _ in start})
            found = [place for place in start if place[0] in existing]
        self._report_gone(start, found)
        return await offsets_at(cluster, found, LATEST, self._options)

    def _report_gone(self, start: Offsets, found: Collection[Partition]) -> None:
        if gone := sorted(set(start) - set(found)):
            names = ", ".join(f"{topic}-{partition}" for topic, partition in gone)
            data_lost(f"{names} is no longer there: the topic was deleted.", self._options)

    async def _with_new_partitions(self, cluster: ClusterClient, start: Offsets, end: Offsets) -> Offsets:
        """Partitions that the start does not know are read from their first record."""
        new = [place for place in end if place not in start]
        return start | await offsets_at(cluster, new, EARLIEST, self._options) if new else start

    async def _plan(self, cluster: ClusterClient, start: Offsets, end: Offsets) -> list[OffsetRange]:
        begin = await self._with_new_partitions(cluster, start, end)
        ranges = []
        for place, last in sorted(end.items()):
            first = begin[place]
            if last < first:
                data_lost(
                    f"{place[0]}-{place[1]} was read up to offset {first} and now ends at {last}: the topic "
                    "was deleted and created again, or the brokers lost records.",
                    self._options,
                )
                first = (await offsets_at(cluster, [place], EARLIEST, self._options))[place]
            ranges.append(OffsetRange(*place, first, last))
        return ranges
