"""Errors a client can be told about: raised anywhere below, turned into codes by `server.dispatch` alone.

The codes, their names and whether they are retriable are kio's `ErrorCode`; here are the exceptions that
carry them. `message` is for people: it names the input and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """Base of every error with a wire code. Subclasses exist where code needs to tell them apart."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error

    def __init__(self, message: str = "", *, about: str = "") -> None:
        """`about` says what was asked: an error read from an answer makes no sense without it."""
        text = message or self.code.name
        if about:
            text = f"{about}: {self.code.name.upper()}" + (f": {message}" if message else "")
        super().__init__(text)
        self.message = message
        self.about = about


class AuthorizerNotReady(KafkaError):
    """As Apache Kafka, which has no code for it."""


class CorruptMessage(KafkaError):
    code = ErrorCode.corrupt_message


class RecordTooLarge(KafkaError):
    code = ErrorCode.message_too_large


class RecordListTooLarge(KafkaError):
    code = ErrorCode.record_list_too_large


class RefusedRecords(KafkaError):
    """A batch that is refused for some of its records."""

    def __init__(
        self, message: str = "", *, about: str = "", record_errors: Sequence[tuple[int, str]] = ()
    ) -> None:
        """`record_errors` are the indexes of these records, and what is wrong with each."""
        super().__init__(message, about=about)
        self.record_errors = record_errors


class InvalidRecord(RefusedRecords):
    code = ErrorCode.invalid_record


class InvalidTimestamp(RefusedRecords):
    code = ErrorCode.invalid_timestamp


class UnsupportedForMessageFormat(KafkaError):
    code = ErrorCode.unsupported_for_message_format


class UnsupportedCompressionType(KafkaError):
    code = ErrorCode.unsupported_compression_type


class ThrottlingQuotaExceeded(KafkaError):
    code = ErrorCode.throttling_quota_exceeded


class UnknownSubscriptionId(KafkaError):
    code = ErrorCode.unknown_subscription_id


class TelemetryTooLarge(KafkaError):
    code = ErrorCode.telemetry_too_large


class OffsetOutOfRange(KafkaError):
    code = ErrorCode.offset_out_of_range


class OutOfOrderSequence(KafkaError):
    code = ErrorCode.out_of_order_sequence_number


class InvalidProducerEpoch(KafkaError):
    code = ErrorCode.invalid_producer_epoch


class InvalidTxnState(KafkaError):
    code = ErrorCode.invalid_txn_state


class TransactionCoordinatorFenced(KafkaError):
    code = ErrorCode.transaction_coordinator_fenced


class TopicAuthorizationFailed(KafkaError):
    code = ErrorCode.topic_authorization_failed


class GroupAuthorizationFailed(KafkaError):
    code = ErrorCode.group_authorization_failed


class ClusterAuthorizationFailed(KafkaError):
    code = ErrorCode.cluster_authorization_failed


class DelegationTokenAuthorizationFailed(KafkaError):
    code = ErrorCode.delegation_token_authorization_failed


class SecurityDisabled(KafkaError):
    code = ErrorCode.security_disabled


class TransactionalIdAuthorizationFailed(KafkaError):
    code = ErrorCode.transactional_id_authorization_failed


class InvalidProducerIdMapping(KafkaError):
    code = ErrorCode.invalid_producer_id_mapping


class ProducerFenced(KafkaError):
    code = ErrorCode.producer_fenced


class InvalidTransactionTimeout(KafkaError):
    code = ErrorCode.invalid_transaction_timeout


class ConcurrentTransactions(KafkaError):
    code = ErrorCode.concurrent_transactions


class TransactionalIdNotFound(KafkaError):
    code = ErrorCode.transactional_id_not_found


class UnknownTopicOrPartition(KafkaError):
    code = ErrorCode.unknown_topic_or_partition


class UnknownTopicId(KafkaError):
    code = ErrorCode.unknown_topic_id


class FencedLeaderEpoch(KafkaError):
    code = ErrorCode.fenced_leader_epoch


class UnknownLeaderEpoch(KafkaError):
    code = ErrorCode.unknown_leader_epoch


class StorageError(KafkaError):
    code = ErrorCode.kafka_storage_error


class LogDirNotFound(KafkaError):
    code = ErrorCode.log_dir_not_found


class ReplicaNotAvailable(KafkaError):
    code = ErrorCode.replica_not_available


class InvalidTopic(KafkaError):
    code = ErrorCode.invalid_topic_exception


class TopicAlreadyExists(KafkaError):
    code = ErrorCode.topic_already_exists


class TopicDeletionDisabled(KafkaError):
    code = ErrorCode.topic_deletion_disabled


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


class StaleBrokerEpoch(KafkaError):
    code = ErrorCode.stale_broker_epoch


class BrokerIdNotRegistered(KafkaError):
    code = ErrorCode.broker_id_not_registered


class InvalidUpdateVersion(KafkaError):
    code = ErrorCode.invalid_update_version


