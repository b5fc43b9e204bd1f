"""Every API this node has, in which versions, and the module that answers it.

These tables are what ApiVersions advertises: one for clients and other brokers, one for the listeners of the
controller quorum. Modules are imported when their API is first asked for: building
kio's classes for all of them would take longer than the rest of a broker's start.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from ottla.handlers.authorization import CONTROLLER_RULES, RULES, Rule, check_whole, is_checked_whole
from ottla.handlers.context import RequestContext
from ottla.handlers.refusal import Refuse
from ottla.wire import fetch, offset_commit, produce
from ottla.wire.api import ApiKey
from ottla.wire.errors import KafkaError

F = TypeVar("F", bound=Callable[..., Any])

NEVER = 1 << 15


@dataclass(slots=True)
class Api:
    key: ApiKey
    min_version: int
    max_version: int
    module: str
    is_hot: bool = False
    """The handler does its own decoding, see `handles`."""
    first_flexible: int = NEVER
    """Of a hot API; kio knows it for the others."""
    looks_up: bool = False
    """It only tells what there is, and its answer may be long: see `server.long_answers`."""
    handler: Callable[..., Any] | None = None
    is_async: bool = False
    is_forwarded: bool = False
    """The active controller answers it, whichever broker is asked."""
    stays: Callable[[Any], bool] | None = None
    """Of one that is forwarded: whether this request is about this very process all the same."""
    refuses_here: Callable[..., Awaitable[Any]] | None = None
    """Of one that is forwarded: what only this node can find out. Gives an answer, or None to forward it."""

    def load(self) -> Callable[..., Any]:
        if self.handler is None:
            importlib.import_module(f"ottla.handlers.{self.module}")
        if self.handler is None:
            raise LookupError(f"ottla.handlers.{self.module} has no handler for {self.key.name}")
        return self.handler


Apis: TypeAlias = Mapping[int, Api]

REGISTRY: dict[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 3, 13, "produce", is_hot=True, first_flexible=produce.FIRST_FLEXIBLE),
        Api(ApiKey.FETCH, 4, 18, "fetch", is_hot=True, first_flexible=fetch.FIRST_FLEXIBLE),
        Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets", looks_up=True),
        Api(ApiKey.METADATA, 0, 13, "metadata", looks_up=True),
        Api(
            ApiKey.OFFSET_COMMIT,
            2,
            10,
            "offset_commit",
            is_hot=True,
            first_flexible=offset_commit.FIRST_FLEXIBLE,
        ),
        Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets", looks_up=True),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, "coordinators"),
        Api(ApiKey.JOIN_GROUP, 0, 9, "groups"),
        Api(ApiKey.HEARTBEAT, 0, 4, "groups"),
        Api(ApiKey.LEAVE_GROUP, 0, 5, "groups"),
        Api(ApiKey.SYNC_GROUP, 0, 5, "groups"),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "groups", looks_up=True),
        Api(ApiKey.LIST_GROUPS, 0, 5, "groups", looks_up=True),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, "sasl"),
        Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
        Api(ApiKey.CREATE_TOPICS, 2, 7, "topics", is_forwarded=True),
        Api(ApiKey.DELETE_TOPICS, 1, 6, "topics", is_forwarded=True),
        Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 6, "producer_ids"),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "leader_epochs", looks_up=True),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "markers"),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions"),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions"),
        Api(ApiKey.END_TXN, 0, 5, "transactions"),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offsets"),
        Api(ApiKey.DESCRIBE_ACLS, 1, 3, "acls", looks_up=True),
        Api(ApiKey.CREATE_ACLS, 1, 3, "acls", is_forwarded=True),
        Api(ApiKey.DELETE_ACLS, 1, 3, "acls", is_forwarded=True),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs", looks_up=True),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs", is_forwarded=True),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "replica_log_dirs"),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs", looks_up=True),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, "sasl"),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics", is_forwarded=True),
        Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, "delegation_tokens", is_forwarded=True),
        Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, "delegation_tokens", is_forwarded=True),
        Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, "delegation_tokens", is_forwarded=True),
        Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, "delegation_tokens"),
        Api(ApiKey.DELETE_GROUPS, 0, 2, "groups"),
        Api(ApiKey.ELECT_LEADERS, 0, 2, "elections", is_forwarded=True),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs", is_forwarded=True),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, "reassignments", is_forwarded=True),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "reassignments", is_forwarded=True),
        Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets"),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, "quotas", looks_up=True),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, "quotas", is_forwarded=True),
        Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "scram_credentials"),
        Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "scram_credentials", is_forwarded=True),
        Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "quorum", looks_up=True, is_forwarded=True),
        Api(ApiKey.UPDATE_FEATURES, 0, 2, "features", is_forwarded=True),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster", looks_up=True),
        Api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster_brokers", is_forwarded=True),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "producers", looks_up=True),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transactions", looks_up=True),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transactions", looks_up=True),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_groups"),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_groups", looks_up=True),
        Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "telemetry"),
        Api(ApiKey.PUSH_TELEMETRY, 0, 0, "telemetry"),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs", looks_up=True),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "topic_partitions", looks_up=True),
        Api(ApiKey.SHARE_FETCH, 1, 2, "share_fetch"),
        Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, "share_acknowledge"),
        Api(ApiKey.ADD_RAFT_VOTER, 0, 1, "voters", is_forwarded=True),
        Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, "voters", is_forwarded=True),
        Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, "share_groups"),
        Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, "share_groups", looks_up=True),
        Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, "share_states"),
        Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, "share_states"),
        Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, "share_states"),
        Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, "share_states"),
        Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, "share_states"),
        Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, "share_offsets", looks_up=True),
        Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, "share_offsets"),
        Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, "share_offsets"),
    )
}


# On the listeners of controllers: of what clients ask, what the active controller answers, so that tools can
# ask it without a broker; and what nodes ask each other.
_ON_BOTH = (
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)

CONTROLLER_REGISTRY: dict[int, Api] = {
    **{key: REGISTRY[key] for key in _ON_BOTH},
    **{
        api.key: api
        for api in (
            Api(ApiKey.ALTER_PARTITION, 2, 3, "in_sync_replicas"),
            Api(ApiKey.ENVELOPE, 0, 0, "envelope"),
            Api(ApiKey.BROKER_REGISTRATION, 0, 4, "cluster_brokers"),
            Api(ApiKey.BROKER_HEARTBEAT, 0, 2, "cluster_brokers"),
            Api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, "cluster_controllers"),
            Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, "producer_id_blocks"),
            Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, "replica_directories"),
            Api(ApiKey.FETCH, 15, 18, "raft"),
            Api(ApiKey.VOTE, 0, 2, "raft"),
            Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, "raft"),
            Api(ApiKey.END_QUORUM_EPOCH, 0, 1, "raft"),
            Api(ApiKey.FETCH_SNAPSHOT, 0, 1, "raft"),
            Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, "voters"),
        )
    },
}

BEFORE_AUTHENTICATION: Apis = {
    key: REGISTRY[key] for key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
}
"""On any listener, for clients that have to prove who they are first."""


def handles(
    key: ApiKey,
    refuse: Refuse | None = None,
    *,
    of_controller: bool = False,
    stays: Callable[[Any], bool] | None = None,
    refuses_here: Callable[..., Awaitable[Any]] | None = None,
) -> Callable[[F], F]:
    """The decorated function takes (broker, context, request) and returns the response, or is a coroutine.

    The context has the connection's session and the version. A hot handler is spared kio and the context: it
    takes (broker, session, version, frame, position) and returns the body as buffers, a `PendingReply`, or
    None where the protocol has no answer.

    A KafkaError that the handler raises is answered with what `refuse` makes of it; so is a permission that
    is missing for the request as a whole, see `authorization`.
    """

    def register(handler: F) -> F:
        api = (CONTROLLER_REGISTRY if of_controller else REGISTRY)[key]
        if api.handler is not None:
            raise ValueError(f"{key.name} already has a handler: {api.handler.__qualname__}")
        api.stays, api.refuses_here = stays, refuses_here
        api.is_async = inspect.iscoroutinefunction(handler)
        rule = (CONTROLLER_RULES if of_controller else RULES)[key]
        if refuse is not None:
            checked = rule if is_checked_whole(rule) else None
            answer = _refusing_later if api.is_async else _refusing
            handler = cast(F, answer(handler, refuse, checked))
        elif is_checked_whole(rule):
            raise ValueError(f"{key.name} may have to be refused, and its handler does not say how")
        api.handler = handler
        return handler

    return register


def _refusing(handler: Callable[..., Any], refuse: Refuse, rule: Rule | None) -> Callable[..., Any]:
    @wraps(handler)
    def answer(broker: Any, context: RequestContext, request: Any) -> Any:
        try:
            if rule is not None:
                check_whole(rule, context, request)
            return handler(broker, context, request)
        except KafkaError as error:
            return refuse(context, request, error)

    return answer


def _refusing_later(handler: Callable[..., Any], refuse: Refuse, rule: Rule | None) -> Callable[..., Any]:
    @wraps(handler)
    async def answer(broker: Any, context: RequestContext, request: Any) -> Any:
        try:
            if rule is not None:
                check_whole(rule, context, request)
            return await handler(broker, context, request)
        except KafkaError as error:
            return refuse(context, request, error)

    return answer
