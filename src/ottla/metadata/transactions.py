"""Metadata transactions: records between Begin and End count together or, after Abort, not at all.

Ottla writes each change as one batch and needs none, but Apache Kafka's controller brackets what it writes to
an empty log, so a log that comes from there has them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.metadata.records import MetadataRecord, MetadataRecordError, RecordType


class MetadataTransactions:
    """Takes all records in the order of the log and gives back those that count."""

    def __init__(self) -> None:
        self._pending: list[MetadataRecord] = []
        self._begun_at: int | None = None

    @property
    def is_open(self) -> bool:
        """A transaction has neither ended nor been aborted: its records do not count yet."""
        return self._begun_at is not None

    def counting(self, records: Iterable[MetadataRecord], base_offset: int = 0) -> list[MetadataRecord]:
        """Of what was pending and of `records`, which follow each other from this offset on."""
        counting: list[MetadataRecord] = []
        for offset, record in enumerate(records, base_offset):
            match record.API_KEY:
                case RecordType.BEGIN_TRANSACTION:
                    if self.is_open:
                        raise MetadataRecordError("a metadata transaction begins inside another one")
                    self._begun_at = offset
                case RecordType.END_TRANSACTION | RecordType.ABORT_TRANSACTION as kind:
                    if not self.is_open:
                        raise MetadataRecordError(f"{kind.name} stands outside a metadata transaction")
                    if kind is RecordType.END_TRANSACTION:
                        counting += self._pending
                    self._begun_at, self._pending = None, []
                case _:
                    (self._pending if self.is_open else counting).append(record)
        return counting

    def whole_upto(self, offset: int) -> int:
        """The last offset, of those up to this one, before which nothing is pending."""
        return offset if self._begun_at is None else min(offset, self._begun_at - 1)
