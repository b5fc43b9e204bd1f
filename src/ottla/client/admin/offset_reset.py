"""Where a group may go on reading: the offsets of partitions at an end, at a time, or within their bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.topics import Partition, offsets_or_fail
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient

_NO_OFFSET = -1


async def offsets_at(
    cluster: ClusterClient, partitions: Iterable[Partition], time: int
) -> dict[Partition, int]:
    """EARLIEST, LATEST, or the first record of a time in ms or later: the end where there is none."""
    wanted = dict.fromkeys(partitions, time)
    if not wanted:
        return {}
    found = {place: at.offset for place, at in (await offsets_or_fail(cluster, wanted)).items()}
    none = [place for place, offset in found.items() if offset == _NO_OFFSET]
    ends = await offsets_at(cluster, none, LATEST)
    return dict(sorted({**found, **ends}.items()))


async def within_bounds(cluster: ClusterClient, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
    """Each offset, or the end of its partition that is nearest to it."""
    starts, ends = await offsets_at(cluster, wanted, EARLIEST), await offsets_at(cluster, wanted, LATEST)
    return {place: min(max(wanted[place], starts[place]), ends[place]) for place in sorted(wanted)}
