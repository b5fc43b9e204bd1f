"""`kafka-transactions`: transactions, the producers that hold them open, and an end to those that hang."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from ottla.cli.framework.errors import Refused, ToolError
from ottla.cli.framework.output import Table, columns, show
from ottla.cli.framework.tool import BOOTSTRAP_SERVER, COMMAND_CONFIG, Command, Option, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.cli.cluster.admin import Admin
    from ottla.client.admin.topics import Partition
    from ottla.client.admin.transactions import ActiveProducer

    Open = tuple[Partition, ActiveProducer]

_LIST = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
_DESCRIBE = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
_PRODUCERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
_HANGING = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)
_NONE = "None"
# Partitions asked about at once, so that no broker gets a giant request.
_BATCH = 500
_MINUTE_MS = 60_000


def run(given: argparse.Namespace) -> int:
    from ottla.cli.cluster.admin import cluster

    action, check = _RUN[given.command]
    if check is not None:
        check(given)
    with cluster(given) as admin:
        action(given, admin)
    return 0


def _list(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.transactions import list_transactions

    duration_ms = -1 if given.duration_filter is None else given.duration_filter
    try:
        listed = admin.call(
            list_transactions, duration_ms=duration_ms, pattern=given.transactional_id_pattern
        )
    except Refused as error:
        raise ToolError(f"Failed to list transactions: {error}") from None
    _show(given, _LIST, listed)


def _describe(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.transactions import describe_transaction

    try:
        found = admin.call(describe_transaction, given.transactional_id)
    except Refused as error:
        raise ToolError(
            f"Failed to describe transaction state of transactional-id `{given.transactional_id}`: {error}"
        ) from None
    started = found.start_ms is not None
    row = (
        found.coordinator,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms if started else _NONE,
        _now_ms() - (found.start_ms or 0) if started else _NONE,
        ",".join(map(str, found.partitions)),
    )
    _show(given, _DESCRIBE, [row])


def _describe_producers(given: argparse.Namespace, admin: Admin) -> None:
    producers = _producers(given, admin, "Failed to describe producers for partition")
    rows = [
        (*producer[:5], _NONE if producer.transaction_start is None else producer.transaction_start)
        for producer in producers
    ]
    _show(given, _PRODUCERS, rows)


def _producers(given: argparse.Namespace, admin: Admin, complaint: str) -> list[ActiveProducer]:
    from ottla.client.admin.topics import Partition
    from ottla.client.admin.transactions import describe_producers

    partition = Partition(given.topic, given.partition)
    node = getattr(given, "broker_id", None)
    try:
        return admin.call(describe_producers, [partition], node)[partition]
    except ToolError as error:
        where = "leader" if node is None else f"broker {node}"
        raise ToolError(f"{complaint} {partition} on {where}: {error}") from None


def _check_abort(given: argparse.Namespace) -> None:
    if given.start_offset is None and given.producer_id is None:
        raise ToolError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 "
            "or above) or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )
    if given.start_offset is None:
        for option in ("producer_epoch", "coordinator_epoch"):
            if getattr(given, option) is None:
                raise ToolError(f"Missing required argument --{option.replace('_', '-')}")


def _abort(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.topics import Partition
    from ottla.client.admin.transactions import write_abort_marker

    partition = Partition(given.topic, given.partition)
    if given.start_offset is None:
        identity = (given.producer_id, given.producer_epoch, given.coordinator_epoch)
    else:
        producers = _producers(given, admin, "Failed to validate producer state for partition")
        found = [producer for producer in producers if producer.transaction_start == given.start_offset]
        if not found:
            raise ToolError(
                "Could not find any open transactions starting at offset "
                f"{given.start_offset} on partition {partition}"
            )
        identity = (found[0].id, found[0].epoch, found[0].coordinator_epoch)
    producer_id, producer_epoch, coordinator_epoch = identity
    try:
        # A producer without a marker so far has none; zero is no newer than any coordinator's.
        admin.call(write_abort_marker, partition, producer_id, producer_epoch, max(coordinator_epoch, 0))
    except Refused as error:
        raise ToolError(
            f"Failed to abort the transaction of producer {producer_id} on {partition}: {error}"
        ) from None
    show(given, {"partition": str(partition), "producerId": producer_id, "aborted": True}, [])


def _check_find(given: argparse.Namespace) -> None:
    if given.topic is None and given.broker_id is None:
        raise ToolError(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope "
            "of the search"
        )
    if given.partition is not None and given.topic is None:
        raise ToolError("The --partition argument requires --topic to be provided")


def _find_hanging(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.transactions import describe_producers

    partitions = _searched(given, admin)
    limit_ms = given.max_transaction_timeout * _MINUTE_MS
    old: list[Open] = []
    for at in range(0, len(partitions), _BATCH):
        found = admin.call(describe_producers, partitions[at : at + _BATCH], given.broker_id)
        old += [
            (partition, producer)
            for partition, producers in found.items()
            for producer in producers
            if producer.transaction_start is not None and _now_ms() - producer.last_timestamp_ms > limit_ms
        ]
    rows = [
        (
            partition.topic,
            partition.number,
            producer.id,
            producer.epoch,
            producer.coordinator_epoch,
            producer.transaction_start,
            producer.last_timestamp_ms,
            (_now_ms() - producer.last_timestamp_ms) // _MINUTE_MS,
        )
        for partition, producer in (_forgotten(admin, old) if old else ())
    ]
    _show(given, _HANGING, rows)


def _searched(given: argparse.Namespace, admin: Admin) -> list[Partition]:
    from ottla.client.admin.topics import Partition, find_topics, list_topics

    if given.topic is not None and given.partition is not None:
        return [Partition(given.topic, given.partition)]
    topics = admin.call(list_topics) if given.topic is None else admin.call(find_topics, [given.topic])
    if given.topic is not None and not topics:
        raise ToolError(f"Failed to describe 1 topics: topic {given.topic} does not exist")
    return [
        Partition(topic.name, state.number)
        for topic in topics.values()
        for state in topic.partitions
        if given.broker_id is None or given.broker_id in state.replicas
    ]


def _forgotten(admin: Admin, old: Sequence[Open]) -> list[Open]:
    """Open transactions that no coordinator will write a marker for."""
    from ottla.client.admin.transactions import describe_transaction, list_transactions
    from ottla.wire.errors import ErrorCode

    wanted = sorted({producer.id for _, producer in old})
    names = {
        item.producer_id: item.transactional_id for item in admin.call(list_transactions, producer_ids=wanted)
    }
    expected: set[tuple[int, Partition]] = set()
    for producer_id in wanted:
        if producer_id not in names:
            continue
        try:
            transaction = admin.call(describe_transaction, names[producer_id])
        except Refused as error:
            if error.code != ErrorCode.transactional_id_not_found:
                raise
        else:
            expected |= {(producer_id, partition) for partition in transaction.partitions}
    return [item for item in old if (item[1].id, item[0]) not in expected]


def _terminate(given: argparse.Namespace, admin: Admin) -> None:
    from ottla.client.admin.transactions import fence

    try:
        admin.call(fence, given.transactionalId)
    except Refused as error:
        raise ToolError(
            f"Failed to force terminate transactionalId `{given.transactionalId}`: {error}"
        ) from None
    show(given, {"transactionalId": given.transactionalId, "terminated": True}, [])


def _show(given: argparse.Namespace, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    data = [dict(zip(names, row, strict=True)) for row in rows]
    show(given, data, columns([list(names), *rows], "\t"), [Table(names, rows)])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


_RUN: dict[str, tuple[Any, Any]] = {
    "list": (_list, None),
    "describe": (_describe, None),
    "describe-producers": (_describe_producers, None),
    "abort": (_abort, _check_abort),
    "find-hanging": (_find_hanging, _check_find),
    "forceTerminateTransaction": (_terminate, None),
}
_TOPIC = Option("topic", "the topic", "TOPIC", required=True)
_PARTITION = Option("partition", "the partition's number", "NUMBER", int, required=True)

TOOL = Tool(
    name="transactions",
    description="See transactions and their producers; find and abort those that hang.",
    run=run,
    options=(BOOTSTRAP_SERVER, COMMAND_CONFIG),
    commands=(
        Command(
            "list",
            "list transactions",
            (
                Option("duration-filter", "only those that have run for longer", "MS", int),
                Option("transactional-id-pattern", "only ids that match a regular expression", "REGEX"),
            ),
        ),
        Command(
            "describe",
            "describe the state of a transactional id",
            (Option("transactional-id", "the transactional id", "ID", required=True),),
        ),
        Command(
            "describe-producers",
            "describe the producers that are active on a partition",
            (
                Option("broker-id", "the broker whose replica to ask, instead of the leader", "ID", int),
                _TOPIC,
                _PARTITION,
            ),
        ),
        Command(
            "abort",
            "abort a transaction that hangs",
            (
                _TOPIC,
                _PARTITION,
                Option("start-offset", "the offset at which it begins", "OFFSET", int),
                Option("producer-id", "for brokers before 3.0: the producer's id", "ID", int),
                Option("producer-epoch", "for brokers before 3.0: the producer's epoch", "EPOCH", int),
                Option("coordinator-epoch", "for brokers before 3.0: the coordinator's epoch", "EPOCH", int),
            ),
        ),
        Command(
            "find-hanging",
            "find transactions that no coordinator will end",
            (
                Option("broker-id", "the broker to search", "ID", int),
                Option(
                    "max-transaction-timeout",
                    "how long a transaction may be open, in minutes",
                    "MINUTES",
                    int,
                    default=15,
                ),
                Option("topic", "search this topic only", "TOPIC"),
                Option("partition", "search this partition of --topic only", "NUMBER", int),
            ),
        ),
        Command(
            "forceTerminateTransaction",
            "abort the open transaction of a transactional id and fence its producer",
            (Option("transactionalId", "the transactional id", "ID", required=True),),
        ),
    ),
    examples=(
        "--bootstrap-server localhost:9092 list",
        "--bootstrap-server localhost:9092 find-hanging --broker-id 1",
        "--bootstrap-server localhost:9092 abort --topic orders --partition 0 --start-offset 42",
    ),
)
