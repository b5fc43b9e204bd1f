"""Which API needs which permission: one line each, as in Apache Kafka.

A check that names its resource by a function of the request is made before the handler is called, and refuses
the whole request; handlers make the others, for each thing that a request is about. The page of the reference
is written from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.handlers.authorized import require
from ottla.handlers.context import RequestContext
from ottla.wire.acls import CLUSTER_NAME, AclResource, Operation
from ottla.wire.api import ApiKey

NameOf: TypeAlias = Callable[[Any], str]


class Check(NamedTuple):
    operation: Operation
    kind: AclResource
    which: str
    """Of these resources, in words."""
    otherwise: str = ""
    """What happens without the permission, where that is not the error of its kind of resource."""
    name_of: NameOf | None = None
    """Makes it a check of the whole request: gives the resource's name."""


@dataclass(frozen=True, slots=True)
class Rule:
    api: ApiKey
    checks: tuple[Check, ...] = ()
    administrative: bool = False
    """It changes what the cluster is, or deletes: allowed ones may be asked for in the audit log."""


def _cluster(operation: Operation) -> Check:
    return Check(operation, AclResource.CLUSTER, "the cluster", name_of=lambda request: CLUSTER_NAME)


def _group(operation: Operation) -> Check:
    return Check(operation, AclResource.GROUP, "the group", name_of=lambda request: str(request.group_id))


def _transactional_id(operation: Operation, which: str = "the transactional id") -> Check:
    return Check(operation, AclResource.TRANSACTIONAL_ID, which)


def _topics(operation: Operation, which: str = "each topic", otherwise: str = "") -> Check:
    return Check(operation, AclResource.TOPIC, which, otherwise)


def _groups(operation: Operation, which: str = "each group", otherwise: str = "") -> Check:
    return Check(operation, AclResource.GROUP, which, otherwise)


def _or_else(operation: Operation, otherwise: str) -> Check:
    return Check(operation, AclResource.CLUSTER, "the cluster", otherwise)


_LEFT_OUT = "left out of the answer"
_UNKNOWN_BITS = "the field says 0"

