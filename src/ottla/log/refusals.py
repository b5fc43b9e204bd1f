"""Why a batch is refused. The append path only notices that something is wrong; what it is, is found here."""

from __future__ import annotations

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
    NO_TIMESTAMP,
    TRANSACTIONAL,
    read_header,
)
from ottla.records.compression import CODEC_MAX, CorruptRecords
from ottla.records.records import iter_records
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
    raise InvalidRecord(
        f"{partition}: a batch of {header.record_count} records ends with offset delta "
        f"{header.last_offset_delta}"
    )


def may_append(attributes: int, trusted: bool, *, transactional: bool) -> bool:
    """Whether a batch may have such attributes. Bits without a meaning pass, as in Apache Kafka."""
    reserved = CONTROL | LOG_APPEND_TIME if transactional else CONTROL | LOG_APPEND_TIME | TRANSACTIONAL
    return attributes & CODEC_MASK <= CODEC_MAX and (trusted or not attributes & reserved)


def check_timestamp(partition: TopicPartition, timestamp: int, now_ms: int, config: LogConfig) -> None:
    if timestamp == NO_TIMESTAMP:
        return
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    raise InvalidTimestamp(
        f"{partition}: timestamp {timestamp} is not between {oldest} and {newest}, as "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms demand"
    )


def require_keys(partition: TopicPartition, batch: ReadableBuffer) -> None:
    """Compaction keeps the last record of each key, so a record without one could never be told apart."""
    try:
        for index, record in enumerate(iter_records(batch)):
            if record.key is None:
                raise InvalidRecord(
                    f"{partition}: record {index} of the batch has no key, which a topic with "
                    "cleanup.policy=compact needs"
                )
    except CorruptRecords as error:
        raise CorruptMessage(f"{partition}: {error}") from error
