"""A transactional producer and a reader of committed records inside the simulation.

The producer speaks the protocol of before KIP-890, where it names partitions beforehand and keeps its epoch,
or the one since, where both go by themselves. It repeats a request until it is answered, as real ones do;
what the broker refuses for good is raised.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from ottla.records.batch import iter_headers
from ottla.records.markers import Marker, read_marker
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Runtime
from ottla.sim.client import Client, RequestFailed
from ottla.wire.errors import ErrorCode

READ_COMMITTED = 1
_BACKOFF_S = 0.1
_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_PASSING = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
    }
)


class Versions(NamedTuple):
    init: int
    add_partitions: int | None
    add_offsets: int | None
    produce: int
    offsets: int
    end: int


OLD = Versions(init=4, add_partitions=3, add_offsets=3, produce=9, offsets=3, end=4)
NEW = Versions(init=5, add_partitions=None, add_offsets=None, produce=12, offsets=5, end=5)


def _schema(api: str, version: int) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.request")


class SimProducer:
    def __init__(
        self,
        runtime: Runtime,
        client: Client,
        transactional_id: str,
        *,
        versions: Versions = NEW,
        timeout_ms: int = 60_000,
    ) -> None:
        self._runtime = runtime
        self._client = client
        self._versions = versions
        self._timeout_ms = timeout_ms
        self._added: set[tuple[str, int]] = set()
        self._sequences: dict[tuple[str, int], int] = {}
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1

    async def init(self) -> None:
        """Fences whoever had the transactional id before, and ends what it has left open."""
        await self._find_coordinator(self.transactional_id, _TRANSACTION_KEY)
        request = _schema("init_producer_id", self._versions.init).InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout=datetime.timedelta(milliseconds=self._timeout_ms),
        )
        response = await self._ask(request, lambda answer: answer.error_code)
        self._become(response.producer_id, response.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch
        self._added.clear()

    async def _find_coordinator(self, key: str, key_type: int) -> None:
        request = _schema("find_coordinator", 3).FindCoordinatorRequest(key=key, key_type=key_type)
        await self._ask(request, lambda answer: answer.error_code)

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """The offset of the first of them."""
        if self._versions.add_partitions is not None and (topic, partition) not in self._added:
            await self._add_partition(topic, partition)
        sequence = self._sequences.get((topic, partition), 0)
        batch = encode_batch(
            [Record(None, value, self._runtime.clock.now_ms()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        schema = _schema("produce", self._versions.produce)
        data = schema.PartitionProduceData(index=partition, records=batch)
        request = schema.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=datetime.timedelta(seconds=5),
            topic_data=(schema.TopicProduceData(name=topic, partition_data=(data,)),),
        )

        def outcome(answer: Any) -> Any:
            return answer.responses[0].partition_responses[0]

        response = await self._ask(request, lambda answer: outcome(answer).error_code)
        self._sequences[topic, partition] = sequence + len(values)
        return int(outcome(response).base_offset)

    async def _add_partition(self, topic: str, partition: int) -> None:
        schema = _schema("add_partitions_to_txn", self._versions.add_partitions or 0)
        request = schema.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=(schema.AddPartitionsToTxnTopic(name=topic, partitions=(partition,)),),
        )
        await self._ask(
            request,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        self._added.add((topic, partition))

    async def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """How far the group has read, as part of the transaction."""
        await self._find_coordinator(group, _GROUP_KEY)
        if self._versions.add_offsets is not None:
            added = _schema("add_offsets_to_txn", self._versions.add_offsets).AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            await self._ask(added, lambda answer: answer.error_code)
        schema = _schema("txn_offset_commit", self._versions.offsets)
        request = schema.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=(
                schema.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        schema.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                        for index, offset in sorted(offsets.items())
                    ),
                ),
            ),
        )
        await self._ask(
            request,
            lambda answer: next(
                (p.error_code for p in answer.topics[0].partitions if p.error_code is not ErrorCode.none),
                ErrorCode.none,
            ),
        )

    def end_request(self, *, committed: bool) -> Any:
        return _schema("end_txn", self._versions.end).EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    async def end(self, *, committed: bool) -> None:
        response = await self._ask(self.end_request(committed=committed), lambda answer: answer.error_code)
        if self._versions.add_partitions is None:
            self._become(response.producer_id, response.producer_epoch)
        self._added.clear()

    async def _ask(self, request: Any, code_of: Any) -> Any:
        while True:
            try:
                answer = await self._client.send(request)
            except OSError:
                await asyncio.sleep(_BACKOFF_S)
                continue
            code = code_of(answer)
            if code is ErrorCode.none:
                return answer
            if code not in _PASSING:
                raise RequestFailed(code, f"{type(request).__name__} of {self.transactional_id}")
            await asyncio.sleep(_BACKOFF_S)


class Batch(NamedTuple):
    """What a log has of one producer, or how its transaction ended."""

    producer_id: int
    epoch: int
    records: list[Record]
    marker: Marker | None


class Stable(NamedTuple):
    records: list[Record]
    last_stable_offset: int
    next_offset: int


async def read_stable(client: Client, topic: str, partition: int, offset: int) -> Stable:
    """One fetch of a reader of committed records, without what was aborted."""
    outcome = await _fetch(client, topic, partition, offset, READ_COMMITTED)
    data = outcome.records or b""
    aborted = sorted((t.first_offset, t.producer_id) for t in outcome.aborted_transactions or ())
    hidden: set[int] = set()
    records: list[Record] = []
    for at, header in iter_headers(data):
        while aborted and aborted[0][0] <= header.last_offset:
            hidden.add(aborted.pop(0)[1])
        batch = data[at : at + header.size]
        offset = header.last_offset + 1
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            records += iter_records(batch)
    return Stable(records, int(outcome.last_stable_offset), offset)


async def read_log(client: Client, topic: str, partition: int) -> list[Batch]:
    """Everything there is, markers included."""
    offset = 0
    batches: list[Batch] = []
    while data := (await _fetch(client, topic, partition, offset, 0)).records:
        for at, header in iter_headers(data):
            batch = data[at : at + header.size]
            offset = header.last_offset + 1
            marker = read_marker(batch) if header.is_control else None
            records = [] if header.is_control else list(iter_records(batch))
            batches.append(Batch(header.producer_id, header.producer_epoch, records, marker))
    return batches


async def _fetch(client: Client, topic: str, partition: int, offset: int, isolation: int) -> Any:
    schema = _schema("fetch", 12)
    wanted = schema.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    response = await client.send(
        schema.FetchRequest(
            max_wait=datetime.timedelta(0),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=(schema.FetchTopic(topic=topic, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
    )
    outcome = response.responses[0].partitions[0]
    if outcome.error_code is not ErrorCode.none:
        raise RequestFailed(outcome.error_code)
    return outcome
