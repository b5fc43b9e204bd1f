"""What an offset of the source is in the target.

Offsets of both sides differ: aborted records stay behind, and each transaction adds a marker. Offset syncs
say of single records which number they have on either side. Behind a sync one record is certain, so an offset
after it becomes the one next to it: nothing is skipped, and what lies between is read again. `SyncHistory`
keeps so many syncs, and just those, that MirrorMaker 2 would; `Runs` knows of every record that this process
mirrored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.mirror.formats import OffsetSync

TOO_OLD: Final = -1
_SYNCS: Final = 64
_RUNS_MAX: Final = 20_000
_LATE_MS_MAX: Final = 60_000


class SyncHistory:
    """Syncs of one partition, as MirrorMaker 2 chooses them: dense near the end, sparser the older they are.

    A: the newest is kept. B: number j is no more than 2^j - 2^i records older than number i. C: neighbours
    are at least 2^(i-2) apart, or the same.
    """

    def __init__(self, first: OffsetSync, written_ms: int = 0) -> None:
        self._syncs = [first] * _SYNCS
        self._newest_ms = written_ms

    @property
    def newest(self) -> OffsetSync:
        return self._syncs[0]

    def add(self, sync: OffsetSync, written_ms: int = 0) -> bool:
        """Whether the target begins anew: what was known of it is too far."""
        newest = self._syncs[0]
        if sync.upstream < newest.upstream:
            # When a slot goes from one process to another, the last words of the first may come late.
            # Otherwise the source begins anew, and nothing of what was holds any more.
            if sync.downstream >= newest.downstream or written_ms - self._newest_ms > _LATE_MS_MAX:
                self._syncs = [sync] * _SYNCS
                self._newest_ms = written_ms
            return False
        self._newest_ms = written_ms
        if sync.downstream < newest.downstream:
            self._syncs = [sync] * _SYNCS
            return True
        original = self._syncs
        syncs = list(original)
        replacement = sync
        taken = 0
        syncs[0] = replacement
        for current in range(1, _SYNCS):
            previous = current - 1
            while True:
                old = original[taken]
                is_apart = _is_apart(syncs[previous], old, previous)
                is_usable = (
                    is_apart
                    and _is_recent(syncs[previous], old, previous, current)
                    and (current + 1 >= _SYNCS or _is_apart(old, syncs[current + 1], current))
                )
                if is_usable:
                    replacement = old
                is_repeated = taken + 1 < _SYNCS and old == original[taken + 1]
                is_skipped = is_repeated or not is_apart
                if is_usable or is_skipped:
                    taken += 1
                if not (taken < current and is_skipped):
                    break
            if _is_recent(syncs[previous], syncs[current], previous, current):
                break
            syncs[current] = replacement
        self._syncs = syncs
        return False

    def translate(self, upstream: int) -> int:
        """TOO_OLD for an offset before all syncs."""
        for sync in self._syncs:
            if sync.upstream <= upstream:
                return sync.downstream + (upstream != sync.upstream)
        return TOO_OLD


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    return newer == older or newer.upstream <= older.upstream + (1 << j) - (1 << i)


def _is_apart(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    return newer == older or newer.upstream >= older.upstream + (1 << max(i - 2, 0))


class Run(NamedTuple):
    """Records that follow each other without a gap on both sides."""

    upstream: int
    downstream: int
    records: int


class Runs:
    """All that was mirrored of a partition by this process, or the newest of it: exact, and in memory
    alone."""

    def __init__(self) -> None:
        self._runs: deque[Run] = deque(maxlen=_RUNS_MAX)

    def add(self, runs: Sequence[Run]) -> None:
        for run in runs:
            last = self._runs[-1] if self._runs else None
            if last is not None and (
                run.upstream < last.upstream + last.records or run.downstream < last.downstream + last.records
            ):
                # The source or the target begins anew: what was known is of records that are gone there.
                self._runs.clear()
                last = None
            if (
                last is not None
                and run.upstream == last.upstream + last.records
                and run.downstream == last.downstream + last.records
            ):
                self._runs[-1] = last._replace(records=last.records + run.records)
            else:
                self._runs.append(run)

    def translate(self, upstream: int) -> int | None:
        """None for what lies before all that is known."""
        at = bisect_right(self._runs, upstream, key=lambda run: run.upstream) - 1
        if at < 0:
            return None
        run = self._runs[at]
        return run.downstream + min(upstream - run.upstream, run.records)
