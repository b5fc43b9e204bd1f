"""Brings the entries of changelogs to the partitions of other tasks, when their number has changed.

An entry is written to the partition it belongs to first, and deleted where it was afterwards. Whoever is
interrupted does it again: an entry that is in both places is the same in both, since no query runs
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ottla.records.murmur import key_partitions
from ottla.streams.application.shapes import KEY_SUFFIX_BYTES
from ottla.streams.on_spark.packets import latest_entries
from ottla.streams.on_spark.rows import OUTPUT_SCHEMA, OutputRows
from ottla.streams.records import OutputRecord
from ottla.streams.state.spec import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLIENT = "kafka."
# Settings of readers only.
_READING = {"kafka.isolation.level"}


@dataclass(frozen=True, slots=True)
class MovedEntries:
    """For ``mapInArrow`` on changelogs: the entries that belong elsewhere as rows for the sink, there or, as
    deletions, where they are."""

    suffix_bytes: Mapping[str, int]
    tasks: int
    deletes: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entries = latest_entries(batches)
        keys = [(each.key or b"")[: len(each.key or b"") - self.suffix_bytes[each.topic]] for each in entries]
        tasks = key_partitions(pa.array(keys, pa.binary()), self.tasks)
        rows = OutputRows()
        for index in np.flatnonzero(tasks != np.array([each.partition for each in entries], np.int32)):
            entry = entries[index]
            value, partition = (None, entry.partition) if self.deletes else (entry.value, int(tasks[index]))
            rows.add(OutputRecord(entry.topic, entry.key, value, entry.timestamp_ms, partition=partition))
        if rows.topics:
            yield rows.for_sink()


def move_entries(
    session: SparkSession, source_options: Mapping[str, str], stores: Mapping[str, StoreSpec], tasks: int
) -> None:
    """`stores` by the topics of their changelogs, which have enough partitions."""
    client = {name: value for name, value in source_options.items() if name.startswith(_CLIENT)}
    suffix_bytes = {topic: KEY_SUFFIX_BYTES[spec.kind] for topic, spec in stores.items()}
    for deletes in (False, True):
        reader = session.read.format("ottla").options(**client).option("subscribe", ",".join(stores))
        moved = reader.load().mapInArrow(MovedEntries(suffix_bytes, tasks, deletes), OUTPUT_SCHEMA)
        sink = {name: value for name, value in client.items() if name not in _READING}
        moved.write.format("ottla").options(**sink).mode("append").save()
