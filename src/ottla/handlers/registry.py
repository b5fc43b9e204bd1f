"""Every API this broker has, in which versions, and the module that answers it.

This table is what ApiVersions advertises. Modules are imported when their API is first asked for: building
kio's classes for all of them would take longer than the rest of a broker's start.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.wire import fetch, offset_commit, produce
from ottla.wire.api import ApiKey

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
    handler: Callable[..., Any] | None = None
    is_async: bool = False

    def load(self) -> Callable[..., Any]:
        if self.handler is None:
            importlib.import_module(f"ottla.handlers.{self.module}")
        if self.handler is None:
            raise LookupError(f"ottla.handlers.{self.module} has no handler for {self.key.name}")
        return self.handler


REGISTRY: dict[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 3, 13, "produce", is_hot=True, first_flexible=produce.FIRST_FLEXIBLE),
        Api(ApiKey.FETCH, 4, 18, "fetch", is_hot=True, first_flexible=fetch.FIRST_FLEXIBLE),
        Api(ApiKey.LIST_OFFSETS, 1, 11, "list_offsets"),
        Api(ApiKey.METADATA, 0, 13, "metadata"),
        Api(
            ApiKey.OFFSET_COMMIT,
            2,
            10,
            "offset_commit",
            is_hot=True,
            first_flexible=offset_commit.FIRST_FLEXIBLE,
        ),
        Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets"),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, "coordinators"),
        Api(ApiKey.JOIN_GROUP, 0, 9, "groups"),
        Api(ApiKey.HEARTBEAT, 0, 4, "groups"),
        Api(ApiKey.LEAVE_GROUP, 0, 5, "groups"),
        Api(ApiKey.SYNC_GROUP, 0, 5, "groups"),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "groups"),
        Api(ApiKey.LIST_GROUPS, 0, 5, "groups"),
        Api(ApiKey.API_VERSIONS, 0, 4, "api_versions"),
        Api(ApiKey.CREATE_TOPICS, 2, 7, "topics"),
        Api(ApiKey.DELETE_TOPICS, 1, 6, "topics"),
        Api(ApiKey.DELETE_RECORDS, 0, 2, "delete_records"),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 6, "producer_ids"),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "leader_epochs"),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "markers"),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions"),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions"),
        Api(ApiKey.END_TXN, 0, 5, "transactions"),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "txn_offsets"),
        Api(ApiKey.DESCRIBE_ACLS, 1, 3, "acls"),
        Api(ApiKey.CREATE_ACLS, 1, 3, "acls"),
        Api(ApiKey.DELETE_ACLS, 1, 3, "acls"),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs"),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs"),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs"),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics"),
        Api(ApiKey.DELETE_GROUPS, 0, 2, "groups"),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs"),
        Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets"),
        Api(ApiKey.DESCRIBE_QUORUM, 0, 2, "quorum"),
        Api(ApiKey.UPDATE_FEATURES, 0, 2, "features"),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster"),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "producers"),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transactions"),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transactions"),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "consumer_groups"),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "consumer_groups"),
        Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, "telemetry"),
        Api(ApiKey.PUSH_TELEMETRY, 0, 0, "telemetry"),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs"),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "topic_partitions"),
    )
}


def handles(key: ApiKey) -> Callable[[F], F]:
    """The decorated function takes (broker, context, request) and returns the response, or is a coroutine.

    A hot handler is spared kio and the context: it takes (broker, version, frame, position) and returns the
    body as buffers, a `PendingReply`, or None where the protocol has no answer. That of Produce is also given
    the listener.
    """

    def register(handler: F) -> F:
        api = REGISTRY[key]
        if api.handler is not None:
            raise ValueError(f"{key.name} already has a handler: {api.handler.__qualname__}")
        api.handler = handler
        api.is_async = inspect.iscoroutinefunction(handler)
        return handler

    return register
