"""The single writer: runs commands against the newest state, persists their records, then answers.

A command sees everything accepted before it, committed or not, so two requests for the same topic in flight
conflict as they should. Everybody else sees `image`, which only moves when records are committed. A command
for a long list lets others have their turns between its items, and further commands like it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from ottla.config import BrokerConfig
from ottla.controller.brokers import BrokerRegistration, register_broker
from ottla.controller.command import RECORDS_MAX, Deciding, Result
from ottla.controller.configs import (
    ConfigOutcome,
    ResourceChanges,
    ResourceConfigs,
    alter_configs,
    effective_config,
    incremental_alter_configs,
)
from ottla.controller.features import FeatureUpdate, update_features
from ottla.controller.producer_ids import ProducerIdBlock, allocate_producer_ids
from ottla.controller.topics import (
    NewPartitions,
    NewTopic,
    TopicDefaults,
    TopicOutcome,
    TopicRef,
    create_partitions,
    create_topics,
    delete_topics,
)
from ottla.log.log import PartitionLog
from ottla.metadata.carried import describe_carried
from ottla.metadata.change import MetadataChange
from ottla.metadata.features import METADATA_VERSION, check_supported, new_cluster_records
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord, decode_record, encode_record
from ottla.metadata.transactions import settle
from ottla.raft.driver import Appended, QuorumDescription, RaftDriver
from ottla.raft.snapshots import SnapshotPolicy
from ottla.runtime import Runtime
from ottla.runtime.turns import run_in_turns

logger = logging.getLogger(__name__)

T = TypeVar("T")

Subscriber: TypeAlias = Callable[[MetadataChange], None]


class Controller:
    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        log: PartitionLog,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._raft = RaftDriver(
            runtime,
            log,
            node_id=config.node_id,
            policy=SnapshotPolicy(
                bytes_between=config.integer("metadata.log.max.record.bytes.between.snapshots"),
                retention_bytes=config.integer("metadata.max.retention.bytes"),
            ),
            on_commit=self._committed,
            on_cut=self._cut,
            on_failure=on_failure,
        )
        self._subscribers: list[Subscriber] = []
        self._pending: deque[MetadataChange] = deque()
        self.image = MetadataImage()
        """As of the last commit."""
        self._newest = self.image
        self._initial: list[MetadataRecord] = []
        """What the log must say before anything else, written with the broker's registration."""
        self._deciding = asyncio.Lock()
        self._cuts = 0
        """How often what was not committed yet had to be taken back."""

    async def start(self) -> None:
        """Replay what is on disk and take over as leader.

        The records of a new cluster share a batch with the broker's registration, which every start writes.
        """
        loaded = self._raft.load()
        image = loaded.image
        records = [decode_record(value) for batch in loaded.batches for value in batch.values]
        settled = settle(records)
        if loaded.batches:
            last = loaded.batches[-1]
            image = image.apply_all(settled.records, last.last_offset, last.epoch)
        check_supported(image.features)
        if image.carried:
            logger.warning(
                "the metadata has %s: they are kept, but this version does not act on them, so that "
                "clients are neither asked who they are nor limited",
                describe_carried(image.carried),
            )
        self.image = self._newest = image
        await self._raft.start()
        if settled.open:
            from ottla.metadata.foreign_records import AbortTransactionRecord

            self._initial.append(AbortTransactionRecord(reason="Controller failover"))
        if METADATA_VERSION not in image.features:
            self._initial += new_cluster_records()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        def deciding() -> Deciding[list[TopicOutcome]]:
            config = effective_config(self._config, self._newest)
            defaults = TopicDefaults(
                config.integer("num.partitions"), config.integer("default.replication.factor"), config
            )
            return create_topics(self._newest, topics, defaults, self._runtime.random)

        return await self._decide(deciding, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[TopicRef]) -> list[TopicOutcome]:
        return await self._decide(lambda: delete_topics(self._newest, topics))

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        return await self._decide(
            lambda: create_partitions(self._newest, requests, self._runtime.random),
            validate_only=validate_only,
        )

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        return await self._decide(
            lambda: incremental_alter_configs(self._newest, self._config, resources),
            validate_only=validate_only,
        )

    async def alter_configs(
        self, resources: Sequence[ResourceConfigs], *, validate_only: bool = False
    ) -> list[ConfigOutcome]:
        return await self._decide(
            lambda: alter_configs(self._newest, self._config, resources), validate_only=validate_only
        )

    async def register_broker(self, registration: BrokerRegistration) -> int:
        """The broker's epoch. Without it nothing is served, so it waits for room on the disk."""
        return await self._raft.room.until_there_is(partial(self._register_broker, registration))

    async def _register_broker(self, registration: BrokerRegistration) -> int:
        next_offset = self._raft.next_offset + len(self._initial)
        result = register_broker(self._newest, registration, next_offset)
        records = [*self._initial, *result.records]
        # Several batches where it leads very many partitions. They need not count together: each election
        # stands for itself, and a start that ends between them leaves no mark of a clean shutdown, so that
        # the next one elects all of them again.
        for first in range(0, len(records), RECORDS_MAX):
            await self._append(records[first : first + RECORDS_MAX]).committed
            self._initial.clear()
        return result.response

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        return await self._write(allocate_producer_ids(self._newest, broker_id, broker_epoch))

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        result = update_features(self._newest, updates, self._config.node_id)
        await self._write(result, validate_only=validate_only)

    def describe_quorum(self) -> QuorumDescription:
        return self._raft.describe()

    async def close(self) -> None:
        await self._raft.close()

    async def _decide(self, deciding: Callable[[], Deciding[T]], *, validate_only: bool = False) -> T:
        # What a command for topics or configs has looked at must not change before its records are in.
        async with self._deciding:
            while True:
                cuts = self._cuts
                result = await run_in_turns(deciding())
                if cuts == self._cuts:
                    break
            appended = self._append(result.records) if result.records and not validate_only else None
        if appended is not None:
            await appended.committed
        return result.response

    async def _write(self, result: Result[T], *, validate_only: bool = False) -> T:
        if result.records and not validate_only:
            await self._append(result.records).committed
        return result.response

    def _append(self, records: list[MetadataRecord]) -> Appended:
        # Applied before it is written: a record that does not fit must not reach the log.
        last_offset = self._raft.next_offset + len(records) - 1
        change = self._newest.change(records, last_offset, self._raft.epoch)
        appended = self._raft.append([encode_record(record) for record in records])
        self._newest = change.after
        self._pending.append(change)
        return appended

    def _cut(self) -> None:
        self._pending.clear()
        self._newest = self.image
        self._cuts += 1

    def _committed(self, high_watermark: int) -> None:
        while self._pending and self._pending[0].after.offset < high_watermark:
            change = self._pending.popleft()
            self.image = change.after
            for subscriber in self._subscribers:
                subscriber(change)
        self._raft.snapshot_if_due(self.image)
