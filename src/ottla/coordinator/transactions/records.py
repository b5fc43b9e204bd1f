"""The records of `__transaction_state`, in Apache Kafka's layout.

A key is a transactional id, a value all that is known of it. Version 1 of the value, written as of
transaction.version 1, has tagged fields and so can be extended. kio reads the annotations at run time, so
this module cannot use postponed ones.
"""

import io
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType
from kio.static.primitive import i16

from ottla.coordinator.host.shard_kind import UnknownRecord
from ottla.coordinator.transactions.states import State
from ottla.coordinator.transactions.transaction import Transaction
from ottla.log.types import TopicPartition

_VERSION = struct.Struct(">h")
_TRANSACTION_KEY = 0
FIRST_FLEXIBLE = 1
"""The transaction.version since which values have tagged fields."""

_STRING = {"kafka_type": "string"}
_INT8 = {"kafka_type": "int8"}
_INT16 = {"kafka_type": "int16"}
_INT32 = {"kafka_type": "int32"}
_INT64 = {"kafka_type": "int64"}


@dataclass(frozen=True, slots=True)
class TransactionLogKey:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    transactional_id: str = field(metadata=_STRING)


@dataclass(frozen=True, slots=True)
class PartitionsV0:
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    topic: str = field(metadata=_STRING)
    partition_ids: tuple[int, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True)
class PartitionsV1(PartitionsV0):
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV0:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = False
    producer_id: int = field(metadata=_INT64)
    producer_epoch: int = field(metadata=_INT16)
    transaction_timeout_ms: int = field(metadata=_INT32)
    transaction_status: int = field(metadata=_INT8)
    transaction_partitions: tuple[PartitionsV0, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata=_INT64)
    transaction_start_timestamp_ms: int = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValueV1:
    __type__: ClassVar = EntityType.data
    __version__: ClassVar[i16] = i16(1)
    __flexible__: ClassVar[bool] = True
    producer_id: int = field(metadata=_INT64)
    previous_producer_id: int = field(metadata={**_INT64, "tag": 0}, default=-1)
    next_producer_id: int = field(metadata={**_INT64, "tag": 1}, default=-1)
    producer_epoch: int = field(metadata=_INT16)
    next_producer_epoch: int = field(metadata={**_INT16, "tag": 3}, default=-1)
    transaction_timeout_ms: int = field(metadata=_INT32)
    transaction_status: int = field(metadata=_INT8)
    transaction_partitions: tuple[PartitionsV1, ...] | None
    transaction_last_update_timestamp_ms: int = field(metadata=_INT64)
    transaction_start_timestamp_ms: int = field(metadata=_INT64)
    client_transaction_version: int = field(metadata={**_INT16, "tag": 2}, default=0)


_write_key: Callable[[Any, Any], None] = entity_writer(TransactionLogKey)
_write_values: tuple[Callable[[Any, Any], None], ...] = (
    entity_writer(TransactionLogValueV0),
    entity_writer(TransactionLogValueV1),
)
_read_key: Any = entity_reader(TransactionLogKey)
_read_values: tuple[Any, ...] = (
    entity_reader(TransactionLogValueV0),
    entity_reader(TransactionLogValueV1),
)


def encode(
    transactional_id: str, transaction: Transaction | None, transaction_version: int
) -> tuple[bytes, bytes | None]:
    key = _packed(_TRANSACTION_KEY, _write_key, TransactionLogKey(transactional_id))
    if transaction is None:
        return key, None
    common = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": int(transaction.state),
        "transaction_last_update_timestamp_ms": transaction.updated_ms,
        "transaction_start_timestamp_ms": transaction.started_ms,
    }
    value: TransactionLogValueV0 | TransactionLogValueV1
    version = 1 if transaction_version >= FIRST_FLEXIBLE else 0
    partitions = _by_topic(transaction, PartitionsV1 if version else PartitionsV0)
    if version:
        value = TransactionLogValueV1(
            previous_producer_id=transaction.previous_producer_id,
            next_producer_id=transaction.next_producer_id,
            client_transaction_version=transaction.client_version,
            transaction_partitions=partitions,
            **common,
        )
    else:
        value = TransactionLogValueV0(transaction_partitions=partitions, **common)
    return key, _packed(version, _write_values[version], value)


def _by_topic(transaction: Transaction, kind: type[Any]) -> tuple[Any, ...] | None:
    if transaction.state is State.EMPTY:
        return None
    return tuple(
        kind(topic, tuple(tp.partition for tp in partitions))
        for topic, partitions in groupby(sorted(transaction.partitions), key=lambda tp: tp.topic)
    )


def _packed(prefix: int, write: Callable[[Any, Any], None], entity: Any) -> bytes:
    buffer = io.BytesIO()
    buffer.write(_VERSION.pack(prefix))
    write(buffer, entity)
    return buffer.getvalue()


def decode(key: bytes | None, value: bytes | None) -> tuple[str, Transaction | None]:
    """Raises UnknownRecord for what a newer release wrote."""
    if key is None or len(key) < _VERSION.size:
        raise UnknownRecord("record without a key")
    (number,) = _VERSION.unpack_from(key)
    if number != _TRANSACTION_KEY:
        raise UnknownRecord(f"record key of type {number}")
    try:
        transactional_id: str = _read_key(key, _VERSION.size)[0].transactional_id
        if value is None:
            return transactional_id, None
        (version,) = _VERSION.unpack_from(value)
        if not 0 <= version < len(_read_values):
            raise UnknownRecord(f"transaction {transactional_id} with a value of version {version}")
        return transactional_id, _transaction(_read_values[version](value, _VERSION.size)[0])
    except (SerialError, struct.error, IndexError, ValueError) as error:
        raise UnknownRecord(f"malformed transaction record: {error}") from error


def _transaction(stored: Any) -> Transaction:
    return Transaction(
        producer_id=stored.producer_id,
        epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=State(stored.transaction_status),
        updated_ms=stored.transaction_last_update_timestamp_ms,
        started_ms=stored.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(entry.topic, index)
            for entry in stored.transaction_partitions or ()
            for index in entry.partition_ids
        ),
        previous_producer_id=getattr(stored, "previous_producer_id", -1),
        next_producer_id=getattr(stored, "next_producer_id", -1),
        client_version=getattr(stored, "client_transaction_version", 0),
    )
