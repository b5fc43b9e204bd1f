"""Metadata transactions: records between Begin and End count together or, after Abort, not at all.

Ottla writes each change as one batch and needs none, but Apache Kafka's controller brackets what it writes to
an empty log, so a log that comes from there has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.metadata.records import MetadataRecord, MetadataRecordError, RecordType


class Settled(NamedTuple):
    records: list[MetadataRecord]
    open: bool
    """A transaction has neither ended nor been aborted: its records are left out and it must be aborted."""


def settle(records: Iterable[MetadataRecord]) -> Settled:
    settled: list[MetadataRecord] = []
    pending: list[MetadataRecord] | None = None
    for record in records:
        match record.API_KEY:
            case RecordType.BEGIN_TRANSACTION:
                if pending is not None:
                    raise MetadataRecordError("a metadata transaction begins inside another one")
                pending = []
            case RecordType.END_TRANSACTION | RecordType.ABORT_TRANSACTION as kind:
                if pending is None:
                    raise MetadataRecordError(f"{kind.name} stands outside a metadata transaction")
                if kind is RecordType.END_TRANSACTION:
                    settled += pending
                pending = None
            case _:
                (settled if pending is None else pending).append(record)
    return Settled(settled, pending is not None)
