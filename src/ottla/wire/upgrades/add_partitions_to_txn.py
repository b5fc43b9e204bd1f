"""AddPartitionsToTxn: before version 4 a request was about one transaction, with its fields at the top."""

from __future__ import annotations

from typing import Any

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

FIRST_WITH_MANY = 4


def upgrade(old: Any, widened: AddPartitionsToTxnRequest) -> AddPartitionsToTxnRequest:
    if old.__version__ >= FIRST_WITH_MANY:
        return widened
    return AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=old.v3_and_below_transactional_id,
                producer_id=old.v3_and_below_producer_id,
                producer_epoch=old.v3_and_below_producer_epoch,
                verify_only=False,
                topics=tuple(
                    AddPartitionsToTxnTopic(name=topic.name, partitions=topic.partitions)
                    for topic in old.v3_and_below_topics
                ),
            ),
        )
    )
