"""What became of the transactions that records are of.

Up to the last stable offset the answer to a fetch says which were aborted; all others there were committed.
Behind it every record still waits: for the end of its own transaction, or for that of one that began earlier.
So there the markers that follow are looked for, a little way, and then the leader is asked which producers
have a transaction open.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ottla.client.admin.topics import Partition
from ottla.client.admin.transactions import describe_producers
from ottla.client.cluster import ClusterClient
from ottla.client.fetch import Aborted
from ottla.console.problems import EXPECTED
from ottla.records.batch import iter_headers
from ottla.records.compression import CorruptRecords
from ottla.records.markers import read_marker

Outcome: TypeAlias = Literal["committed", "aborted", "open", "ended", "unknown"]
"""`ended`: its marker is too far away to be looked for. `unknown`: so is it, and the leader does not say."""

LOOK_BYTES = 1 << 20
LOOKS_MAX = 4


class Told:
    """Up to the last stable offset, as a consumer works it out: batches in turn, with their markers."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset)
        self._aborting: set[int] = set()

    def of(self, header: Any) -> Outcome:
        while self._coming and self._coming[0].first_offset <= header.last_offset:
            self._aborting.add(self._coming.pop(0).producer_id)
        return "aborted" if header.producer_id in self._aborting else "committed"

    def marker(self, batch: memoryview, producer_id: int) -> None:
        if _is_commit(batch) is not None:
            self._aborting.discard(producer_id)


class Followed:
    """Behind the last stable offset, by the markers that come after a batch in the same answer."""

    def __init__(self, records: memoryview) -> None:
        self._at: dict[int, list[int]] = defaultdict(list)
        self._outcomes: dict[int, list[Outcome]] = defaultdict(list)
        for at, header in iter_headers(records):
            if header.is_control:
                is_commit = _is_commit(records[at : at + header.size])
                if is_commit is not None:
                    self._at[header.producer_id].append(header.base_offset)
                    self._outcomes[header.producer_id].append("committed" if is_commit else "aborted")

    def of(self, header: Any) -> Outcome | None:
        """None where the end of its transaction is not among them."""
        after = bisect_right(self._at[header.producer_id], header.base_offset)
        outcomes = self._outcomes[header.producer_id]
        return outcomes[after] if after < len(outcomes) else None

    def marker(self, batch: memoryview, producer_id: int) -> None:
        """All are known from the beginning."""


async def outcomes_ahead(
    client: ClusterClient, place: Partition, offset: int, end: int, producers: set[int]
) -> Mapping[int, Outcome]:
    """How the transactions go on that these producers have not ended before `offset`; `end` is where the log
    ends."""
    found: dict[int, Outcome] = {}
    for _ in range(LOOKS_MAX):
        if offset >= end or producers <= found.keys():
            break
        fetched = await client.fetch(
            place.topic, place.number, offset, max_wait_ms=0, max_bytes=LOOK_BYTES, read_committed=False
        )
        if not fetched.records:
            break
        for at, header in iter_headers(fetched.records):
            offset = header.last_offset + 1
            if header.is_control and header.producer_id in producers:
                is_commit = _is_commit(fetched.records[at : at + header.size])
                if is_commit is not None:
                    found.setdefault(header.producer_id, "committed" if is_commit else "aborted")
    left = producers - found.keys()
    if not left:
        return found
    if offset >= end:
        return {**dict.fromkeys(left, "open"), **found}
    try:
        active = (await describe_producers(client, [place])).get(place, [])
    except EXPECTED:
        return {**dict.fromkeys(left, "unknown"), **found}
    are_open = {each.id for each in active if each.transaction_start is not None}
    return {**{each: "open" if each in are_open else "ended" for each in left}, **found}


def _is_commit(batch: memoryview) -> bool | None:
    """None for what is no marker of an end, or cannot be read."""
    try:
        marker = read_marker(batch)
    except CorruptRecords:
        return None
    return None if marker is None else marker.committed
