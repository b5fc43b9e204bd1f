"""State batches made one list: in order, without overlaps, as few as can be.

Where two say something of one record, the higher delivery count is the later word, and among equal counts the
higher state: a record is available before it is acknowledged or archived.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ottla.coordinator.share.records import StateBatch


def combine(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Nothing of what lies before the start offset is kept; -1: there is none yet."""
    ahead = sorted(
        (max(batch.first_offset, start_offset), batch.last_offset, batch.delivery_count, batch.delivery_state)
        for batch in batches
        if batch.last_offset >= start_offset
    )
    combined: list[StateBatch] = []
    # Those that are open at an offset, the one that counts first.
    open_batches: list[tuple[int, int, int]] = []
    at = next_one = 0
    while open_batches or next_one < len(ahead):
        if not open_batches:
            at = ahead[next_one][0]
        while next_one < len(ahead) and ahead[next_one][0] == at:
            _, last, count, state = ahead[next_one]
            heapq.heappush(open_batches, (-count, -state, last))
            next_one += 1
        count, state, last = -open_batches[0][0], -open_batches[0][1], open_batches[0][2]
        if next_one < len(ahead):
            last = min(last, ahead[next_one][0] - 1)
        _append(combined, StateBatch(at, last, state, count))
        at = last + 1
        while open_batches and open_batches[0][2] < at:
            heapq.heappop(open_batches)
    return tuple(combined)


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        before = combined[-1]
        if (
            before.last_offset + 1 == batch.first_offset
            and before.delivery_state == batch.delivery_state
            and before.delivery_count == batch.delivery_count
        ):
            combined[-1] = StateBatch(
                before.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
            )
            return
    combined.append(batch)
