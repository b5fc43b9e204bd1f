"""Queries as data frames: from topics through tasks to rows for the sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from ottla.spark.positions import to_stored
from ottla.spark.task_writing import Stage, Staged, Unencoded
from ottla.streams.on_spark.column_evaluator import as_column
from ottla.streams.on_spark.columns import (
    ColumnHead,
    apply_columns,
    as_text,
    column_heads,
    decode,
    encode,
    ends_at,
    refuse_columns,
    without_head,
)
from ottla.streams.on_spark.packets import (
    PACKETS,
    PackStage,
    grown,
    restored_packets,
)
from ottla.streams.on_spark.query_plan import Aggregation, Kind, Query, results_topic
from ottla.streams.on_spark.rows import AGGREGATED_SCHEMA
from ottla.streams.on_spark.subscriptions import Subscription, subscriptions
from ottla.streams.on_spark.worker_tasks import StatelessStage, TaskProcessor, TaskSettings
from ottla.streams.operators.stateless import ToStream
from ottla.streams.plan.partitions import task_count
from ottla.streams.plan.plan import Plan, ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData, SparkSession

# As Spark's Kafka source names the ends of a partition.
_SPECIAL_OFFSETS = {"earliest": -2, "latest": -1}


class QueryBuilder:
    """Makes the data frame of a query."""

    def __init__(
        self,
        session: SparkSession,
        settings: TaskSettings,
        source_options: Mapping[str, str],
        *,
        offset_reset: str,
        begin: Mapping[tuple[str, int], int],
        restored: Mapping[tuple[str, int], int],
    ) -> None:
        """`begin` are the offsets to begin at, where there is no checkpoint to go on from; `restored` are the
        ends of the changelogs that hold the state of then."""
        self._session = session
        self._settings = settings
        self._source_options = dict(source_options)
        self._offset_reset = offset_reset
        self._begin = begin
        self._restored = restored

    def build(self, query: Query) -> DataFrame | Unencoded:
        """Rows with topic, key, value, headers, partition and timestamp."""
        self._settings = replace(self._settings, query=query.label)
        match query.kind:
            case Kind.STATELESS:
                return self._stateless(query.plan)
            case Kind.TASKS:
                return self._tasks(query)
            case Kind.AGGREGATION:
                assert query.aggregation is not None
                return self._aggregation(query, query.aggregation)

    def _read(self, sources: list[SourceNode]) -> DataFrame:
        """Records of topics, for sources that may begin at different ends."""
        return _union([self._subscribe(each) for each in subscriptions(sources, self._offset_reset)])

    def _subscribe(self, subscription: Subscription) -> DataFrame:
        from pyspark.sql import functions

        reader = self._session.readStream.format("ottla")
        reader = reader.option("startingOffsets", self._starting_offsets(subscription))
        if subscription.pattern is None:
            reader = reader.option("subscribe", ",".join(subscription.topics))
        else:
            reader = reader.option("subscribePattern", subscription.pattern)
        # To hand a column of null lists to Python, Spark goes through all rows again for each row.
        records = reader.options(**self._source_options).option("includeHeaders", "true").load()
        return records.withColumn("headers", functions.expr("coalesce(headers, array())"))

    def _starting_offsets(self, subscription: Subscription) -> str:
        counts = self._settings.partition_counts
        topics = subscription.matching(counts)
        begun = {topic for topic, _ in self._begin}
        if not begun & set(topics):
            return subscription.reset
        # A partition that came later is read from its first record, as it would be while a query runs.
        other = {topic: "earliest" if topic in begun else subscription.reset for topic in topics}
        return _offsets_text(
            {
                (topic, number): self._begin.get((topic, number), _SPECIAL_OFFSETS[other[topic]])
                for topic in topics
                for number in range(counts[topic])
            }
        )

    def _changelogs(self, plan: Plan) -> GroupedData | None:
        """What the stores of tasks held when the query had come to where it begins."""
        if not self._restored:
            return None
        options = {name: value for name, value in self._source_options.items() if name.startswith("kafka.")}
        topics = ",".join(sorted({topic for topic, _ in self._restored}))
        reader = self._session.read.format("ottla").options(**options).option("subscribe", topics)
        records = reader.option("endingOffsets", _offsets_text(self._restored)).load()
        restored = partial(
            restored_packets, versioned=plan.versioned_changelogs(self._settings.application_id)
        )
        return records.mapInArrow(restored, PACKETS).groupBy("slot")

    def _stateless(self, plan: Plan) -> DataFrame | Unencoded:
        heads = column_heads(plan)
        native = [(head, sink) for head in heads if head.nodes and (sink := ends_at(plan, head)) is not None]
        if len(native) == len(heads):
            rows = [_sink_rows(apply_columns(head, self._read([head.source])), sink) for head, sink in native]
            return _union(rows)
        frame, rest = self._behind_columns(plan, heads)
        return self._staged(frame, StatelessStage(rest, self._settings))

    def _staged(self, frame: DataFrame, stage: Stage) -> Unencoded:
        """What a stage makes of rows, encoded in the same worker: between two, rows would go through Java."""
        return Unencoded(self._session, lambda encode, types: frame.mapInArrow(Staged(stage, encode), types))

    def _shuffled(self, number: int, part: Plan, tasks: int, *, by_key_only: bool) -> DataFrame:
        """The output of a stateless part as packets for tasks, or as rows for Spark's own aggregation."""
        heads = column_heads(part)
        native = [(head, sink) for head in heads if head.nodes and (sink := ends_at(part, head)) is not None]
        if by_key_only and len(native) == len(heads):
            frames = [
                _aggregated_rows(apply_columns(head, self._read([head.source])), sink)
                for head, sink in native
            ]
            return _union(frames)
        frame, rest = self._behind_columns(part, heads)
        stage = StatelessStage(rest, self._settings, tasks, by_key_only=by_key_only, number=number)
        return frame.mapInArrow(stage, AGGREGATED_SCHEMA if by_key_only else PACKETS)

    def _behind_columns(self, plan: Plan, heads: list[ColumnHead]) -> tuple[DataFrame, Plan]:
        """Records after the expressions right behind sources, and the plan of what is left to do."""
        plain = [head.source for head in heads if not head.nodes]
        if len(plain) == len(heads):
            return self._read(plain).drop("timestampType"), plan
        frames = []
        if plain:
            records = self._read(plain)
            origins = {"origin_topic": records["topic"], "origin_partition": records["partition"]}
            frames.append(records.drop("timestampType").withColumns(origins))
        for head in heads:
            if head.nodes:
                rows, source = as_text(apply_columns(head, self._read([head.source])), head)
                frames.append(rows)
                plan = without_head(plan, head, source)
        return _union(frames), plan

    def _inputs(self, query: Query) -> DataFrame:
        """Everything a stateful query works on: packets for tasks, or rows for Spark's own aggregation."""
        tasks = task_count(query.plan, self._settings.partition_counts)
        by_key_only = query.kind is Kind.AGGREGATION
        frames = [
            self._shuffled(number, part, tasks, by_key_only=by_key_only)
            for number, part in enumerate(query.upstream)
        ]
        own = query.own_sources()
        if own:
            records = self._read(own)
            if by_key_only:
                text = grown("the topic", tasks)
                partition = f"if(partition < {tasks}, partition, raise_error('StreamsError: {text}'))"
                frames.append(
                    records.selectExpr(
                        "unix_millis(timestamp) AS timestamp_ms", "key", "value", f"{partition} AS partition"
                    )
                )
            else:
                frames.append(records.mapInArrow(PackStage(tasks, query.by_key), PACKETS))
        return _union(frames)

    def _tasks(self, query: Query) -> Unencoded:
        refuse_columns(query.plan)
        timers = query.has_clock_timers
        time_mode = "ProcessingTime" if timers else "None"
        grouped = self._inputs(query).groupBy("slot")
        changelogs = self._changelogs(query.plan)
        settings = self._settings

        def encoded(encode: Stage, types: str) -> DataFrame:
            processor = TaskProcessor(query.plan, settings, encode, with_timers=timers)
            return grouped.transformWithState(processor, types, "Update", time_mode, changelogs)

        return Unencoded(self._session, encoded)

    def _aggregation(self, query: Query, aggregation: Aggregation) -> DataFrame | Unencoded:
        from pyspark.sql import functions

        rows = self._inputs(query).where("key IS NOT NULL AND value IS NOT NULL")
        store = aggregation.store
        if aggregation.column is None:
            result: Column = functions.count("*")
        else:
            rows = rows.withColumn("value", functions.expr(decode(aggregation.source.value, "value")))
            result = as_column(aggregation.column.expression)
        # Where a task for the key would be: behind a shuffle its hash says so, else the key's records do.
        where = "CAST(NULL AS INT)" if query.shuffled_topics or query.by_key else "max(partition)"
        totals = rows.groupBy("key").agg(
            functions.max("timestamp_ms").alias("timestamp_ms"),
            result.alias("result"),
            functions.expr(where).alias("partition"),
        )
        encoded = totals.selectExpr(
            "key", f"{encode(store.value, 'result')} AS value", "timestamp_ms", "partition"
        )
        sink = _only_sink(aggregation)
        targets = [
            topic
            for name, topic in query.plan.changelogs(self._settings.application_id).items()
            if name == store.name
        ]
        if sink is not None:
            targets.append(sink)
        elif not any(isinstance(node, SinkNode) for node in aggregation.rest.nodes.values()) and targets:
            pass
        else:
            return self._behind_aggregation(encoded, aggregation, targets)
        places = {each: "CAST(NULL AS INT)" if each == sink else "partition" for each in targets}
        rows_of = ", ".join(
            f"named_struct('topic', '{each}', 'partition', {place})" for each, place in places.items()
        )
        return encoded.selectExpr(
            f"inline(array({rows_of}))",
            "key",
            "value",
            "CAST(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
            "timestamp_millis(timestamp_ms) AS timestamp",
        )

    def _behind_aggregation(self, encoded: DataFrame, aggregation: Aggregation, logs: list[str]) -> Unencoded:
        """Runs the nodes behind Spark's aggregation on its results."""
        topic = results_topic(aggregation.node)
        rows = encoded.selectExpr(
            f"'{topic}' AS topic",
            "coalesce(partition, -1) AS partition",
            "CAST(-1 AS BIGINT) AS offset",
            "timestamp_millis(timestamp_ms) AS timestamp",
            "key",
            "value",
        )
        return self._staged(rows, StatelessStage(aggregation.rest, self._settings, copy_to=tuple(logs)))


