"""Errors a client can be told about: raised anywhere below, turned into codes by `server.dispatch` alone.

The codes, their names and whether they are retriable are kio's `ErrorCode`; here are the exceptions that
carry them. `message` is for people: it names the input and the remedy.
"""

from __future__ import annotations

from typing import ClassVar

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """Base of every error with a wire code. Subclasses exist where code needs to tell them apart."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.code.name)
        self.message = message


class CorruptMessage(KafkaError):
    code = ErrorCode.corrupt_message


class RecordTooLarge(KafkaError):
    code = ErrorCode.message_too_large


class RecordListTooLarge(KafkaError):
    code = ErrorCode.record_list_too_large


class InvalidRecord(KafkaError):
    code = ErrorCode.invalid_record


class InvalidTimestamp(KafkaError):
    code = ErrorCode.invalid_timestamp


class UnsupportedForMessageFormat(KafkaError):
    code = ErrorCode.unsupported_for_message_format


class UnsupportedCompressionType(KafkaError):
    code = ErrorCode.unsupported_compression_type


class OffsetOutOfRange(KafkaError):
    code = ErrorCode.offset_out_of_range


class OutOfOrderSequence(KafkaError):
    code = ErrorCode.out_of_order_sequence_number


class DuplicateSequence(KafkaError):
    code = ErrorCode.duplicate_sequence_number


class InvalidProducerEpoch(KafkaError):
    code = ErrorCode.invalid_producer_epoch


class UnknownProducerId(KafkaError):
    code = ErrorCode.unknown_producer_id


class UnknownTopicOrPartition(KafkaError):
    code = ErrorCode.unknown_topic_or_partition


class UnknownTopicId(KafkaError):
    code = ErrorCode.unknown_topic_id


class NotLeaderOrFollower(KafkaError):
    code = ErrorCode.not_leader_or_follower


class FencedLeaderEpoch(KafkaError):
    code = ErrorCode.fenced_leader_epoch


class UnknownLeaderEpoch(KafkaError):
    code = ErrorCode.unknown_leader_epoch


class StorageError(KafkaError):
    code = ErrorCode.kafka_storage_error


class InvalidTopic(KafkaError):
    code = ErrorCode.invalid_topic_exception


class TopicAlreadyExists(KafkaError):
    code = ErrorCode.topic_already_exists


class InvalidPartitions(KafkaError):
    code = ErrorCode.invalid_partitions


class InvalidReplicationFactor(KafkaError):
    code = ErrorCode.invalid_replication_factor


class InvalidReplicaAssignment(KafkaError):
    code = ErrorCode.invalid_replica_assignment


class InvalidConfig(KafkaError):
    code = ErrorCode.invalid_config


class InvalidRequest(KafkaError):
    code = ErrorCode.invalid_request


class NotController(KafkaError):
    code = ErrorCode.not_controller


class PolicyViolation(KafkaError):
    code = ErrorCode.policy_violation


class RequestTimedOut(KafkaError):
    code = ErrorCode.request_timed_out


class UnsupportedVersion(KafkaError):
    code = ErrorCode.unsupported_version
