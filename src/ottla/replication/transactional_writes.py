"""Which records of a transactional producer may be written: those of a transaction its coordinator knows of.

A partition that has records of the transaction already need not ask. Others ask before the first, or a late
record could begin a transaction that nobody ends (KIP-890). What a Produce version means by it:

    below 12  the client has told the coordinator of the partition, which only checks that
    12 on     asking adds the partition to the transaction

Answers are translated for producers that do not expect those of a coordinator: what passes by itself becomes
NOT_ENOUGH_REPLICAS, which they retry without asking for metadata; a transaction that can only be aborted is
TRANSACTION_ABORTABLE since version 11 and INVALID_TXN_STATE before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from ottla.config import BrokerConfig
from ottla.log.pending_verification import EXEMPT, ONGOING, Verification
from ottla.log.types import TopicPartition
from ottla.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    iter_headers,
)
from ottla.replication.manager import ReplicaManager
from ottla.replication.partition import Partition, Role
from ottla.runtime.clock import Clock
from ottla.wire import produce as codec
from ottla.wire.errors import ErrorCode, InvalidProducerIdMapping, KafkaError
from ottla.wire.produce import ProduceRequest

FIRST_WITH_ABORTABLE = 11
FIRST_WITH_IMPLICIT_ADD = 12

_PASSING = {
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


class AskCoordinator(Protocol):
    """The coordinator of a transaction, here or on another broker. May raise a KafkaError for all."""

    async def __call__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]: ...


class Refusal(NamedTuple):
    code: ErrorCode
    message: str


class TransactionalWrite:
    """The transactional records of one request, and what is known of their transaction on each partition."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        config: BrokerConfig,
        ask_coordinator: AskCoordinator,
        version: int,
        request: ProduceRequest,
    ) -> None:
        self._clock = clock
        self._config = config
        self._ask_coordinator = ask_coordinator
        self._version = version
        self._transactional_id = request.transactional_id or ""
        self._adds = version >= FIRST_WITH_IMPLICIT_ADD
        self._sequences: dict[Partition, int] = {}
        self._verdicts: dict[TopicPartition, Verification | Refusal] = {}
        producers = set()
        for partition, records in _partitions(replicas, version, request):
            for _, header in iter_headers(records):
                if header.producer_id >= 0 and header.is_transactional:
                    producers.add((header.producer_id, header.producer_epoch))
                    if partition is not None:
                        self._sequences.setdefault(partition, header.base_sequence)
        if len(producers) > 1:
            raise InvalidProducerIdMapping(
                f"the request of {self._transactional_id!r} has records of several producers: "
                f"{sorted(producers)}"
            )
        self.producer_id, self._epoch = next(iter(producers), (-1, -1))

    def of(self, partition: Partition) -> Verification | Refusal:
        return self._verdicts.get(partition.topic_partition, ONGOING)

    def begin(self) -> list[TopicPartition]:
        """The partitions that the coordinator has to be asked about."""
        self._verdicts = {}
        asked = []
        if not self._adds and not self._config.boolean("transaction.partition.verification.enable"):
            self._verdicts = {partition.topic_partition: EXEMPT for partition in self._sequences}
            return []
        now_ms = self._clock.now_ms()
        for partition, sequence in self._sequences.items():
            if partition.role is not Role.LEADER:
                # No more, after waiting for a turn: refused by the append itself.
                continue
            try:
                verification = partition.log.producers.begin_verification(
                    self.producer_id, sequence, self._epoch, now_ms, implicit_add=self._adds
                )
            except KafkaError as error:
                self._verdicts[partition.topic_partition] = Refusal(error.code, error.message)
                continue
            if verification is not None:
                self._verdicts[partition.topic_partition] = verification
                asked.append(partition.topic_partition)
        return asked

    async def settle(self) -> None:
        """Ask the coordinator. It is asked again while it still ends the transaction before, which is over
        sooner than the producer would come back."""
        clock, config = self._clock, self._config
        deadline = clock.monotonic() + config.integer("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        while asked := self.begin():
            codes = await self._ask(asked)
            for partition, code in codes.items():
                if code is not ErrorCode.none:
                    self._verdicts[partition] = self._translated(code)
            is_ending = self._adds and ErrorCode.concurrent_transactions in codes.values()
            if not is_ending or clock.monotonic() >= deadline:
                return
            await asyncio.sleep(config.integer("add.partitions.to.txn.retry.backoff.ms") / 1000)

    async def _ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        try:
            return await self._ask_coordinator(
                self._transactional_id, self.producer_id, self._epoch, partitions, add=self._adds
            )
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)

    def refuse_all(self, code: ErrorCode, message: str) -> None:
        for partition in self._sequences:
            self._verdicts[partition.topic_partition] = Refusal(code, message)

    def _translated(self, code: ErrorCode) -> Refusal:
        whose = f"transaction of {self._transactional_id!r}"
        if code in _PASSING or (code is ErrorCode.concurrent_transactions and not self._adds):
            return Refusal(
                ErrorCode.not_enough_replicas, f"the {whose} cannot be verified now ({code.name}); retry"
            )
        if code is ErrorCode.producer_fenced:
            code = ErrorCode.invalid_producer_epoch
        elif code is ErrorCode.transaction_abortable and self._version < FIRST_WITH_ABORTABLE:
            code = ErrorCode.invalid_txn_state
        return Refusal(code, f"the partition is not part of the {whose} ({code.name})")


def continues(replicas: ReplicaManager, version: int, request: ProduceRequest) -> bool:
    """Whether all that is sent belongs to a transaction known on its partition: nobody has to be asked.

    So it is with all requests of a transaction but the first; this is only about their cost.
    """
    lookup = replicas.by_id if version >= codec.FIRST_WITH_TOPIC_IDS else replicas.by_name
    producer_id = NO_PRODUCER_ID
    for topic, data in request.topics:
        hosted = lookup.get(topic)
        for index, records in data:
            partition = None if hosted is None else hosted.get(index)
            if partition is None or len(records) < HEADER_BYTES:
                return False
            fields = HEADER.unpack_from(records)
            if fields[1] + LOG_OVERHEAD_BYTES != len(records) or not fields[5] & TRANSACTIONAL:
                return False
            if producer_id not in (NO_PRODUCER_ID, fields[9]):
                return False
            producer_id = fields[9]
            if not partition.log.producers.has_open_transaction(producer_id, fields[10]):
                return False
    return producer_id != NO_PRODUCER_ID and not replicas.turns.is_waiting(producer_id)


def _partitions(
    replicas: ReplicaManager, version: int, request: ProduceRequest
) -> Iterator[tuple[Partition | None, memoryview]]:
    by_id = version >= codec.FIRST_WITH_TOPIC_IDS
    lookup = replicas.by_id if by_id else replicas.by_name
    for topic, data in request.topics:
        hosted = lookup.get(topic)
        for index, records in data:
            partition = None if hosted is None else hosted.get(index)
            if partition is not None and (partition.is_internal or partition.role is not Role.LEADER):
                # Refused by the append itself.
                partition = None
            yield partition, records
