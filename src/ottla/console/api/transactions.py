"""Transactions: which are open, whose they are, since when, and where."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Any

from ottla.client.admin import transactions
from ottla.client.admin.topics import Partition
from ottla.console.api.typed import check_typed
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.problems import EXPECTED, Refused
from ottla.wire.errors import KafkaError

_OPEN = {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
SHOWN_MAX = 200
AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class FindTransactions:
    q: Annotated[str, "a part of the transactional id"] = ""
    open: Annotated[bool, "only those that have not ended"] = False


@dataclass(frozen=True, slots=True)
class OneTransaction:
    transactional_id: Annotated[str, "whose"]


@dataclass(frozen=True, slots=True)
class ConfirmTransaction:
    transactional_id: Annotated[str, "whose"]
    confirm: Annotated[str, "the id once more, as typed by whoever is sure"]


@endpoint(
    "GET", "/transactions", "Transactional ids and the state of their last transaction, oldest open first"
)
async def find_transactions(cluster: Cluster, asked: FindTransactions) -> Any:
    listed = await transactions.list_transactions(cluster.client)
    wanted = [
        each
        for each in sorted(listed, key=lambda each: (each.state not in _OPEN, each.transactional_id))
        if asked.q.lower() in each.transactional_id.lower() and (not asked.open or each.state in _OPEN)
    ]
    limit = asyncio.Semaphore(AT_ONCE)

    async def described(each: transactions.Listed) -> dict[str, Any]:
        try:
            async with limit:
                found = await transactions.describe_transaction(cluster.client, each.transactional_id)
        except EXPECTED:
            # It may have expired meanwhile.
            return {"transactionalId": each.transactional_id, "state": each.state, "open": False}
        return _shown(found)

    shown = await asyncio.gather(*map(described, wanted[:SHOWN_MAX]))
    shown.sort(key=lambda each: (not each["open"], -(each.get("ageMs") or 0), each["transactionalId"]))
    return {"total": len(wanted), "transactions": shown}


@endpoint(
    "GET", "/transactions/{transactional_id}", "One transactional id, and its producer on each partition"
)
async def transaction(cluster: Cluster, asked: OneTransaction) -> Any:
    found = await transactions.describe_transaction(cluster.client, asked.transactional_id)
    producers: dict[Partition, list[transactions.ActiveProducer]] = {}
    if found.partitions:
        producers = await transactions.describe_producers(cluster.client, found.partitions)
    return {
        **_shown(found),
        "producers": [
            {
                "topic": place.topic,
                "partition": place.number,
                "startOffset": each.transaction_start,
                "lastTimestamp": each.last_timestamp_ms,
                "lastSequence": each.last_sequence,
            }
            for place, active in sorted(producers.items())
            for each in active
            if each.id == found.producer_id
        ],
    }


@endpoint(
    "POST", "/transactions/{transactional_id}/abort", "Abort the open transaction, and fence its producer"
)
async def abort_transaction(cluster: Cluster, asked: ConfirmTransaction) -> Any:
    check_typed("the id", asked.transactional_id, asked.confirm)
    found = await transactions.describe_transaction(cluster.client, asked.transactional_id)
    if found.state != "Ongoing":
        raise Refused(f"the last transaction of {asked.transactional_id} is {found.state}, not open", 409)
    try:
        await transactions.fence(cluster.client, asked.transactional_id)
    except KafkaError as error:
        if not error.code.retriable:
            raise
    return {"aborted": asked.transactional_id}


ENDPOINTS = (find_transactions, transaction, abort_transaction)


def _shown(found: transactions.Transaction) -> dict[str, Any]:
    is_open = found.state in _OPEN
    age_ms = (
        None if found.start_ms is None or not is_open else max(int(time.time() * 1000) - found.start_ms, 0)
    )
    return {
        "transactionalId": found.transactional_id,
        "state": found.state,
        "open": is_open,
        "coordinator": found.coordinator,
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "timeoutMs": found.timeout_ms,
        "startedMs": found.start_ms,
        "ageMs": age_ms,
        "overdue": age_ms is not None and age_ms > found.timeout_ms,
        "partitions": [{"topic": place.topic, "partition": place.number} for place in found.partitions],
    }
