"""Drives a transaction shard in simulated time: keeps its log, holds replies until a commit, restarts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.host.journal import Instant, Outcome
from ottla.coordinator.transactions.commands import (
    AddRequest,
    Decided,
    EndRequest,
    InitRequest,
    ListRequest,
    ProducerIdentity,
)
from ottla.coordinator.transactions.records import decode, encode
from ottla.coordinator.transactions.settings import TransactionSettings
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.transaction import Transaction
from ottla.log.types import TopicPartition
from ottla.wire.errors import ErrorCode, KafkaError

EPOCH_MS = 1_700_000_000_000
TX = "tx"
TIMEOUT_MS = 60_000
A, B, C = (TopicPartition("orders", index) for index in range(3))


@dataclass
class Driver:
    version: int = 2
    settings: TransactionSettings = field(default_factory=TransactionSettings)
    shard_type: type[TransactionShard] = TransactionShard
    commits_at_once: bool = True
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    decided: list[Decided] = field(default_factory=list)
    """Decisions that are committed and that nobody has carried out yet."""
    producer_ids: list[int] = field(default_factory=lambda: list(range(9_999, 1_000, -1)))
    now_ms: int = 0

    def __post_init__(self) -> None:
        self._waiting: list[tuple[Any, Any]] = []
        self._replies: dict[int, Any] = {}
        self._effects: list[Decided] = []
        self._tickets = 0
        self._appended: list[tuple[bytes, bytes | None]] = []
        self.shard = self._new_shard()
        self._take(self.shard.loaded(self.now))

    def _new_shard(self) -> TransactionShard:
        return self.shard_type(
            self.settings,
            lambda: self.producer_ids.pop() if self.producer_ids else None,
            lambda: self.version,
        )

    @property
    def now(self) -> Instant:
        return Instant(EPOCH_MS + self.now_ms, self.now_ms)

    # --- the log

    def _take(self, outcome: Outcome) -> None:
        self._appended += [encode(key, value, self.version) for key, value in outcome.records]
        self._waiting += outcome.replies
        self._effects += outcome.effects
        if self.commits_at_once:
            self.commit()

    def commit(self) -> None:
        self.log += self._appended
        self._appended = []
        waiting, self._waiting = self._waiting, []
        self._replies.update(waiting)
        self.decided += self._effects
        self._effects = []

    def restart(self) -> None:
        """What was not committed is lost, and so is who waited and what was decided in memory alone."""
        self._appended, self._waiting, self._effects, self.decided = [], [], [], []
        self.shard = self._new_shard()
        for key, value in self.log:
            self.shard.replay(*decode(key, value))
        self._take(self.shard.loaded(self.now))

    def stored(self, transactional_id: str = TX) -> list[Transaction | None]:
        records = [decode(key, value) for key, value in self.log]
        return [transaction for name, transaction in records if name == transactional_id]

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._take(self.shard.tick(self.now))

    # --- commands

    def submit(self, command: str, *args: Any) -> int:
        self._tickets += 1
        self._take(getattr(self.shard, command)(*args, self._tickets, self.now))
        return self._tickets

    def reply(self, ticket: int) -> Any:
        """Raises what the client would be told."""
        reply = self._replies.pop(ticket)
        if isinstance(reply, KafkaError):
            raise reply
        return reply

    def answered(self, ticket: int) -> bool:
        return ticket in self._replies

    def init(
        self, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS, name: str = TX
    ) -> ProducerIdentity:
        identity = None if expected is None else ProducerIdentity(*expected)
        reply: ProducerIdentity = self.reply(
            self.submit("init_producer_id", InitRequest(name, timeout_ms, identity))
        )
        return reply

    def add(self, identity: tuple[int, int], *partitions: TopicPartition, client: int | None = None) -> None:
        version = self.version if client is None else client
        self.reply(self.submit("add_partitions", AddRequest(TX, *identity, frozenset(partitions), version)))

    def verify(
        self, identity: tuple[int, int], *partitions: TopicPartition
    ) -> dict[TopicPartition, ErrorCode]:
        codes: dict[TopicPartition, ErrorCode] = self.reply(
            self.submit("verify", AddRequest(TX, *identity, frozenset(partitions)))
        )
        return codes

    def end(
        self, identity: tuple[int, int], *, committed: bool = True, client: int | None = None
    ) -> ProducerIdentity:
        version = self.version if client is None else client
        reply: ProducerIdentity = self.reply(
            self.submit("end", EndRequest(TX, *identity, committed, version))
        )
        return reply

    def listed(self, **filters: Any) -> list[str]:
        listed = self.reply(self.submit("list_transactions", ListRequest(**filters)))
        return [entry.transactional_id for entry in listed]

    def tell_all(self) -> list[Decided]:
        """As if every partition had taken its marker."""
        decided, self.decided = self.decided, []
        for decision in decided:
            self.reply(self.submit("complete", decision))
        return decided

    def put(self, **changes: Any) -> None:
        """Change what is stored, to get to where it would take long to go."""
        from dataclasses import replace

        known = self.shard.by_id[TX]
        self.log.append(encode(TX, replace(known, **changes), self.version))
        self.restart()
