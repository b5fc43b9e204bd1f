"""Which offsets one task reads, and how many a micro-batch takes from each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from ottla.spark.positions import Offsets, Partition

# A task costs as much time as the work on some hundreds of records.
TOGETHER_MAX = 500


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    topic: str
    partition: int
    start: int
    end: int
    """Exclusive."""

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class SmallRanges(InputPartition):
    """What one task reads of several partitions, one after the other."""

    ranges: tuple[OffsetRange, ...]


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Large ranges cut into equal parts until there are as many, or as small ones, as asked for."""
    parts: list[OffsetRange] = []
    wanted = [found for found in ranges if found.size > 0]
    total = sum(found.size for found in wanted)
    for found in wanted:
        count = 1
        if max_records is not None:
            count = -(-found.size // max_records)
        if min_partitions is not None and min_partitions > len(wanted):
            count = max(count, round(min_partitions * found.size / total))
        count = min(count, found.size)
        cuts = [found.start + found.size * n // count for n in range(count + 1)]
        parts += [OffsetRange(found.topic, found.partition, a, b) for a, b in pairwise(cuts)]
    return parts


def together(parts: Iterable[OffsetRange]) -> list[InputPartition]:
    """Small ranges share tasks: most of the time of a small micro-batch goes into starting its tasks."""
    large: list[InputPartition] = []
    small: list[list[OffsetRange]] = []
    left = 0
    for part in parts:
        if part.size > TOGETHER_MAX:
            large.append(part)
            continue
        if part.size > left:
            small.append([])
            left = TOGETHER_MAX
        small[-1].append(part)
        left -= part.size
    return large + [SmallRanges(tuple(ranges)) for ranges in small]


def limited(start: Mapping[Partition, int], latest: Offsets, rows_max: int) -> Offsets:
    """At most so many rows, from each partition in proportion to what it has; none waits forever."""
    sizes = {partition: end - start.get(partition, end) for partition, end in latest.items()}
    # A partition that ends before its start has lost records; whoever plans the batch has to see that.
    ends: Offsets = {partition: latest[partition] for partition, size in sizes.items() if size <= 0}
    sizes = {partition: size for partition, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    if total <= rows_max:
        return latest
    left = rows_max
    for partition, size in sorted(sizes.items(), key=lambda item: (item[1], item[0])):
        # Rounded up for the small ones, which come first, so that a partition with one row gets its turn.
        share = min(size, -(-rows_max * size // total), left)
        ends[partition] = start.get(partition, latest[partition]) + share
        left -= share
    return ends
