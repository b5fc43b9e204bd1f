"""Invariants of transactions, as classes that watch what producers do and what readers see.

Values are unique. A test reports what happens to a `TransactionHistory`; at the end, when no transaction is
open any more, it reports all that readers of committed records see (`Seen`), what the logs hold (`Logged`)
and the groups' offsets (`OffsetSeen`), and calls `check`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple, Protocol, TypeAlias

from ottla.sim.checkers import InvariantViolation, Partition
from ottla.sim.transactions import Batch


class Written(NamedTuple):
    """The broker has taken a value as part of a transaction; or a group's offset, as the number it is."""

    transaction: str
    where: Partition | str
    value: bytes | int


class Trying(NamedTuple):
    """The producer is about to send a value; whether it will be taken is open."""

    transaction: str
    partition: Partition
    value: bytes


class Ending(NamedTuple):
    """The producer is about to ask for this end."""

    transaction: str
    committed: bool


class Ended(NamedTuple):
    """The broker has confirmed it."""

    transaction: str
    committed: bool


class Read(NamedTuple):
    """A reader of committed records was given this."""

    partition: Partition
    offset: int
    value: bytes


class StableOffset(NamedTuple):
    """A reader was told how far it may read."""

    partition: Partition
    offset: int


class Seen(NamedTuple):
    """At the end, everything that a reader of committed records is given."""

    partition: Partition
    values: tuple[bytes, ...]


class OffsetSeen(NamedTuple):
    """At the end, the group's offset; 0 if it has none."""

    group: str
    offset: int


class Logged(NamedTuple):
    """At the end, everything in the log."""

    partition: Partition
    batches: tuple[Batch, ...]


Event: TypeAlias = Written | Trying | Ending | Ended | Read | StableOffset | Seen | OffsetSeen | Logged


class TransactionChecker(Protocol):
    def observe(self, event: Event) -> None: ...

    def check(self) -> None: ...


class TornTransaction:
    """Of a transaction, readers see everything or nothing, as was confirmed to its producer.

    The offset that a group has is that of the last transaction that is seen.
    """

    def __init__(self) -> None:
        self._values: dict[str, set[bytes]] = defaultdict(set)
        self._offsets: dict[str, dict[int, str]] = defaultdict(dict)
        self._ended: dict[str, bool] = {}
        self._seen: set[bytes] = set()
        self._seen_offsets: dict[str, int] = {}

    def observe(self, event: Event) -> None:
        match event:
            case Written(transaction, str(group), int(offset)):
                self._offsets[group][offset] = transaction
            case Written(transaction, _, bytes(value)):
                self._values[transaction].add(value)
            case Ended(transaction, committed):
                self._ended[transaction] = committed
            case Seen(_, values):
                self._seen.update(values)
            case OffsetSeen(group, offset):
                self._seen_offsets[group] = offset
            case _:
                pass

    def check(self) -> None:
        visible: dict[str, bool] = {}
        for transaction, values in self._values.items():
            seen = values & self._seen
            visible[transaction] = bool(seen)
            if seen and seen != values:
                raise InvariantViolation(
                    self,
                    f"of transaction {transaction} readers see {sorted(seen)}, not {sorted(values - seen)}",
                )
            ended = self._ended.get(transaction)
            if ended is not None and ended != bool(seen):
                fate = "committed" if ended else "aborted"
                raise InvariantViolation(
                    self, f"transaction {transaction} was {fate}, but readers see {seen}"
                )
        for group, offsets in self._offsets.items():
            # A transaction that wrote nothing else is as visible as its offset is.
            known = {offset: visible[name] for offset, name in offsets.items() if name in visible}
            found = self._seen_offsets.get(group, 0)
            latest = max((offset for offset, is_seen in known.items() if is_seen), default=0)
            if found < latest or known.get(found) is False:
                raise InvariantViolation(
                    self,
                    f"group {group} is at offset {found}, but the output of transactions is seen up to the "
                    f"one with offset {latest}",
                )


class AbortedRead:
    """A reader of committed records is given nothing of a transaction whose commit was never asked for."""

    def __init__(self) -> None:
        self._transaction: dict[bytes, str] = {}
        self._asked: set[str] = set()
        self._aborted: set[str] = set()

    def observe(self, event: Event) -> None:
        match event:
            case Trying(transaction, _, value):
                self._transaction[value] = transaction
            case Ending(transaction, True):
                self._asked.add(transaction)
            case Ended(transaction, False):
                self._aborted.add(transaction)
            case Read(partition, offset, value):
                transaction = self._transaction[value]
                if transaction in self._aborted or transaction not in self._asked:
                    raise InvariantViolation(
                        self,
                        f"{partition} gave {value!r} at offset {offset}, of transaction {transaction}, "
                        "which was not committed",
                    )
            case _:
                pass

    def check(self) -> None:
        """Everything is proved as it happens."""


class LastStableOffsetGoingBack:
    """How far readers of committed records may read never goes back, and they read no further."""

    def __init__(self) -> None:
        self._stable: dict[Partition, int] = {}

    def observe(self, event: Event) -> None:
        match event:
            case StableOffset(partition, offset):
                before = self._stable.get(partition, 0)
                if offset < before:
                    raise InvariantViolation(
                        self, f"{partition} was stable up to {before}, now up to {offset}"
                    )
                self._stable[partition] = offset
            case Read(partition, offset, value):
                if offset >= self._stable.get(partition, 0):
                    raise InvariantViolation(
                        self,
                        f"{partition} gave {value!r} at offset {offset}, stable is {self._stable[partition]}",
                    )
            case _:
                pass

    def check(self) -> None:
        """Everything is proved as it happens."""


class TwoOutcomesOfATransaction:
    """In the logs every transaction ends, once in each partition and in all of them alike."""

    def __init__(self) -> None:
        self._transaction: dict[bytes, str] = {}
        self._outcomes: dict[str, set[bool]] = defaultdict(set)

    def observe(self, event: Event) -> None:
        match event:
            case Trying(transaction, _, value):
                self._transaction[value] = transaction
            case Logged(partition, batches):
                self._follow(partition, batches)
            case _:
                pass

    def _follow(self, partition: Partition, batches: tuple[Batch, ...]) -> None:
        open_now: dict[int, set[str]] = defaultdict(set)
        ended: set[str] = set()
        for batch in batches:
            if batch.marker is not None:
                for transaction in sorted(open_now.pop(batch.producer_id, ())):
                    self._outcomes[transaction].add(batch.marker.committed)
                    ended.add(transaction)
                continue
            for record in batch.records:
                transaction = self._transaction[record.value or b""]
                if transaction in ended:
                    raise InvariantViolation(
                        self, f"{partition} has {record.value!r} of transaction {transaction} after its end"
                    )
                open_now[batch.producer_id].add(transaction)
        left = sorted(name for names in open_now.values() for name in names)
        if left:
            raise InvariantViolation(self, f"{partition}: transactions {left} have never ended")

    def check(self) -> None:
        for transaction, outcomes in sorted(self._outcomes.items()):
            if len(outcomes) > 1:
                raise InvariantViolation(
                    self, f"transaction {transaction} is committed in places, aborted in others"
                )


class TransactionHistory:
    """Tells every checker what happens."""

    def __init__(self, *checkers: TransactionChecker) -> None:
        self.checkers = checkers or (
            TornTransaction(),
            AbortedRead(),
            LastStableOffsetGoingBack(),
            TwoOutcomesOfATransaction(),
        )

    def observe(self, event: Event) -> None:
        for checker in self.checkers:
            checker.observe(event)

    def check(self) -> None:
        for checker in self.checkers:
            checker.check()
