"""What transactions are asked and what they answer, free of wire versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.transactions.transaction import Transaction
from ottla.log.types import TopicPartition
from ottla.records.producer import ProducerIdentity
from ottla.wire.errors import CoordinatorNotAvailable


class NoProducerId(CoordinatorNotAvailable):
    """The command needs one, and has to be given again when there is one."""


@dataclass(frozen=True, slots=True)
class InitRequest:
    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """Of a producer that goes on after an error, since version 3."""


@dataclass(frozen=True, slots=True)
class AddRequest:
    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class EndRequest:
    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class ListRequest:
    states: frozenset[int] | None = None
    """None: all."""
    producer_ids: frozenset[int] = frozenset()
    """Empty: all."""
    duration_ms: int = -1
    """Only what has been open for longer; negative: all."""


class Decided(NamedTuple):
    """The effect of a decision that is committed: all these partitions are to be told."""

    transactional_id: str
    producer_id: int
    epoch: int
    committed: bool
    client_version: int
    partitions: tuple[TopicPartition, ...]


class Listed(NamedTuple):
    transactional_id: str
    transaction: Transaction
