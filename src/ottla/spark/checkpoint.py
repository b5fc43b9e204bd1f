"""What a streaming query's checkpoint says: who the query is, and up to where a micro-batch reads.

Spark writes the offsets of a micro-batch down before it runs it, and never changes them: after a failure the
same micro-batch is run again. So this is exact, also for rows that a filter dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ottla.spark.engine import HadoopFiles
from ottla.spark.positions import CLUSTER, Offsets


class SourceOffsets(NamedTuple):
    cluster_id: str | None
    """None where the checkpoint does not say: an earlier version wrote it, or Spark's own Kafka source."""
    offsets: Offsets


class Checkpoint:
    """Read through Spark's own file systems: a local path, hdfs://, s3a://, whatever the query can use."""

    def __init__(self, spark: Any, location: str) -> None:
        self._files = HadoopFiles(spark)
        self._location = location.rstrip("/")
        self._local = _local_path(self._location, self._files.default_system)

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine, as far as its name tells."""
        return self._local is not None

    def query_id(self) -> str:
        """Stays the same over restarts, and is another one when the checkpoint is deleted."""
        return str(json.loads(self._read("metadata"))["id"])

    def source_offsets(self, batch_id: int) -> list[SourceOffsets]:
        """Where this micro-batch ends in each partition that it reads, for sources that are topics."""
        return list(topic_offsets(self._read(f"offsets/{batch_id}")))

    def taken(self, batch_id: int) -> int | None:
        """How many records this micro-batch reads at most, where all sources are topics and there was one
        before it."""
        if batch_id == 0:
            return None
        begin, end = (_all_offsets(self._read(f"offsets/{number}")) for number in (batch_id - 1, batch_id))
        if begin is None or end is None:
            return None
        return sum(offset - begin.get(place, 0) for place, offset in end.items())

    def _read(self, name: str) -> str:
        if self._local is not None:
            # Each call into Java takes as long as reading the file.
            return Path(self._local, name).read_text()
        return self._files.read(self._files.path(f"{self._location}/{name}"))


def _local_path(location: str, default_system: str) -> str | None:
    """Where it is on this machine, if it is."""
    if location.startswith("file:/"):
        return location.removeprefix("file:").replace("//", "")
    return location if "://" not in location and default_system.startswith("file:") else None


def _all_offsets(log_entry: str) -> dict[tuple[int, str, int], int] | None:
    """By source, topic and partition; None where a source is something else, or has not begun."""
    found: dict[tuple[int, str, int], int] = {}
    for number, line in enumerate(log_entry.splitlines()[2:]):
        source = next(topic_offsets(f"\n\n{line}"), None)
        if source is None:
            return None
        found |= {(number, *place): offset for place, offset in source.offsets.items()}
    return found


def topic_offsets(log_entry: str) -> Iterator[SourceOffsets]:
    """Of an entry of the offset log: a version, a line about the batch, and a line of JSON per source.

    Sources that read topics write {"topic": {"partition": offset}}, ours also of which cluster; others write
    other things.
    """
    for line in log_entry.splitlines()[2:]:
        try:
            stored = json.loads(line)
        except ValueError:
            continue
        if not isinstance(stored, dict):
            continue
        offsets = {
            (topic, int(partition)): offset
            for topic, partitions in stored.items()
            if isinstance(partitions, dict)
            for partition, offset in partitions.items()
            if partition.isdecimal() and isinstance(offset, int) and offset >= 0
        }
        if offsets:
            yield SourceOffsets(stored.get(CLUSTER), offsets)
