"""Foreign-key join of two tables, after Kafka Streams (KIP-213).

The left table sends a subscription to the partition of the foreign key. There it is stored and answered with
the right row; an update of a right row answers all its subscriptions. The left side joins an answer with its
current row only if the row is still the one the subscription was made for: a hash of it travels along.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.streams.operators.base import Context, Output, View
from ottla.streams.records import Change, Record
from ottla.streams.serdes import Serde
from ottla.streams.state.subscriptions import SubscriptionStore


class Instruction(IntEnum):
    DELETE_AND_STAY_SILENT = 0
    DELETE_AND_ANSWER = 1
    ANSWER_ALWAYS = 2
    ANSWER_IF_FOUND = 3


class Subscription(NamedTuple):
    row_hash: bytes | None
    instruction: Instruction
    primary_key: Any
    primary_partition: int


class Answer(NamedTuple):
    row_hash: bytes | None
    foreign_value: Any
    primary_partition: int


# Formats, not compiled structures: serdes travel to Spark's workers, and those cannot be pickled.
_HEAD = ">?16sBi"
_HEAD_SIZE = struct.calcsize(_HEAD)


def subscription_serde(primary_key: Serde) -> Serde:
    def write(value: Subscription) -> bytes:
        head = struct.pack(
            _HEAD,
            value.row_hash is not None,
            value.row_hash or b"",
            value.instruction,
            value.primary_partition,
        )
        return head + (primary_key.serialize(value.primary_key) or b"")

    def read(data: bytes) -> Subscription:
        hashed, row_hash, instruction, partition = struct.unpack_from(_HEAD, data)
        key = primary_key.deserialize(data[_HEAD_SIZE:])
        return Subscription(row_hash if hashed else None, Instruction(instruction), key, partition)

    return Serde(f"subscription of {primary_key.name}", write, read)


def answer_serde(foreign_value: Serde) -> Serde:
    def write(value: Answer) -> bytes:
        data = foreign_value.serialize(value.foreign_value)
        head = struct.pack(
            _HEAD,
            value.row_hash is not None,
            value.row_hash or b"",
            data is not None,
            value.primary_partition,
        )
        return head + (data or b"")

    def read(data: bytes) -> Answer:
        hashed, row_hash, present, partition = struct.unpack_from(_HEAD, data)
        value = foreign_value.deserialize(data[_HEAD_SIZE:]) if present else None
        return Answer(row_hash if hashed else None, value, partition)

    return Serde(f"answer of {foreign_value.name}", write, read)


def hash_row(data: bytes | None) -> bytes | None:
    return None if data is None else hashlib.blake2b(data, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class SendSubscription:
    """Left table to the foreign key's partition."""

    extractor: Callable[[Any, Any], Any]
    foreign_key: Serde
    value: Serde
    left: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        change: Change = record.value
        if change.old is None and change.new is None:
            return ()
        old_key = None if change.old is None else self.extractor(record.key, change.old)
        new_key = None if change.new is None else self.extractor(record.key, change.new)
        row_hash = hash_row(self.value.serialize(change.new))

        def send(foreign_key: Any, instruction: Instruction) -> Record:
            subscription = Subscription(row_hash, instruction, record.key, context.partition)
            return Record(foreign_key, subscription, record.timestamp_ms, record.headers)

        moved = old_key is not None and (
            new_key is None or self.foreign_key.serialize(old_key) != self.foreign_key.serialize(new_key)
        )
        sent: list[Output] = []
        if self.left:
            if moved:
                sent.append(send(old_key, Instruction.DELETE_AND_STAY_SILENT))
            sent.append(send(new_key, Instruction.ANSWER_ALWAYS))
        elif new_key is None:
            if change.new is not None:
                context.drop("null foreign key in a join")
            if old_key is not None:
                sent.append(send(old_key, Instruction.DELETE_AND_ANSWER))
        elif moved:
            sent.append(send(old_key, Instruction.DELETE_AND_STAY_SILENT))
            sent.append(send(new_key, Instruction.ANSWER_ALWAYS))
        else:
            sent.append(send(new_key, Instruction.ANSWER_IF_FOUND))
        return sent


@dataclass(frozen=True, slots=True)
class ReceiveSubscription:
    """Stores a subscription under its foreign key."""

    store: str

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        subscription: Subscription = record.value
        if record.key is None:
            if subscription.instruction is not Instruction.ANSWER_ALWAYS:
                context.drop("null foreign key in a join")
                return ()
            return (record,)
        store: SubscriptionStore = context.store(self.store)
        keep = subscription.instruction >= Instruction.ANSWER_ALWAYS
        store.put(record.key, subscription.primary_key, subscription if keep else None)
        return (record,)


@dataclass(frozen=True, slots=True)
class AnswerSubscription:
    """Answers a new subscription with the current right row."""

    foreign_table: View

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        subscription: Subscription = record.value
        found = None if record.key is None else self.foreign_table.get(record.key, context)
        value = None if found is None else found.value
        timestamp_ms = record.timestamp_ms if found is None else max(record.timestamp_ms, found.timestamp_ms)
        match subscription.instruction:
            case Instruction.DELETE_AND_STAY_SILENT:
                return ()
            case Instruction.DELETE_AND_ANSWER:
                value = None
            case Instruction.ANSWER_IF_FOUND if value is None:
                return ()
        answer = Answer(subscription.row_hash, value, subscription.primary_partition)
        return (Record(subscription.primary_key, answer, timestamp_ms, record.headers),)


@dataclass(frozen=True, slots=True)
class AnswerSubscribers:
    """Tells every subscriber of a right row about its update."""

    store: str

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        if record.key is None:
            context.drop("null key in a join")
            return ()
        change: Change = record.value
        store: SubscriptionStore = context.store(self.store)
        return [
            Record(
                subscription.primary_key,
                Answer(subscription.row_hash, change.new, subscription.primary_partition),
                record.timestamp_ms,
                record.headers,
            )
            for subscription in store.subscriptions(record.key)
        ]


@dataclass(frozen=True, slots=True)
class ResolveAnswer:
    """Joins an answer with the left row, unless that has changed since."""

    primary_table: View
    value: Serde
    joiner: Callable[[Any, Any, Any], Any]
    left: bool

    def process(self, record: Record, context: Context) -> Iterable[Output]:
        answer: Answer = record.value
        found = self.primary_table.get(record.key, context)
        row = None if found is None else found.value
        if hash_row(self.value.serialize(row)) != answer.row_hash:
            context.drop("outdated answer of a foreign-key join")
            return ()
        if row is None or (answer.foreign_value is None and not self.left):
            return (record.with_value(None),)
        return (record.with_value(self.joiner(record.key, row, answer.foreign_value)),)
