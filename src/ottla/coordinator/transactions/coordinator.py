"""The transaction coordinator of one broker: finds the shard of a transactional id, checks what is asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

from ottla.coordinator.groups.coordinator import GroupCoordinator
from ottla.coordinator.host.shard_kind import Command, ShardKind
from ottla.coordinator.host.shard_log import ShardLog
from ottla.coordinator.host.shards import Shards
from ottla.coordinator.transactions.commands import (
    AddRequest,
    Decided,
    EndRequest,
    InitRequest,
    Listed,
    ListRequest,
    NoProducerId,
)
from ottla.coordinator.transactions.markers import MarkerWriter
from ottla.coordinator.transactions.other_brokers import AskBroker
from ottla.coordinator.transactions.producer_ids import ProducerIds
from ottla.coordinator.transactions.records import decode, encode
from ottla.coordinator.transactions.remote_markers import RemoteMarkers
from ottla.coordinator.transactions.remote_verification import Asked, RemoteVerification
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.states import BY_LABEL, State
from ottla.coordinator.transactions.transaction import (
    BUMPS_EPOCH,
    NEVER_TIMES_OUT_MS,
    Transaction,
)
from ottla.log.types import TopicPartition
from ottla.metadata.change import MetadataChange
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla.records.producer import ProducerIdentity
from ottla.replication.manager import ReplicaManager
from ottla.runtime.clock import Clock
from ottla.runtime.regex import RegexError, compile_regex
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    KafkaError,
    NotCoordinator,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)

_INIT_RETRY_SECONDS = (0.0, 0.01, 0.05)
_ID_LENGTH_MAX = 8_000
"""Characters; in UTF-8 they fit into the 32 kB that strings of the stored records may have."""


class TransactionCoordinator:
    def __init__(
        self,
        node_id: int,
        settings: TransactionSettings,
        transaction_log: ShardLog,
        producer_ids: ProducerIds,
        replicas: ReplicaManager,
        groups: GroupCoordinator,
        ask_broker: AskBroker,
        clock: Clock,
        tasks: TaskScope,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._producer_ids = producer_ids
        self._groups = groups
        self._image = MetadataImage()
        self._verification = RemoteVerification(ask_broker, tasks)
        self._markers = MarkerWriter(
            node_id, replicas, groups, RemoteMarkers(ask_broker, tasks), self, clock, tasks
        )
        kind = ShardKind(
            topic=TRANSACTION_TOPIC,
            noun="transactions",
            remedy="look at them with ottla transactions list, and start transactional producers that are "
            "refused again",
            log=transaction_log,
            new=lambda: TransactionShard(settings, producer_ids.take, self._transaction_version),
            loaded=lambda shard, now: shard.loaded(now),
            encode=lambda key, value: encode(key, value, self._transaction_version()),
            decode=decode,
            act=self._markers.write,
        )
        self._shards = Shards(kind, node_id, clock, tasks)

    # --- life

    def apply(self, change: MetadataChange) -> None:
        """Leadership as of now; the partitions themselves are there already."""
        self._image = change.after
        if change.topics:
            self._shards.follow(change.after)

    def close(self) -> None:
        self._shards.close()

    async def wait_loaded(self) -> None:
        await self._shards.wait_loaded()

    def partition_for(self, transactional_id: str) -> int:
        """Raises CoordinatorNotAvailable until the topic exists."""
        return self._shards.partition_for(transactional_id)

    def leader_epoch(self, partition: int) -> int | None:
        return self._shards.leader_epoch(partition)

    def has_partition(self, tp: TopicPartition) -> bool:
        return self.leader_of(tp) is not None

    def leader_of(self, tp: TopicPartition) -> int | None:
        topic = self._image.topics.get(tp.topic)
        partition = None if topic is None else topic.partition(tp.partition)
        return None if partition is None else partition.leader

    def told(self, partition: int, decided: Decided) -> None:
        # If the shard is lost before that is stored, the one loaded next has the partitions told again.
        try:
            hosted = self._shards.of_partition(partition)
        except NotCoordinator:
            return
        done = hosted.submit(lambda shard, ticket, now: shard.complete(decided, ticket, now))
        done.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _transaction_version(self) -> int:
        return self._image.features.get(TRANSACTION_VERSION, 0)

    def _submit(self, transactional_id: str, command: Command[TransactionShard]) -> asyncio.Future[Any]:
        if not transactional_id:
            raise InvalidRequest("transactional.id must not be empty")
        if len(transactional_id) > _ID_LENGTH_MAX:
            raise InvalidRequest(
                f"a transactional id of {len(transactional_id)} characters cannot be stored; at most "
                f"{_ID_LENGTH_MAX} can"
            )
        return self._shards.submit(transactional_id, command)

    # --- commands; all raise KafkaError

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> ProducerIdentity:
        if two_phase_commit and not self._settings.two_phase_commit:
            raise TransactionalIdAuthorizationFailed(
                "this broker takes no part in two-phase commits; set transaction.two.phase.commit.enable=true"
            )
        if keep_prepared:
            raise UnsupportedVersion("a prepared transaction cannot be kept; initialize without it")
        if two_phase_commit:
            timeout_ms = NEVER_TIMES_OUT_MS
        elif not 0 < timeout_ms <= self._settings.timeout_max_ms:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms is {timeout_ms}; this broker takes 1 to "
                f"{self._settings.timeout_max_ms} (transaction.max.timeout.ms)"
            )
        request = InitRequest(transactional_id, timeout_ms, expected)
        for delay_seconds in _INIT_RETRY_SECONDS:
            try:
                return await self._init(request)
            except ConcurrentTransactions:
                # A transaction left open is being aborted, in less time than it takes a client to come again.
                await asyncio.sleep(delay_seconds)
        return await self._init(request)

    async def _init(self, request: InitRequest) -> ProducerIdentity:
        identity: ProducerIdentity = await self._submit_with_ids(
            request.transactional_id, lambda shard, ticket, now: shard.init_producer_id(request, ticket, now)
        )
        return identity

    async def _submit_with_ids(self, transactional_id: str, command: Command[TransactionShard]) -> Any:
        """Most need no new producer id, and must not wait for a controller that may be away."""
        try:
            return await self._submit(transactional_id, command)
        except NoProducerId:
            await self._producer_ids.wait_available()
            return await self._submit(transactional_id, command)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> None:
        """The transaction begins with the first."""
        request = AddRequest(
            transactional_id, producer_id, producer_epoch, frozenset(partitions), client_version
        )
        await self._submit(
            transactional_id, lambda shard, ticket, now: shard.add_partitions(request, ticket, now)
        )

    async def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        """The partition that the group's offsets are kept in, or will be: the topic is only created when
        somebody looks for the group's coordinator. If nobody does, there is nothing to be told at the end.
        """
        tp = TopicPartition(OFFSETS_TOPIC, self._groups.future_partition_for(group_id))
        await self.add_partitions(transactional_id, producer_id, producer_epoch, (tp,))

    async def verify(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether the producer may write to these partitions in its transaction; with `add` they become part.

        Clients that can do without AddPartitionsToTxn are those of the new protocol. The coordinator that is
        asked may be another broker.
        """
        try:
            coordinator = self._coordinator_of(transactional_id or "")
            if coordinator != self._node_id:
                producer = ProducerIdentity(producer_id, producer_epoch)
                asked = Asked(transactional_id or "", producer, sorted(partitions), add)
                return await self._verification.verify(coordinator, asked)
            if add:
                await self.add_partitions(
                    transactional_id or "",
                    producer_id,
                    producer_epoch,
                    partitions,
                    client_version=BUMPS_EPOCH,
                )
                return dict.fromkeys(partitions, ErrorCode.none)
            request = AddRequest(transactional_id or "", producer_id, producer_epoch, frozenset(partitions))
            codes: dict[TopicPartition, ErrorCode] = await self._submit(
                request.transactional_id, lambda shard, ticket, now: shard.verify(request, ticket, now)
            )
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return codes

    def _coordinator_of(self, transactional_id: str) -> int:
        index = self._shards.partition_for(transactional_id)
        leader = self.leader_of(TopicPartition(TRANSACTION_TOPIC, index))
        if leader is None or leader < 0:
            raise CoordinatorNotAvailable(
                f"nobody leads {TRANSACTION_TOPIC}-{index} now, which coordinates {transactional_id}; retry"
            )
        return leader

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        client_version: int = 0,
    ) -> ProducerIdentity:
        """What the producer goes on with; the old protocol does not tell it."""
        request = EndRequest(transactional_id, producer_id, producer_epoch, committed, client_version)
        identity: ProducerIdentity = await self._submit_with_ids(
            transactional_id, lambda shard, ticket, now: shard.end(request, ticket, now)
        )
        return identity

    async def describe(self, transactional_id: str) -> Transaction:
        transaction: Transaction = await self._submit(
            transactional_id, lambda shard, ticket, now: shard.describe(transactional_id, ticket, now)
        )
        return transaction

    async def list(
        self,
        state_names: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
    ) -> tuple[list[Listed], list[str]]:
        """All that this broker coordinates and that passes the filters, and the names that are no states."""
        states: frozenset[State] | None = None
        if state_names:
            states = frozenset(BY_LABEL[name] for name in state_names if name in BY_LABEL)
        try:
            matches = compile_regex(pattern).matches if pattern else None
        except RegexError as error:
            raise InvalidRegularExpression(
                f"{pattern} is no regular expression that this broker knows: {error}"
            ) from error
        request = ListRequest(states, frozenset(producer_ids), duration_ms)
        listed: list[Listed] = []
        for hosted in self._shards:
            listed += await hosted.submit(
                lambda shard, ticket, now: shard.list_transactions(request, ticket, now)
            )
        if matches is not None:
            listed = [entry for entry in listed if matches(entry.transactional_id)]
        return listed, [name for name in state_names if name not in BY_LABEL]

    def count(self) -> Counter[State]:
        """Transactional ids that this broker coordinates and has loaded."""
        counted: Counter[State] = Counter()
        for hosted in self._shards:
            if hosted.shard is not None:
                counted.update(transaction.state for transaction in hosted.shard.by_id.values())
        return counted
