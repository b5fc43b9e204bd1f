"""Offsets inside open transactions: kept apart until the transaction ends, then applied or dropped.

Of two commits for a partition the one written later counts, whichever kind it is and whenever its transaction
ends. So what a later commit has overtaken will not be applied any more, but it stays open: readers of stable
offsets wait for the transaction all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.coordinator.groups.offset_records import OffsetCommitKey, OffsetCommitValue


class Pending(NamedTuple):
    order: int
    """Grows with every record, as offsets in the log do."""
    value: OffsetCommitValue | None
    """None: overtaken."""


class PendingOffsets:
    __slots__ = ("_by_producer", "_open", "_order")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetCommitKey, Pending]] = {}
        self._open: dict[str, dict[OffsetCommitKey, dict[int, None]]] = {}
        """Producers with an open transaction, by group and partition; dicts for their order."""
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        self._order += 1
        self._by_producer.setdefault(producer_id, {})[key] = Pending(self._order, value)
        self._open.setdefault(key.group, {}).setdefault(key, {})[producer_id] = None

    def overtake(self, key: OffsetCommitKey) -> None:
        """Something committed is newer than all that is open for this partition."""
        self._overtake(key, self._order + 1)

    def _overtake(self, key: OffsetCommitKey, order: int) -> None:
        for producer_id in self._open.get(key.group, {}).get(key, ()):
            pending = self._by_producer[producer_id]
            if pending[key].order < order:
                pending[key] = Pending(pending[key].order, None)

    def remove(self, key: OffsetCommitKey) -> None:
        """The partition's offsets have been deleted, those to come with open transactions as well."""
        for producer_id in self._open.get(key.group, {}).get(key, ()):
            pending = self._by_producer[producer_id]
            del pending[key]
            if not pending:
                del self._by_producer[producer_id]
        self._close(key)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """The transaction is over; what of it is to be applied."""
        ended = self._by_producer.pop(producer_id, {})
        result = []
        for key, pending in ended.items():
            producers = self._open[key.group][key]
            del producers[producer_id]
            if not producers:
                self._close(key)
            if committed and pending.value is not None:
                self._overtake(key, pending.order)
                result.append((key, pending.value))
        return result

    def _close(self, key: OffsetCommitKey) -> None:
        partitions = self._open.get(key.group, {})
        partitions.pop(key, None)
        if not partitions:
            self._open.pop(key.group, None)

    def is_open(self, key: OffsetCommitKey) -> bool:
        return key in self._open.get(key.group, {})

    def has_group(self, group_id: str) -> bool:
        return group_id in self._open

    def partitions(self, group_id: str) -> list[OffsetCommitKey]:
        return list(self._open.get(group_id, ()))

    def of_topic(self, name: str) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """What is to come for this topic, by partition and transaction."""
        for pending in self._by_producer.values():
            for key, (_, value) in pending.items():
                if key.topic == name and value is not None:
                    yield key, value
