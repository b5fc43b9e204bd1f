"""The `_schemas` topic: made if it is not there, read from the beginning, written by one leader at a time.

Every write is a transaction of one transactional id. Whoever takes the id over ends what the leader before
has open and shuts it out, so a leader that was thought dead cannot add a record after its successor has
begun: ids that were given stay given once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from ottla.client.admin.configs import TOPIC, describe_configs
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.errors import ClusterUnreachable, error_for
from ottla.client.fetch import Fetched
from ottla.client.peer import PeerLost
from ottla.client.produce import PartitionProducer
from ottla.client.transaction import Transactions, add_partitions
from ottla.records.batch import iter_headers
from ottla.records.compression import CorruptRecords
from ottla.records.markers import read_marker
from ottla.records.producer import ProducerIdentity
from ottla.records.records import Record, encode_batch, iter_records
from ottla.registry.records import Change, encode
from ottla.runtime.clock import Clock
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, OffsetOutOfRange

_log = logging.getLogger(__name__)
_PARTITION = 0
_AGAIN_S = 1.0
TRANSACTION_TIMEOUT_MS = 30_000


async def ensure_topic(cluster: ClusterClient, name: str, replication_factor: int) -> None:
    """KafkaError where it cannot be made; ValueError where it would lose schemas."""
    found = await cluster.topics([name])
    if name not in found:

        def check(answer: Any) -> None:
            for topic in answer.topics:
                if topic.error_code not in {ErrorCode.none, ErrorCode.topic_already_exists}:
                    raise error_for(topic.error_code, topic.error_message, f"creation of {topic.name}")

        row = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": "cleanup.policy", "value": "compact"}],
        }
        await cluster.ask_controller(ApiKey.CREATE_TOPICS, {"topics": [row], "validate_only": False}, check)
        return
    count = len(found[name].partitions)
    if count != 1:
        raise ValueError(f"the topic {name} has {count} partitions; schemas need one, for their order")
    policy = await _cleanup_policy(cluster, name)
    if policy != "compact":
        raise ValueError(
            f"the topic {name} has cleanup.policy={policy}, which would delete schemas in time; set it: "
            f"kafka-configs --alter --entity-type topics --entity-name {name} "
            "--add-config cleanup.policy=compact"
        )


async def _cleanup_policy(cluster: ClusterClient, name: str) -> str:
    described = await describe_configs(cluster, TOPIC, [name])
    found = (setting.value for setting in described[name] if setting.name == "cleanup.policy")
    return next(found, None) or "compact"


class TopicReader:
    """Hands on each committed record, in order, and tells how far it is."""

    def __init__(self, cluster: ClusterClient, topic: str, apply: Callable[[Record], None]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._apply = apply
        self._next = 0
        self._seen: ProducerIdentity | None = None
        self._moved = asyncio.Condition()

    @property
    def position(self) -> int:
        return self._next

    async def run(self) -> None:
        """For ever; a cluster that cannot be reached is asked again."""
        self._next = await self._offset_of(EARLIEST)
        while True:
            try:
                fetched = await self._cluster.fetch(
                    self._topic, _PARTITION, self._next, read_committed=True, max_wait_ms=500
                )
                self._take(fetched)
            except OffsetOutOfRange:
                _log.error("%s: offset %d is gone; reading from the beginning", self._topic, self._next)
                self._next = await self._offset_of(EARLIEST)
            except (KafkaError, PeerLost, ClusterUnreachable, CorruptRecords) as error:
                _log.warning("%s cannot be read at offset %d: %s", self._topic, self._next, error)
                await asyncio.sleep(_AGAIN_S)
            async with self._moved:
                self._moved.notify_all()

    async def wait_until(self, offset: int) -> None:
        """Until everything before this offset has been handed on."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._next >= offset)

    async def wait_for_batch_of(self, writer: ProducerIdentity) -> int:
        """Until the batch of this transaction has been handed on; where the log goes on after it."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._seen == writer)
            return self._next

    async def end(self) -> int:
        """Where the committed part of the log ends now."""
        return await self._offset_of(LATEST)

    async def catch_up(self) -> None:
        await self.wait_until(await self.end())

    async def _offset_of(self, where: int) -> int:
        place = (self._topic, _PARTITION)
        return (await self._cluster.list_offsets({place: where}, read_committed=True))[place].offset

    def _take(self, fetched: Fetched) -> None:
        for start, end, next_offset, writer in _committed(fetched):
            for record in iter_records(fetched.records[start:end]) if end > start else ():
                if record.offset >= self._next:
                    self._apply(record)
            self._next = max(self._next, next_offset)
            if writer is not None:
                self._seen = writer


def _committed(fetched: Fetched) -> Iterator[tuple[int, int, int, ProducerIdentity | None]]:
    """Each whole batch: where its records begin and end, if they count, what follows it, and who wrote it."""
    aborted = sorted(fetched.aborted, key=lambda each: each.first_offset)
    void: set[int] = set()
    for at, header in iter_headers(fetched.records):
        end = at + header.size
        if end > len(fetched.records):
            return
        while aborted and aborted[0].first_offset <= header.base_offset:
            void.add(aborted.pop(0).producer_id)
        counts = not header.is_control and not (header.is_transactional and header.producer_id in void)
        if header.is_control:
            marker = read_marker(fetched.records[at:end])
            if marker is not None and not marker.committed:
                void.discard(header.producer_id)
        writer = ProducerIdentity(header.producer_id, header.producer_epoch) if counts else None
        yield at, end if counts else at, header.last_offset + 1, writer


class TooLarge(Exception):
    """The topic does not take a record of this size; nothing was written."""


class TopicWriter:
    """What the leader writes with. Each leader makes its own: `take_over`, then `write` one by one."""

    def __init__(self, cluster: ClusterClient, topic: str, transactional_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._topic = topic
        self._transactions = Transactions(cluster, transactional_id, timeout_ms=TRANSACTION_TIMEOUT_MS)

    async def take_over(self) -> None:
        """Whoever wrote before is shut out when this returns, and what it had open is aborted."""
        await self._transactions.begin()

    async def write(self, changes: list[Change]) -> ProducerIdentity:
        """All of them or none. What is raised leaves open which: a new leader has to read the topic."""
        writer = await self._transactions.begin()
        transactional_id = self._transactions.transactional_id
        await add_partitions(self._cluster, transactional_id, writer, [(self._topic, _PARTITION)])
        batch = encode_batch(
            [encode(change, self._clock.now_ms()) for change in changes],
            producer_id=writer.id,
            producer_epoch=writer.epoch,
            base_sequence=0,
            transactional=True,
        )
        producer = PartitionProducer(
            self._cluster, self._topic, _PARTITION, transactional_id=transactional_id
        )
        try:
            await producer.send(batch)
            await producer.flush()
        except KafkaError as error:
            if error.code == ErrorCode.message_too_large:
                # Nothing is in doubt. Open, the transaction would hold back readers until it times out.
                await self._transactions.abort()
                raise TooLarge from error
            raise
        await self._transactions.commit("", {})
        return writer
