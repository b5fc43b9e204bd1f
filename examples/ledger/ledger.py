"""Accounts whose only truth is what happened to them: an event per change, balances from replaying events.

Commands are decided against the balances in memory, written as events in one transaction, and applied when
they are committed. A snapshot of a partition's accounts, with the offset it is good for, goes to a compacted
topic every so often: a start reads the last snapshot and the events behind it, not everything.

One process writes at a time. A second one with the same transactional id fences the first, whose next command
fails instead of deciding on balances that have moved on.

    python ledger.py deposit ann 100 && python ledger.py transfer ann bob 30 && python ledger.py balances
    python ledger.py history ann
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

EVENTS, SNAPSHOTS = "ledger-events", "ledger-snapshots"
PARTITIONS = 4
SNAPSHOT_EVERY = 100
TIMEOUT_S = 30.0
# What goes wrong comes as an exception.
QUIET = {"enable.metrics.push": False, "log_level": 0}


class Refused(Exception):
    """A command that must not happen. Nothing was written."""


@dataclass(frozen=True)
class Event:
    account: str
    kind: str
    """opened, deposited or withdrawn"""
    cents: int
    note: str = ""


@dataclass
class Accounts:
    """Those of one partition, and the offset of the event that comes next."""

    balances: dict[str, int] = field(default_factory=dict)
    next_offset: int = 0

    def apply(self, event: Event, offset: int) -> None:
        sign = {"opened": 0, "deposited": 1, "withdrawn": -1}[event.kind]
        self.balances[event.account] = self.balances.get(event.account, 0) + sign * event.cents
        self.next_offset = offset + 1


class Ledger:
    def __init__(self, bootstrap_servers: str, *, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self._servers = bootstrap_servers
        self._snapshot_every = snapshot_every
        create_topics(bootstrap_servers)
        # Before reading: nobody else writes from here on, so what is read is all there is.
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": "ledger",
                "partitioner": "murmur2_random",
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._partitions = {number: Accounts() for number in range(PARTITIONS)}
        self._snapshot_at = dict.fromkeys(self._partitions, 0)
        self.replayed = 0
        """Events that were read at the start."""
        self._rebuild()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.flush(TIMEOUT_S)

    @property
    def balances(self) -> Mapping[str, int]:
        return {name: cents for each in self._partitions.values() for name, cents in each.balances.items()}

    # Commands.

    def deposit(self, account: str, cents: int) -> None:
        _positive(cents)
        self._commit([Event(account, "deposited", cents)])

    def withdraw(self, account: str, cents: int) -> None:
        self._commit([self._withdrawal(account, cents, "")])

    def transfer(self, source: str, target: str, cents: int) -> None:
        """Both events or neither, in whichever partitions they are."""
        if source == target:
            raise Refused(f"{source} cannot be sent its own money")
        events = [self._withdrawal(source, cents, f"to {target}")]
        self._commit([*events, Event(target, "deposited", cents, f"from {source}")])

    def _withdrawal(self, account: str, cents: int, note: str) -> Event:
        _positive(cents)
        balance = self.balances.get(account, 0)
        if balance < cents:
            raise Refused(f"{account} has {balance / 100:.2f}, which is less than {cents / 100:.2f}")
        return Event(account, "withdrawn", cents, note)

    def _commit(self, events: list[Event]) -> None:
        written: list[tuple[Event, Message]] = []

        def delivered(error: KafkaError | None, message: Message, event: Event) -> None:
            if error is None:
                written.append((event, message))

        self._producer.begin_transaction()
        try:
            for event in events:
                value = json.dumps({"kind": event.kind, "cents": event.cents, "note": event.note})
                self._producer.produce(
                    EVENTS, value, event.account, on_delivery=lambda e, m, event=event: delivered(e, m, event)
                )
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(TIMEOUT_S)
            raise
        for event, message in written:
            self._partitions[message.partition()].apply(event, message.offset())
        for partition in {message.partition() for _, message in written}:
            self._snapshot_if_due(partition)

    def _snapshot_if_due(self, partition: int) -> None:
        accounts = self._partitions[partition]
        if accounts.next_offset - self._snapshot_at[partition] < self._snapshot_every:
            return
        value = json.dumps({"balances": accounts.balances, "next_offset": accounts.next_offset})
        self._producer.begin_transaction()
        self._producer.produce(SNAPSHOTS, value, str(partition))
        self._producer.commit_transaction(TIMEOUT_S)
        self._snapshot_at[partition] = accounts.next_offset

    # Replay.

    def _rebuild(self) -> None:
        for message in read(self._servers, SNAPSHOTS, dict.fromkeys(range(PARTITIONS), 0)):
            found = json.loads(message.value())
            number = int(message.key())
            self._partitions[number] = Accounts(found["balances"], found["next_offset"])
            self._snapshot_at[number] = found["next_offset"]
        begin = {number: accounts.next_offset for number, accounts in self._partitions.items()}
        for message in read(self._servers, EVENTS, begin):
            self._partitions[message.partition()].apply(to_event(message), message.offset())
            self.replayed += 1


def history(bootstrap_servers: str, account: str) -> Iterator[Event]:
    """All that ever happened to an account: the log is the audit."""
    for message in read(bootstrap_servers, EVENTS, dict.fromkeys(range(PARTITIONS), 0)):
        event = to_event(message)
        if event.account == account:
            yield event


def to_event(message: Message) -> Event:
    return Event(message.key().decode(), **json.loads(message.value()))


def read(bootstrap_servers: str, topic: str, begin: Mapping[int, int]) -> Iterator[Message]:
    """What is committed, from the given offset of each partition to its end now."""
    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "ledger-replay",  # required by the client; nothing is committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,  # so long does the end of a topic take to be seen
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in begin.items()])
        unread = set(begin)
        while unread:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise SystemExit(f"{topic} cannot be read: {bootstrap_servers} does not answer")
            if message.error() is None:
                yield message
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(message.error())
    finally:
        consumer.close()


def create_topics(bootstrap_servers: str) -> None:
    # Events are the truth: they are kept for ever. Of snapshots the last of each partition is enough.
    topics = [
        NewTopic(EVENTS, PARTITIONS, config={"retention.ms": "-1"}),
        NewTopic(SNAPSHOTS, PARTITIONS, config={"cleanup.policy": "compact"}),
    ]
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics(topics).values():
        try:
            created.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _positive(cents: int) -> None:
    if cents <= 0:
        raise Refused(f"{cents / 100:.2f} is not an amount; give more than nothing")


def to_cents(text: str) -> int:
    """Of an amount as people write it: 12, 12.5 or 12.50, and no third digit behind the point."""
    try:
        cents = Decimal(text) * 100
        if cents == int(cents):
            return int(cents)
    except (ArithmeticError, ValueError):
        pass
    raise argparse.ArgumentTypeError(f"{text} is not an amount such as 12.50")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, arguments in {
        "deposit": ("account", "amount"),
        "withdraw": ("account", "amount"),
        "transfer": ("source", "target", "amount"),
        "balances": (),
        "history": ("account",),
    }.items():
        command = commands.add_parser(name)
        for argument in arguments:
            command.add_argument(argument, type=to_cents if argument == "amount" else str)
    given = vars(parser.parse_args())
    servers, command = given.pop("bootstrap_server"), given.pop("command")
    if command == "history":
        for event in history(servers, given["account"]):
            print(f"{event.kind:<10} {event.cents / 100:>10.2f}  {event.note}".rstrip())
        return 0
    with Ledger(servers) as ledger:
        try:
            _do(ledger, command, given)
        except Refused as error:
            print(error, file=sys.stderr)
            return 1
        for account, cents in sorted(ledger.balances.items()):
            print(f"{account:<12} {cents / 100:>10.2f}")
    return 0


def _do(ledger: Ledger, command: str, given: dict[str, Any]) -> None:
    match command:
        case "deposit":
            ledger.deposit(given["account"], given["amount"])
        case "withdraw":
            ledger.withdraw(given["account"], given["amount"])
        case "transfer":
            ledger.transfer(given["source"], given["target"], given["amount"])


if __name__ == "__main__":
    sys.exit(main())