RULES: dict[int, Rule] = {
    rule.api: rule
    for rule in (
        Rule(
            ApiKey.PRODUCE,
            (_topics(Operation.WRITE), _transactional_id(Operation.WRITE, "the transactional id, if any")),
        ),
        Rule(
            ApiKey.FETCH,
            (
                _topics(Operation.READ, "each topic, for consumers"),
                Check(
                    Operation.CLUSTER_ACTION,
                    AclResource.CLUSTER,
                    "the cluster, for followers",
                    "TOPIC_AUTHORIZATION_FAILED",
                ),
            ),
        ),
        Rule(ApiKey.LIST_OFFSETS, (_topics(Operation.DESCRIBE),)),
        Rule(
            ApiKey.METADATA,
            (
                _topics(Operation.DESCRIBE, "each topic that is named"),
                _topics(Operation.DESCRIBE, "each topic, where all are asked for", _LEFT_OUT),
                _or_else(Operation.CREATE, "to create what is missing: `Create` on the topic"),
                _topics(Operation.CREATE, "each topic to create"),
            ),
        ),
        Rule(ApiKey.OFFSET_COMMIT, (_groups(Operation.READ, "the group"), _topics(Operation.READ))),
        Rule(
            ApiKey.OFFSET_FETCH,
            (
                _groups(Operation.DESCRIBE),
                _topics(Operation.DESCRIBE, "each topic that is named"),
                _topics(Operation.DESCRIBE, "each topic, where all are asked for", _LEFT_OUT),
            ),
        ),
        Rule(
            ApiKey.FIND_COORDINATOR,
            (
                _groups(Operation.DESCRIBE, "each group"),
                _transactional_id(Operation.DESCRIBE, "each transactional id"),
                Check(
                    Operation.CLUSTER_ACTION,
                    AclResource.CLUSTER,
                    "the cluster, for partitions of share groups",
                ),
            ),
        ),
        Rule(ApiKey.JOIN_GROUP, (_group(Operation.READ),)),
        Rule(ApiKey.HEARTBEAT, (_group(Operation.READ),)),
        Rule(ApiKey.LEAVE_GROUP, (_group(Operation.READ),)),
        Rule(ApiKey.SYNC_GROUP, (_group(Operation.READ),)),
        Rule(ApiKey.DESCRIBE_GROUPS, (_groups(Operation.DESCRIBE),)),
        Rule(
            ApiKey.LIST_GROUPS,
            (
                _or_else(Operation.DESCRIBE, "`Describe` on each group"),
                _groups(Operation.DESCRIBE, "each group", _LEFT_OUT),
            ),
        ),
        Rule(ApiKey.API_VERSIONS),
        Rule(
            ApiKey.CREATE_TOPICS,
            (
                _or_else(Operation.CREATE, "`Create` on each topic"),
                _topics(Operation.CREATE),
                _topics(Operation.DESCRIBE_CONFIGS, "each topic", "its settings are left out of the answer"),
            ),
            administrative=True,
        ),
        Rule(
            ApiKey.DELETE_TOPICS,
            (
                _or_else(Operation.DELETE, "`Delete` on each topic"),
                _topics(Operation.DESCRIBE, "each topic", "an id is answered without its name"),
                _topics(Operation.DELETE),
            ),
            administrative=True,
        ),
        Rule(ApiKey.DELETE_RECORDS, (_topics(Operation.DELETE),), administrative=True),
        Rule(
            ApiKey.INIT_PRODUCER_ID,
            (
                _transactional_id(Operation.WRITE, "the transactional id, if any"),
                _transactional_id(Operation.TWO_PHASE_COMMIT, "the transactional id, if it prepares"),
                _or_else(Operation.IDEMPOTENT_WRITE, "without a transactional id: `Write` on any topic"),
            ),
        ),
        Rule(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            (
                _or_else(Operation.CLUSTER_ACTION, "`Describe` on each topic"),
                _topics(Operation.DESCRIBE),
            ),
        ),
        Rule(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            (
                _transactional_id(Operation.WRITE),
                _topics(Operation.WRITE),
                Check(
                    Operation.CLUSTER_ACTION,
                    AclResource.CLUSTER,
                    "the cluster, for brokers (since version 4)",
                ),
            ),
        ),
        Rule(
            ApiKey.ADD_OFFSETS_TO_TXN,
            (_transactional_id(Operation.WRITE), _groups(Operation.READ, "the group")),
        ),
        Rule(ApiKey.END_TXN, (_transactional_id(Operation.WRITE),)),
        Rule(
            ApiKey.WRITE_TXN_MARKERS,
            (
                _or_else(Operation.ALTER, "`ClusterAction` on the cluster"),
                _or_else(Operation.CLUSTER_ACTION, ""),
            ),
        ),
        Rule(
            ApiKey.TXN_OFFSET_COMMIT,
            (
                _transactional_id(Operation.WRITE),
                _groups(Operation.READ, "the group"),
                _topics(Operation.READ),
            ),
        ),
        Rule(ApiKey.SASL_HANDSHAKE),
        Rule(ApiKey.SASL_AUTHENTICATE),
        Rule(ApiKey.DESCRIBE_ACLS, (_cluster(Operation.DESCRIBE),)),
        Rule(ApiKey.CREATE_ACLS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(ApiKey.DELETE_ACLS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(
            ApiKey.DESCRIBE_CONFIGS,
            (
                _topics(Operation.DESCRIBE_CONFIGS),
                _groups(Operation.DESCRIBE_CONFIGS),
                Check(
                    Operation.DESCRIBE_CONFIGS,
                    AclResource.CLUSTER,
                    "the cluster, for brokers, their loggers and client metrics",
                ),
            ),
        ),
        Rule(
            ApiKey.ALTER_CONFIGS,
            (
                _topics(Operation.ALTER_CONFIGS),
                _groups(Operation.ALTER_CONFIGS),
                Check(
                    Operation.ALTER_CONFIGS,
                    AclResource.CLUSTER,
                    "the cluster, for brokers and client metrics",
                ),
            ),
            administrative=True,
        ),
        Rule(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            (
                _topics(Operation.ALTER_CONFIGS),
                _groups(Operation.ALTER_CONFIGS),
                Check(
                    Operation.ALTER_CONFIGS,
                    AclResource.CLUSTER,
                    "the cluster, for brokers, their loggers and client metrics",
                ),
            ),
            administrative=True,
        ),
        Rule(ApiKey.ALTER_REPLICA_LOG_DIRS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(ApiKey.DESCRIBE_LOG_DIRS, (_cluster(Operation.DESCRIBE),)),
        Rule(ApiKey.CREATE_PARTITIONS, (_topics(Operation.ALTER),), administrative=True),
        Rule(ApiKey.DELETE_GROUPS, (_groups(Operation.DELETE),), administrative=True),
        Rule(ApiKey.ELECT_LEADERS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(ApiKey.LIST_PARTITION_REASSIGNMENTS, (_cluster(Operation.DESCRIBE),)),
        Rule(ApiKey.OFFSET_DELETE, (_group(Operation.DELETE), _topics(Operation.READ)), administrative=True),
        Rule(ApiKey.DESCRIBE_CLIENT_QUOTAS, (_cluster(Operation.DESCRIBE_CONFIGS),)),
        Rule(ApiKey.ALTER_CLIENT_QUOTAS, (_cluster(Operation.ALTER_CONFIGS),), administrative=True),
        Rule(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (_cluster(Operation.DESCRIBE),)),
        Rule(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (_cluster(Operation.ALTER),), administrative=True),
        Rule(
            ApiKey.CREATE_DELEGATION_TOKEN,
            (Check(Operation.CREATE_TOKENS, AclResource.USER, "the owner, unless it is who asks"),),
            administrative=True,
        ),
        Rule(ApiKey.RENEW_DELEGATION_TOKEN, administrative=True),
        Rule(ApiKey.EXPIRE_DELEGATION_TOKEN, administrative=True),
        Rule(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            (
                Check(Operation.DESCRIBE, AclResource.DELEGATION_TOKEN, "each token of others", _LEFT_OUT),
                Check(Operation.DESCRIBE_TOKENS, AclResource.USER, "each owner of other tokens", _LEFT_OUT),
            ),
        ),
        Rule(ApiKey.DESCRIBE_QUORUM, (_cluster(Operation.DESCRIBE),)),
        Rule(ApiKey.UPDATE_FEATURES, (_cluster(Operation.ALTER),), administrative=True),
        Rule(
            ApiKey.DESCRIBE_CLUSTER,
            (
                Check(
                    Operation.DESCRIBE,
                    AclResource.CLUSTER,
                    "the cluster, to be told the operations allowed",
                    _UNKNOWN_BITS,
                ),
            ),
        ),
        Rule(ApiKey.UNREGISTER_BROKER, (_cluster(Operation.ALTER),), administrative=True),
        Rule(ApiKey.DESCRIBE_PRODUCERS, (_topics(Operation.READ),)),
        Rule(
            ApiKey.DESCRIBE_TRANSACTIONS,
            (
                _transactional_id(Operation.DESCRIBE, "each transactional id"),
                _topics(Operation.DESCRIBE, "each topic in a transaction", _LEFT_OUT),
            ),
        ),
        Rule(
            ApiKey.LIST_TRANSACTIONS,
            (Check(Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, "each transactional id", _LEFT_OUT),),
        ),
        Rule(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            (_group(Operation.READ), _topics(Operation.DESCRIBE, "each topic subscribed to by name")),
        ),
        Rule(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            (_groups(Operation.DESCRIBE), _topics(Operation.DESCRIBE, "each topic of its members")),
        ),
        Rule(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS),
        Rule(ApiKey.PUSH_TELEMETRY),
        Rule(ApiKey.LIST_CONFIG_RESOURCES, (_cluster(Operation.DESCRIBE_CONFIGS),)),
        Rule(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            (
                _topics(Operation.DESCRIBE, "each topic that is named"),
                _topics(Operation.DESCRIBE, "each topic, where all are asked for", _LEFT_OUT),
            ),
        ),
        Rule(ApiKey.SHARE_FETCH, (_group(Operation.READ), _topics(Operation.READ))),
        Rule(ApiKey.SHARE_ACKNOWLEDGE, (_group(Operation.READ), _topics(Operation.READ))),
        Rule(ApiKey.ADD_RAFT_VOTER, (_cluster(Operation.ALTER),)),
        Rule(ApiKey.REMOVE_RAFT_VOTER, (_cluster(Operation.ALTER),)),
        Rule(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            (_group(Operation.READ), _topics(Operation.DESCRIBE, "each topic subscribed to")),
        ),
        Rule(
            ApiKey.SHARE_GROUP_DESCRIBE,
            (_groups(Operation.DESCRIBE), _topics(Operation.DESCRIBE, "each topic of its members")),
        ),
        Rule(ApiKey.INITIALIZE_SHARE_GROUP_STATE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.READ_SHARE_GROUP_STATE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.WRITE_SHARE_GROUP_STATE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.DELETE_SHARE_GROUP_STATE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            (
                _groups(Operation.DESCRIBE),
                _topics(Operation.DESCRIBE, "each topic that is named"),
                _topics(Operation.DESCRIBE, "each topic, where all are asked for", _LEFT_OUT),
            ),
        ),
        Rule(
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            (_group(Operation.READ), _topics(Operation.READ)),
            administrative=True,
        ),
        Rule(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            (_group(Operation.DELETE), _topics(Operation.READ)),
            administrative=True,
        ),
    )
}

CONTROLLER_RULES: dict[int, Rule] = {
    rule.api: rule
    for rule in (
        Rule(ApiKey.ALTER_PARTITION, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.ENVELOPE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.BROKER_REGISTRATION, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.BROKER_HEARTBEAT, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.CONTROLLER_REGISTRATION, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.ALLOCATE_PRODUCER_IDS, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.ASSIGN_REPLICAS_TO_DIRS, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.FETCH, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.VOTE, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.BEGIN_QUORUM_EPOCH, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.END_QUORUM_EPOCH, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.FETCH_SNAPSHOT, (_cluster(Operation.CLUSTER_ACTION),)),
        Rule(ApiKey.UPDATE_RAFT_VOTER, (_cluster(Operation.CLUSTER_ACTION),)),
    )
}
"""On the listeners of controllers, what is not also asked of brokers."""


def check_whole(rule: Rule, context: RequestContext, request: Any) -> None:
    """Raises the refusal of a request that is refused as a whole."""
    if context.session.authorizer is None:
        return
    for check in rule.checks:
        if check.name_of is not None:
            require(context, check.operation, check.kind, check.name_of(request))


def is_checked_whole(rule: Rule) -> bool:
    return any(check.name_of is not None for check in rule.checks)