def _offsets_text(offsets: Mapping[tuple[str, int], int]) -> str:
    return json.dumps(to_stored(offsets))


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(lambda first, second: first.unionByName(second), frames)


def _sink_rows(typed: DataFrame, sink: SinkNode) -> DataFrame:
    return typed.selectExpr(
        f"'{sink.topic}' AS topic",
        f"{encode(sink.key, 'key')} AS key",
        f"{encode(sink.value, 'value')} AS value",
        "headers",
        "CAST(NULL AS INT) AS partition",
        "timestamp",
    )


def _aggregated_rows(typed: DataFrame, sink: SinkNode) -> DataFrame:
    return typed.selectExpr(
        "unix_millis(timestamp) AS timestamp_ms",
        f"{encode(sink.key, 'key')} AS key",
        f"{encode(sink.value, 'value')} AS value",
    )


def _only_sink(aggregation: Aggregation) -> str | None:
    """The topic, if results go to one as they are and nothing else happens to them."""
    names = aggregation.rest.children[aggregation.node]
    if len(names) != 1 or len(aggregation.rest.nodes) != 3:
        return None
    first = aggregation.rest.nodes[names[0]]
    if not isinstance(first, ProcessorNode) or not isinstance(first.operator, ToStream):
        return None
    (last,) = aggregation.rest.children[first.name] or (None,)
    sink = aggregation.rest.nodes.get(last or "")
    store = aggregation.store
    if not isinstance(sink, SinkNode) or not isinstance(sink.topic, str) or sink.partitioner is not None:
        return None
    return sink.topic if (sink.key, sink.value) == (store.key, store.value) else None
