"""Why a batch is refused. The append path only notices that something is wrong; what it is, is found here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ottla.config import LogConfig
from ottla.log.types import TopicPartition
from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    read_header,
)
from ottla.records.checking import RECORD_BYTES_MIN, Demands, Fault
from ottla.records.compression import CODEC_MAX, CODEC_NAMES
from ottla.runtime.disk import ReadableBuffer
from ottla.wire.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    TransactionalIdAuthorizationFailed,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)

_SHOWN_MAX = 3


def refuse(
    partition: TopicPartition,
    records: ReadableBuffer,
    at: int,
    config: LogConfig,
    *,
    transactional: bool = False,
) -> NoReturn:
    """Say what is wrong with the batch at `at`. `transactional`: the request has a transactional id."""
    left = len(records) - at
    if not records:
        raise InvalidRecord(f"{partition}: no record batch was sent")
    magic = records[at + MAGIC_AT] if left > MAGIC_AT else MAGIC
    if magic < MAGIC:
        raise UnsupportedForMessageFormat(
            f"{partition}: records are in message format {magic}; format {MAGIC}, of clients since 0.11, is "
            "needed"
        )
    if left < HEADER_BYTES:
        raise CorruptMessage(f"{partition}: {left} bytes are too few for a record batch")
    header = read_header(records, at)
    if magic != MAGIC:
        raise CorruptMessage(f"{partition}: message format {magic} does not exist")
    if header.length < HEADER_BYTES - LOG_OVERHEAD_BYTES or header.size > left:
        raise CorruptMessage(f"{partition}: a batch claims {header.size} bytes where {left} were sent")
    if header.size > config.max_message_bytes:
        raise RecordTooLarge(
            f"{partition}: the batch has {header.size} bytes, max.message.bytes of the topic is "
            f"{config.max_message_bytes}; send smaller batches or raise it"
        )
    if header.attributes & CODEC_MASK > CODEC_MAX:
        raise UnsupportedCompressionType(f"{partition}: compression codec {header.codec} does not exist")
    if header.is_control:
        raise InvalidRecord(f"{partition}: clients may not write control batches")
    if header.is_transactional and not transactional:
        raise TransactionalIdAuthorizationFailed(
            f"{partition}: the records are part of a transaction, but the request names no transactional id"
        )
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp(f"{partition}: producers may not set the timestamp type to LogAppendTime")
    if header.base_offset != 0:
        raise InvalidRecord(f"{partition}: base offset of a new batch is {header.base_offset}, it must be 0")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{partition}: a batch of {header.record_count} records ends with offset delta "
            f"{header.last_offset_delta}"
        )
    raise InvalidRecord(
        f"{partition}: a batch claims {header.record_count} records, which cannot be in "
        f"{header.size - HEADER_BYTES} bytes of codec {CODEC_NAMES[header.codec]}: a record has at least "
        f"{RECORD_BYTES_MIN}"
    )


def may_append(attributes: int, trusted: bool, *, transactional: bool) -> bool:
    """Whether a batch may have such attributes. Bits without a meaning pass, as in Apache Kafka."""
    reserved = CONTROL | LOG_APPEND_TIME if transactional else CONTROL | LOG_APPEND_TIME | TRANSACTIONAL
    return attributes & CODEC_MASK <= CODEC_MAX and (trusted or not attributes & reserved)


def refuse_timestamp(partition: TopicPartition, timestamp: int, now_ms: int, config: LogConfig) -> NoReturn:
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    raise InvalidTimestamp(
        f"{partition}: timestamp {timestamp} is not between {oldest} and {newest}, as "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms demand"
    )


def refuse_faults(
    partition: TopicPartition, faults: Sequence[Fault], fault_count: int, demands: Demands
) -> NoReturn:
    """Name each record that cannot be accepted. As in Apache Kafka, one bad timestamp decides the error."""
    no_key = f"Compacted topic cannot accept message without key in topic partition {partition}."
    allowed = f"The timestamp should be within [{demands.oldest_ms}, {demands.newest_ms}]."
    errors = [
        (
            index,
            no_key
            if timestamp is None
            else f"Timestamp {timestamp} of message with offset {index} is out of range. {allowed}",
        )
        for index, timestamp in faults
    ]
    kind: type[InvalidTimestamp | InvalidRecord] = InvalidRecord
    if any(timestamp is not None for _, timestamp in faults):
        kind = InvalidTimestamp
    shown = "; ".join(f"record {index}: {text}" for index, text in errors[:_SHOWN_MAX])
    raise kind(
        f"{partition}: {fault_count} records of the batch were refused, and the others with them. {shown}",
        record_errors=errors,
    )
