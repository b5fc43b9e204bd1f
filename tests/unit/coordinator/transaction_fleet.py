"""Producers that share a transactional id, the partitions they write to, and what must hold between them.

A partition here does what a real one does with transactional writes: it takes those of the newest epoch if
the coordinator says that they belong to a transaction, and a marker settles all of a producer that are open.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from transaction_shard_driver import TX, A, B, C, Driver

from ottla.coordinator.transactions.commands import Decided, EndRequest
from ottla.coordinator.transactions.shard import TransactionShard
from ottla.coordinator.transactions.states import FROM
from ottla.log.types import TopicPartition
from ottla.records.producer import ProducerIdentity
from ottla.wire.errors import ConcurrentTransactions, ErrorCode, KafkaError

PARTITIONS = (A, B, C)
NEW = 2


class Violation(AssertionError):
    pass


@dataclass(eq=False)
class Attempt:
    """One transaction as its producer sees it."""

    wish: bool | None = None
    """What the producer asked for in the end; None as long as it has not."""
    is_acknowledged: bool = False
    outcomes: set[bool] = field(default_factory=set)
    """What partitions were told."""
    open_writes: int = 0


@dataclass
class Partition:
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[Attempt]] = field(default_factory=dict)

    def write(self, identity: ProducerIdentity, attempt: Attempt) -> bool:
        if identity.epoch < self.epochs.get(identity.id, -1):
            return False
        self.epochs[identity.id] = identity.epoch
        self.open.setdefault(identity.id, []).append(attempt)
        attempt.open_writes += 1
        return True

    def end(self, decided: Decided) -> None:
        if decided.epoch < self.epochs.get(decided.producer_id, -1):
            return
        self.epochs[decided.producer_id] = decided.epoch
        for attempt in self.open.pop(decided.producer_id, []):
            attempt.open_writes -= 1
            attempt.outcomes.add(decided.committed)


class Client:
    def __init__(self, fleet: Fleet, version: int) -> None:
        self.fleet = fleet
        self.version = version
        self.identity: ProducerIdentity | None = None
        self.attempt: Attempt | None = None
        self.last_end: EndRequest | None = None

    @property
    def driver(self) -> Driver:
        return self.fleet.driver

    def init(self) -> None:
        self.attempt = None
        try:
            self.identity = self.driver.init()
        except KafkaError:
            return
        self.fleet.handed_out(self.identity)

    def write(self, tp: TopicPartition) -> None:
        if self.identity is None:
            return
        try:
            self.driver.add(self.identity, tp, client=self.version)
            codes = self.driver.verify(self.identity, tp)
        except KafkaError as error:
            if not isinstance(error, ConcurrentTransactions):
                self.identity = None
            return
        if codes[tp] is not ErrorCode.none:
            raise Violation("AddedIsVerified: a partition just added is not part of the transaction")
        if self.attempt is None:
            self.attempt = Attempt()
            self.fleet.attempts.append(self.attempt)
        self.fleet.partitions[tp].write(self.identity, self.attempt)

    def end(self, *, committed: bool) -> None:
        if self.identity is None or self.attempt is None:
            return
        self.attempt.wish = committed
        self.last_end = EndRequest(TX, *self.identity, committed, self.version)
        ticket = self.driver.submit("end", self.last_end)
        try:
            following = self.driver.reply(ticket)
        except KafkaError:
            self.identity = None
            return
        self.attempt.is_acknowledged = True
        self.attempt = None
        self.identity = following

    def end_without_hearing_back(self, *, committed: bool) -> None:
        """The answer is lost on its way; the client may send the same again, or give up."""
        if self.identity is not None and self.attempt is not None:
            self.attempt.wish = committed
            self.last_end = EndRequest(TX, *self.identity, committed, self.version)
            self.driver.submit("end", self.last_end)
            self.attempt, self.identity = None, None

    def send_last_end_again(self) -> None:
        """As networks do. Under the old protocol that can end the wrong transaction, and so is not done."""
        if self.last_end is not None and self.version >= NEW:
            self.driver.submit("end", self.last_end)


class Fleet:
    def __init__(self, shard_type: type[TransactionShard], versions: tuple[int, ...]) -> None:
        self.driver = Driver(shard_type=shard_type)
        self.clients = [Client(self, version) for version in versions]
        self.partitions = {tp: Partition() for tp in PARTITIONS}
        self.attempts: list[Attempt] = []
        self._identities: set[ProducerIdentity] = set()

    def handed_out(self, identity: ProducerIdentity) -> None:
        if identity in self._identities:
            raise Violation(f"OneProducerPerEpoch: {identity} was given to two")
        self._identities.add(identity)

    def carry_out(self, decided: Decided, partitions: int) -> None:
        """Tell some of the partitions; with all of them told, the coordinator hears of it."""
        for tp in decided.partitions[:partitions]:
            self.partitions[tp].end(decided)
        if partitions >= len(decided.partitions):
            self.driver.decided.remove(decided)
            self.driver.reply(self.driver.submit("complete", decided))

    def crash(self) -> None:
        self.driver.restart()

    def crash_before_commit(self, client: Client, *, committed: bool) -> None:
        """The end of a transaction is decided in memory, and the coordinator dies before it is stored."""
        if client.identity is None or client.attempt is None:
            return
        client.attempt.wish = committed
        self.driver.commits_at_once = False
        self.driver.submit("end", EndRequest(TX, *client.identity, committed, client.version))
        self.driver.restart()
        self.driver.commits_at_once = True
        self.driver.commit()
        client.identity, client.attempt = None, None

    # --- what must hold

    def check(self) -> None:
        for attempt in self.attempts:
            if len(attempt.outcomes) > 1:
                raise Violation("TwoOutcomesOfATransaction: committed here, aborted there")
            if attempt.outcomes == {True} and attempt.wish is not True:
                raise Violation("TwoOutcomesOfATransaction: committed, and nobody asked for it")
            if attempt.is_acknowledged and attempt.outcomes == {not attempt.wish}:
                raise Violation("TwoOutcomesOfATransaction: the producer was told otherwise")
        stored = [transaction for transaction in self.driver.stored() if transaction is not None]
        epochs: dict[int, int] = {}
        for before, after in zip([None, *stored], stored, strict=False):
            if after.epoch < epochs.get(after.producer_id, -1):
                raise Violation("ProducerEpochNeverGoesBack: in the log")
            epochs[after.producer_id] = after.epoch
            if before is not None and after.producer_id < before.producer_id:
                raise Violation("ProducerEpochNeverGoesBack: an older producer id is back")
            if before is not None and before.state not in FROM[after.state]:
                raise Violation(f"DecisionsAreFinal: {before.state.label}, then {after.state.label}")

    def check_convergence(self) -> None:
        """Left alone, every transaction ends everywhere."""
        for _ in range(3):
            for decided in list(self.driver.decided):
                self.carry_out(decided, len(decided.partitions))
            self.driver.advance(100_000)
        if any(attempt.open_writes for attempt in self.attempts):
            raise Violation("EveryTransactionEnds: a partition still waits for the outcome")
        self.check()
