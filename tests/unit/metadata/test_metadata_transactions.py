from __future__ import annotations

import pytest

from ottla.metadata.foreign_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from ottla.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    MetadataRecordError,
)
from ottla.metadata.transactions import MetadataTransactions

A, B, C = (FeatureLevelRecord(name=name, feature_level=1) for name in "abc")
BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


@pytest.mark.parametrize(
    ("records", "counting", "is_open"),
    [
        ([A, B], [A, B], False),
        ([A, BEGIN, B, END, C], [A, B, C], False),
        ([A, BEGIN, B, ABORT, C], [A, C], False),
        ([A, BEGIN, B], [A], True),
        ([BEGIN, A, ABORT, BEGIN, A, END], [A], False),
    ],
)
def test_only_what_ended_counts(
    records: list[MetadataRecord], counting: list[MetadataRecord], is_open: bool
) -> None:
    transactions = MetadataTransactions()
    assert (transactions.counting(records), transactions.is_open) == (counting, is_open)


@pytest.mark.parametrize("records", [[END], [A, ABORT], [BEGIN, BEGIN]])
def test_brackets_that_do_not_match_are_damage(records: list[MetadataRecord]) -> None:
    with pytest.raises(MetadataRecordError, match="transaction"):
        MetadataTransactions().counting(records)
