"""Transactions that were aborted, as the log itself tells: data first, then the marker that ends it."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.records.batch import BatchHeader
from ottla.records.records import iter_records
from ottla.runtime.disk import ReadableBuffer

ABORT = 0
COMMIT = 1

_MARKER_KEY = struct.Struct(">hh")  # version, type


class AbortedTransaction(NamedTuple):
    first_offset: int
    last_offset: int
    """Of the marker."""
    producer_id: int
    last_stable_offset: int = -1
    """Of the log right after the marker, where that is known."""


def marker_type(batch: ReadableBuffer) -> int | None:
    """Of a control batch: ABORT, COMMIT or something else; None where compaction has emptied it."""
    for record in iter_records(batch):
        if record.key is not None and len(record.key) >= _MARKER_KEY.size:
            return int(_MARKER_KEY.unpack_from(record.key)[1])
    return None


class AbortedScan:
    """Told of every transactional batch in order, it knows which belong to aborted transactions."""

    def __init__(self) -> None:
        self._first_offsets: dict[int, int] = {}
        self.found: list[AbortedTransaction] = []

    def data(self, header: BatchHeader) -> None:
        self._first_offsets.setdefault(header.producer_id, header.base_offset)

    def marker(self, header: BatchHeader, kind: int | None) -> None:
        first = self._first_offsets.pop(header.producer_id, None)
        if kind == ABORT and first is not None:
            self.found.append(AbortedTransaction(first, header.last_offset, header.producer_id))


class TransactionWalk:
    """Walks a log with its aborted transactions: which data to drop, and which markers have none left."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._waiting = deque(sorted(aborted))
        self._aborting: dict[int, bool] = {}
        """Producers inside an aborted transaction, and whether any of its data was met."""
        self._committing: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Of a batch of data."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._aborting[header.producer_id] = True
            return True
        self._committing.add(header.producer_id)
        return False

    def end(self, header: BatchHeader, kind: int | None) -> bool:
        """At a marker: whether no data of its transaction is left, so that in time it may go, too."""
        self._advance(header.last_offset)
        met = header.producer_id in self._committing
        self._committing.discard(header.producer_id)
        if kind == ABORT:
            return not self._aborting.pop(header.producer_id, met)
        # Other control records are not about transactions.
        return kind is None or (kind == COMMIT and not met)

    def _advance(self, offset: int) -> None:
        while self._waiting and self._waiting[0].first_offset <= offset:
            self._aborting[self._waiting.popleft().producer_id] = False
