"""To which partition each row goes: the one it names, else its key's, else any, many rows together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ottla.records.murmur import key_partitions

SPREAD_ROWS_MIN: Final = 512
"""So many rows without a key stay together at least: few large batches are cheaper than many small ones."""

PartitionCounts = Callable[[Sequence[str]], Mapping[str, int]]


class UnknownTarget(ValueError):
    """A row names a topic or partition that there is not."""


class Router:
    """`partition_counts` tells how many partitions topics have; it raises for topics that do not exist."""

    def __init__(self, topic: str | None, partition_counts: PartitionCounts, spread_from: int) -> None:
        self._topic = topic
        self._partition_counts = partition_counts
        self._spread_from = spread_from

    def route(self, rows: Any, keys: Any) -> tuple[npt.NDArray[np.int32], list[tuple[str, int]]]:
        """A number per row of a pa.RecordBatch, and the topic and partition that each number stands for."""
        named = _column(rows, "partition")
        if self._topic is not None:
            targets = self._partitions(self._topic, keys, named, rows.num_rows)
            count = self._partition_counts([self._topic])[self._topic]
            return targets, [(self._topic, partition) for partition in range(count)]
        column = _column(rows, "topic")
        if column.null_count:
            row = pc.index(column.is_null(), pa.scalar(True)).as_py()
            raise UnknownTarget(
                f"The column topic is null in row {row} of {rows.num_rows}: each row needs one."
            )
        encoded = column.dictionary_encode()
        topics: list[str] = encoded.dictionary.to_pylist()
        counts = self._partition_counts(topics)
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        targets = np.empty(rows.num_rows, np.int32)
        meaning: list[tuple[str, int]] = []
        for code, topic in enumerate(topics):
            chosen = np.flatnonzero(codes == code)
            picked = pa.array(chosen)
            keys_here = None if keys is None else keys.take(picked)
            named_here = None if named is None else named.take(picked)
            targets[chosen] = len(meaning) + self._partitions(topic, keys_here, named_here, len(chosen))
            meaning += [(topic, partition) for partition in range(counts[topic])]
        return targets, meaning

    def _partitions(self, topic: str, keys: Any, named: Any, row_count: int) -> npt.NDArray[np.int32]:
        count = self._partition_counts([topic])[topic]
        if keys is None:
            partitions = self._spread(row_count, count)
        else:
            partitions = key_partitions(keys, count)
            if keys.null_count:
                without_key = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
                partitions[without_key] = self._spread(len(without_key), count)
        if named is None or named.null_count == len(named):
            return partitions
        given = np.flatnonzero(named.is_valid().to_numpy(zero_copy_only=False))
        numbers = named.drop_null().to_numpy(zero_copy_only=False)
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if len(wrong):
            raise UnknownTarget(
                f"The column partition is {wrong[0]} for topic {topic}, "
                f"whose partitions are 0 to {count - 1}."
            )
        partitions[given] = numbers
        return partitions

    def _spread(self, row_count: int, partition_count: int) -> npt.NDArray[np.int32]:
        together = max(SPREAD_ROWS_MIN, -(-row_count // partition_count))
        first = self._spread_from
        self._spread_from += max(1, -(-row_count // together))
        return ((first + np.arange(row_count) // together) % partition_count).astype(np.int32)


def _column(rows: Any, name: str) -> Any:
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)