class PolicyViolation(KafkaError):
    code = ErrorCode.policy_violation


class RequestTimedOut(KafkaError):
    code = ErrorCode.request_timed_out


class UnsupportedVersion(KafkaError):
    code = ErrorCode.unsupported_version


class NotEnoughReplicas(KafkaError):
    code = ErrorCode.not_enough_replicas


class NotEnoughReplicasAfterAppend(KafkaError):
    code = ErrorCode.not_enough_replicas_after_append


class LeaderNotAvailable(KafkaError):
    code = ErrorCode.leader_not_available


class OffsetNotAvailable(KafkaError):
    code = ErrorCode.offset_not_available


class CoordinatorLoadInProgress(KafkaError):
    code = ErrorCode.coordinator_load_in_progress


class CoordinatorNotAvailable(KafkaError):
    code = ErrorCode.coordinator_not_available


class NotCoordinator(KafkaError):
    code = ErrorCode.not_coordinator


class InvalidGroupId(KafkaError):
    code = ErrorCode.invalid_group_id


class InvalidRecordState(KafkaError):
    code = ErrorCode.invalid_record_state


class ShareSessionNotFound(KafkaError):
    code = ErrorCode.share_session_not_found


class InvalidShareSessionEpoch(KafkaError):
    code = ErrorCode.invalid_share_session_epoch


class ShareSessionLimitReached(KafkaError):
    code = ErrorCode.share_session_limit_reached


class GroupIdNotFound(KafkaError):
    code = ErrorCode.group_id_not_found


class NonEmptyGroup(KafkaError):
    code = ErrorCode.non_empty_group


class GroupMaxSizeReached(KafkaError):
    code = ErrorCode.group_max_size_reached


class InconsistentGroupProtocol(KafkaError):
    code = ErrorCode.inconsistent_group_protocol


class UnknownMemberId(KafkaError):
    code = ErrorCode.unknown_member_id


class FencedInstanceId(KafkaError):
    code = ErrorCode.fenced_instance_id


class UnreleasedInstanceId(KafkaError):
    code = ErrorCode.unreleased_instance_id


class IllegalGeneration(KafkaError):
    code = ErrorCode.illegal_generation


class FencedMemberEpoch(KafkaError):
    code = ErrorCode.fenced_member_epoch


class StaleMemberEpoch(KafkaError):
    code = ErrorCode.stale_member_epoch


class RebalanceInProgress(KafkaError):
    code = ErrorCode.rebalance_in_progress


class InvalidSessionTimeout(KafkaError):
    code = ErrorCode.invalid_session_timeout


class UnsupportedAssignor(KafkaError):
    code = ErrorCode.unsupported_assignor


class InvalidRegularExpression(KafkaError):
    code = ErrorCode.invalid_regular_expression


class DuplicateBrokerRegistration(KafkaError):
    code = ErrorCode.duplicate_broker_registration


class InvalidRegistration(KafkaError):
    code = ErrorCode.invalid_registration


class InconsistentClusterId(KafkaError):
    code = ErrorCode.inconsistent_cluster_id


class IneligibleReplica(KafkaError):
    code = ErrorCode.ineligible_replica


class NewLeaderElected(KafkaError):
    code = ErrorCode.new_leader_elected


class ElectionNotNeeded(KafkaError):
    code = ErrorCode.election_not_needed


class PreferredLeaderNotAvailable(KafkaError):
    code = ErrorCode.preferred_leader_not_available


class EligibleLeadersNotAvailable(KafkaError):
    code = ErrorCode.eligible_leaders_not_available


class NoReassignmentInProgress(KafkaError):
    code = ErrorCode.no_reassignment_in_progress


class NotLeaderOrFollower(KafkaError):
    code = ErrorCode.not_leader_or_follower


class NetworkException(KafkaError):
    code = ErrorCode.network_exception


class UnsupportedSaslMechanism(KafkaError):
    code = ErrorCode.unsupported_sasl_mechanism


class UnacceptableCredential(KafkaError):
    code = ErrorCode.unacceptable_credential


class ResourceNotFound(KafkaError):
    code = ErrorCode.resource_not_found


class DuplicateResource(KafkaError):
    code = ErrorCode.duplicate_resource


class InvalidPrincipalType(KafkaError):
    code = ErrorCode.invalid_principal_type


class DelegationTokenAuthDisabled(KafkaError):
    code = ErrorCode.delegation_token_auth_disabled


class DelegationTokenNotFound(KafkaError):
    code = ErrorCode.delegation_token_not_found


class DelegationTokenOwnerMismatch(KafkaError):
    code = ErrorCode.delegation_token_owner_mismatch


class DelegationTokenRequestNotAllowed(KafkaError):
    code = ErrorCode.delegation_token_request_not_allowed


class DelegationTokenExpired(KafkaError):
    code = ErrorCode.delegation_token_expired


class FencedStateEpoch(KafkaError):
    code = ErrorCode.fenced_state_epoch
