"""One request for every API, what a principal needs for it, and what an answer says of permissions.

The same requests are sent to Apache Kafka, by `kafka_answers.py`, and to Ottla, by the test; `answers.json`
has what Apache Kafka answered.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.client.messages import ask_codec
from ottla.records.records import Record, encode_batch
from ottla.wire.acls import CLUSTER_NAME, Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.api import ApiKey

ANSWERS = Path(__file__).with_name("answers.json")
PRINCIPAL = "User:alice"
TOPIC, OTHER, GROUP, TRANSACTION = "topic", "other", "group", "transaction"
HEADER = struct.Struct(">hhih")

Rule = tuple[Operation, AclResource, str]


def topic(operation: Operation, name: str = TOPIC) -> Rule:
    return operation, AclResource.TOPIC, name


def group(operation: Operation) -> Rule:
    return operation, AclResource.GROUP, GROUP


def shared(operation: Operation) -> Rule:
    return operation, AclResource.GROUP, "shared"


def cluster(operation: Operation) -> Rule:
    return operation, AclResource.CLUSTER, CLUSTER_NAME


def transaction(operation: Operation) -> Rule:
    return operation, AclResource.TRANSACTIONAL_ID, TRANSACTION


def acl(rule: Rule) -> Acl:
    operation, kind, name = rule
    return Acl(kind, name, PatternType.LITERAL, PRINCIPAL, "*", operation, Permission.ALLOW)


@dataclass(frozen=True)
class Case:
    api: ApiKey
    version: int
    values: Mapping[str, Any]
    grants: tuple[tuple[Rule, ...], ...]
    """Each of these alone; before them, none at all."""
    about: str = ""

    @property
    def name(self) -> str:
        return f"{self.api.name}{' ' if self.about else ''}{self.about}"


TOPIC_ID = object()
"""Stands for the id that the topic got."""
_BATCH = encode_batch([Record(b"k", b"v", 1_700_000_000_000)])
_O = Operation
_ALLOW_TOPIC = {
    "resource_type": 2,
    "resource_name": TOPIC,
    "resource_pattern_type": 3,
    "principal": "nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def _share_states(partition: Mapping[str, Any]) -> dict[str, Any]:
    return {"group_id": "shared", "topics": [{"topic_id": TOPIC_ID, "partitions": [partition]}]}


_NO_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_PRODUCER = {"producer_id": 4_000_000, "producer_epoch": 0}
_JOIN = {
    "group_id": GROUP,
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "member_id": "",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}


def _fetch(**of_topic: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": -1}
    return {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{**of_topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def _configs(kind: int, name: str, **configs: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, **configs}]}


CASES = (
    Case(
        ApiKey.PRODUCE,
        12,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": _BATCH}]}],
        },
        ((topic(_O.WRITE),),),
    ),
    Case(
        ApiKey.PRODUCE,
        13,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout": 5000,
            "topic_data": [{"topic_id": TOPIC_ID, "partition_data": [{"index": 0, "records": _BATCH}]}],
        },
        ((topic(_O.WRITE),),),
        "by id",
    ),
    Case(
        ApiKey.PRODUCE,
        12,
        {
            "transactional_id": TRANSACTION,
            "acks": -1,
            "timeout": 5000,
            "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": _BATCH}]}],
        },
        ((topic(_O.WRITE),), (topic(_O.WRITE), transaction(_O.WRITE))),
        "in a transaction",
    ),
    Case(ApiKey.FETCH, 12, _fetch(topic=TOPIC), ((topic(_O.READ),),)),
    Case(ApiKey.FETCH, 17, _fetch(topic_id=TOPIC_ID), ((topic(_O.READ),),), "by id"),
    Case(ApiKey.FETCH, 12, _fetch(topic="missing"), ((topic(_O.READ, "missing"),),), "of what is not there"),
    Case(
        ApiKey.LIST_OFFSETS,
        10,
        {
            "replica_id": -1,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            "timeout": 5000,
        },
        ((topic(_O.DESCRIBE),), (topic(_O.READ),)),
    ),
    Case(
        ApiKey.METADATA,
        12,
        {
            "topics": [{"name": TOPIC, "topic_id": None}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        ((topic(_O.DESCRIBE),), (topic(_O.ALTER), topic(_O.ALTER_CONFIGS)), (topic(_O.ALL),)),
    ),
    Case(
        ApiKey.METADATA,
        12,
        {"topics": [{"name": None, "topic_id": TOPIC_ID}], "allow_auto_topic_creation": False},
        ((topic(_O.DESCRIBE),),),
        "by id",
    ),
    Case(
        ApiKey.METADATA,
        12,
        {"topics": None, "allow_auto_topic_creation": False},
        ((topic(_O.DESCRIBE),), (topic(_O.READ, "*"),)),
        "of all",
    ),
    Case(
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "missing", "topic_id": None}], "allow_auto_topic_creation": True},
        ((topic(_O.DESCRIBE, "missing"),), (topic(_O.CREATE, "missing"),)),
        "that would create",
    ),
    Case(
        ApiKey.METADATA,
        8,
        {"topics": [], "include_cluster_authorized_operations": True},
        ((cluster(_O.DESCRIBE),), (cluster(_O.ALL),)),
        "of the cluster",
    ),
    Case(
        ApiKey.OFFSET_COMMIT,
        9,
        {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}],
                }
            ],
        },
        ((topic(_O.READ),), (group(_O.READ),), (group(_O.READ), topic(_O.READ))),
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        9,
        {"groups": [{"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}]},
        ((topic(_O.DESCRIBE),), (group(_O.DESCRIBE),), (group(_O.DESCRIBE), topic(_O.DESCRIBE))),
    ),
    Case(
        ApiKey.OFFSET_FETCH,
        9,
        {"groups": [{"group_id": GROUP, "topics": None}]},
        ((group(_O.DESCRIBE),), (group(_O.READ), topic(_O.DESCRIBE))),
        "of all",
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 0, "coordinator_keys": [GROUP]},
        ((group(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 1, "coordinator_keys": [TRANSACTION]},
        ((transaction(_O.DESCRIBE),),),
        "of a transaction",
    ),
    Case(ApiKey.JOIN_GROUP, 9, _JOIN, ((group(_O.DESCRIBE),), (group(_O.READ),))),
    Case(
        ApiKey.HEARTBEAT,
        4,
        {"group_id": GROUP, "generation_id": 1, "member_id": "m"},
        ((group(_O.READ),),),
    ),
    Case(
        ApiKey.LEAVE_GROUP,
        5,
        {"group_id": GROUP, "members": [{"member_id": "m"}]},
        ((group(_O.READ),),),
    ),
    Case(
        ApiKey.SYNC_GROUP,
        5,
        {
            "group_id": GROUP,
            "generation_id": 1,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        ((group(_O.READ),),),
    ),
    Case(
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": [GROUP], "include_authorized_operations": True},
        ((group(_O.DESCRIBE),), (group(_O.ALL),)),
    ),
    Case(
        ApiKey.LIST_GROUPS,
        4,
        {"states_filter": []},
        ((group(_O.READ),), (cluster(_O.DESCRIBE),)),
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {
                    "name": "new",
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": 5000,
            "validate_only": True,
        },
        (
            (topic(_O.CREATE, "new"),),
            (topic(_O.CREATE, "new"), topic(_O.DESCRIBE_CONFIGS, "new")),
            (cluster(_O.CREATE),),
        ),
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": "missing", "topic_id": None}], "timeout": 5000},
        ((topic(_O.DESCRIBE, "missing"),), (topic(_O.DELETE, "missing"),), (cluster(_O.DELETE),)),
        "that are not there",
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": TOPIC, "topic_id": None}], "timeout": 5000},
        ((topic(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": None, "topic_id": TOPIC_ID}], "timeout": 5000},
        ((topic(_O.DESCRIBE),),),
        "by id",
    ),
    Case(
        ApiKey.DELETE_RECORDS,
        2,
        {
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}],
            "timeout": 5000,
        },
        ((topic(_O.WRITE),), (topic(_O.DELETE),)),
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1},
        ((topic(_O.READ),), (topic(_O.WRITE),), (cluster(_O.IDEMPOTENT_WRITE),)),
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        4,
        {
            "transactional_id": TRANSACTION,
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ((cluster(_O.IDEMPOTENT_WRITE),), (transaction(_O.WRITE),)),
        "of a transaction",
    ),
    Case(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -1,
            "topics": [
                {"topic": TOPIC, "partitions": [{"partition": 0, "leader_epoch": 0}]},
            ],
        },
        ((topic(_O.DESCRIBE),), (cluster(_O.CLUSTER_ACTION),)),
    ),
    Case(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 4_000_000,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        ((topic(_O.WRITE),), (transaction(_O.WRITE),), (transaction(_O.WRITE), topic(_O.WRITE))),
    ),
    Case(
        ApiKey.ADD_OFFSETS_TO_TXN,
        3,
        {"transactional_id": TRANSACTION, "group_id": GROUP, **_PRODUCER},
        ((transaction(_O.WRITE),), (transaction(_O.WRITE), group(_O.READ))),
    ),
    Case(
        ApiKey.END_TXN,
        3,
        {"transactional_id": TRANSACTION, "committed": True, **_PRODUCER},
        ((transaction(_O.WRITE),),),
    ),
    Case(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    **_PRODUCER,
                    "transaction_result": False,
                    "topics": [{"name": "missing", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
        ((cluster(_O.ALTER),), (cluster(_O.CLUSTER_ACTION),)),
    ),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": TRANSACTION,
            "group_id": GROUP,
            **_PRODUCER,
            "generation_id": -1,
            "member_id": "",
            "topics": [
                {
                    "name": TOPIC,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ],
        },
        (
            (transaction(_O.WRITE),),
            (transaction(_O.WRITE), group(_O.READ)),
            (transaction(_O.WRITE), group(_O.READ), topic(_O.READ)),
        ),
    ),
    Case(ApiKey.DESCRIBE_ACLS, 3, _NO_ACL, ((cluster(_O.DESCRIBE),),)),
    Case(ApiKey.CREATE_ACLS, 3, {"creations": [_ALLOW_TOPIC]}, ((cluster(_O.ALTER),),)),
    Case(ApiKey.DELETE_ACLS, 3, {"filters": [_NO_ACL]}, ((cluster(_O.ALTER),),)),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        _configs(2, TOPIC, configuration_keys=["retention.ms"]),
        ((topic(_O.DESCRIBE),), (topic(_O.DESCRIBE_CONFIGS),), (topic(_O.ALTER_CONFIGS),)),
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        _configs(4, "1", configuration_keys=["log.retention.ms"]),
        ((cluster(_O.DESCRIBE_CONFIGS),),),
        "of a broker",
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        _configs(32, GROUP, configuration_keys=["consumer.session.timeout.ms"]),
        ((group(_O.DESCRIBE_CONFIGS),),),
        "of a group",
    ),
    Case(
        ApiKey.ALTER_CONFIGS,
        2,
        {
            **_configs(2, TOPIC, configs=[{"name": "retention.ms", "value": "1000"}]),
            "validate_only": True,
        },
        ((topic(_O.ALTER),), (topic(_O.ALTER_CONFIGS),)),
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            **_configs(2, TOPIC, configs=[{"name": "retention.ms", "config_operation": 0, "value": "1000"}]),
            "validate_only": True,
        },
        ((topic(_O.ALTER_CONFIGS),),),
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            **_configs(4, "", configs=[{"name": "log.retention.ms", "config_operation": 0, "value": "1000"}]),
            "validate_only": True,
        },
        ((cluster(_O.ALTER_CONFIGS),),),
        "of all brokers",
    ),
    Case(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        ((cluster(_O.ALTER),),),
    ),
    Case(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": []}, ((cluster(_O.DESCRIBE),),)),
    Case(
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": TOPIC, "count": 2, "assignments": None}],
            "timeout": 5000,
            "validate_only": True,
        },
        ((topic(_O.ALTER),),),
    ),
    Case(
        ApiKey.DELETE_GROUPS,
        2,
        {"groups_names": ["none"]},
        (((_O.READ, AclResource.GROUP, "none"),), ((_O.DELETE, AclResource.GROUP, "none"),)),
    ),
    Case(
        ApiKey.ELECT_LEADERS,
        2,
        {
            "election_type": 0,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout": 5000,
        },
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        {
            "timeout": 5000,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}],
        },
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        {"timeout": 5000, "topics": None},
        ((cluster(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.OFFSET_DELETE,
        0,
        {
            "group_id": GROUP,
            "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
        },
        ((topic(_O.READ),), (group(_O.DELETE),)),
    ),
    Case(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        1,
        {"components": [], "strict": False},
        ((cluster(_O.DESCRIBE_CONFIGS),),),
    ),
    Case(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        ((cluster(_O.ALTER_CONFIGS),),),
    ),
    Case(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [{"name": "nobody"}]},
        ((cluster(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.ADD_RAFT_VOTER,
        0,
        {
            "cluster_id": "another",
            "timeout": 5000,
            "voter_id": 5,
            "voter_directory_id": UUID(int=5),
            "listeners": [],
        },
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.REMOVE_RAFT_VOTER,
        0,
        {"cluster_id": "another", "voter_id": 5, "voter_directory_id": UUID(int=5)},
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        {
            "group_id": "shared",
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [TOPIC],
        },
        ((shared(_O.READ),), (shared(_O.READ), topic(_O.DESCRIBE))),
    ),
    Case(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        {"group_ids": ["shared"], "include_authorized_operations": True},
        ((shared(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {"groups": [{"group_id": "shared", "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
        ((shared(_O.DESCRIBE),), (topic(_O.DESCRIBE),)),
    ),
    Case(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        {
            "group_id": "altered",
            "topics": [{"topic_name": OTHER, "partitions": [{"partition_index": 0, "start_offset": 0}]}],
        },
        (((_O.READ, AclResource.GROUP, "altered"),), (topic(_O.READ, OTHER),)),
    ),
    Case(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        {"group_id": "shared", "topics": [{"topic_name": TOPIC}]},
        ((topic(_O.READ),), (shared(_O.DELETE),)),
    ),
    Case(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        0,
        _share_states({"partition": 0, "state_epoch": 0, "start_offset": 0}),
        ((cluster(_O.CLUSTER_ACTION),),),
    ),
    Case(
        ApiKey.READ_SHARE_GROUP_STATE,
        0,
        _share_states({"partition": 0, "leader_epoch": 0}),
        ((cluster(_O.CLUSTER_ACTION),),),
    ),
    Case(
        ApiKey.WRITE_SHARE_GROUP_STATE,
        1,
        _share_states(
            {
                "partition": 0,
                "state_epoch": 0,
                "leader_epoch": 0,
                "start_offset": 0,
                "delivery_complete_count": 0,
                "state_batches": [],
            }
        ),
        ((cluster(_O.CLUSTER_ACTION),),),
    ),
    Case(
        ApiKey.DELETE_SHARE_GROUP_STATE,
        0,
        _share_states({"partition": 0}),
        ((cluster(_O.CLUSTER_ACTION),),),
    ),
    Case(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        1,
        _share_states({"partition": 0, "leader_epoch": 0}),
        ((cluster(_O.CLUSTER_ACTION),),),
    ),
    Case(
        ApiKey.DESCRIBE_QUORUM,
        2,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
        ((cluster(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.UPDATE_FEATURES,
        2,
        {
            "timeout": 5000,
            "feature_updates": [{"feature": "nothing", "max_version_level": 1, "upgrade_type": 1}],
            "validate_only": True,
        },
        ((cluster(_O.ALTER),),),
    ),
    Case(
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": True, "endpoint_type": 1},
        ((cluster(_O.ALTER), cluster(_O.IDEMPOTENT_WRITE)), (cluster(_O.CREATE),)),
    ),
    Case(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 999}, ((cluster(_O.ALTER),),)),
    Case(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        ((topic(_O.DESCRIBE),), (topic(_O.READ),)),
    ),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": [TRANSACTION]},
        ((transaction(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.LIST_TRANSACTIONS,
        1,
        {"state_filters": [], "producer_id_filters": []},
        ((transaction(_O.DESCRIBE),),),
    ),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": None,
        },
        ((group(_O.READ),), (group(_O.READ), topic(_O.DESCRIBE))),
    ),
    Case(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        {"group_ids": ["none"], "include_authorized_operations": True},
        (((Operation.DESCRIBE, AclResource.GROUP, "none"),),),
    ),
    Case(
        ApiKey.SHARE_FETCH,
        1,
        {
            "group_id": GROUP,
            "member_id": "m",
            "share_session_epoch": 0,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [
                {"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}
            ],
            "forgotten_topics_data": [],
        },
        ((topic(_O.READ),), (group(_O.READ),), (group(_O.READ), topic(_O.READ))),
    ),
    Case(
        ApiKey.SHARE_ACKNOWLEDGE,
        1,
        {"group_id": GROUP, "member_id": "nobody", "share_session_epoch": 5, "topics": []},
        ((topic(_O.READ),), (group(_O.READ),)),
    ),
    Case(
        ApiKey.LIST_CONFIG_RESOURCES,
        0,
        {},
        ((cluster(_O.DESCRIBE_CONFIGS),),),
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": TOPIC}], "response_partition_limit": 100, "cursor": None},
        ((topic(_O.DESCRIBE),), (topic(_O.WRITE),)),
    ),
    Case(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [], "response_partition_limit": 100, "cursor": None},
        ((topic(_O.DESCRIBE),),),
        "of all",
    ),
)

_NOT_ABOUT_PERMISSIONS = {"configs", "nodes"}
_NAMES = {"name", "topic", "topic_name", "group_id", "transactional_id"}


def findings(answer: Any) -> list[str]:
    """What an answer says of permissions: error codes, operations, and what it names."""
    found: set[str] = set()
    _look(answer, found)
    return sorted(found)


def _look(entity: Any, found: set[str]) -> None:
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name.endswith("error_code"):
            found.add(f"{field.name} {int(value)}")
        elif field.name.endswith("authorized_operations") or (field.name in _NAMES and value):
            found.add(f"{field.name} {value}")
        elif isinstance(value, tuple) and field.name not in _NOT_ABOUT_PERMISSIONS:
            for item in value:
                if is_dataclass(item):
                    _look(item, found)
        elif is_dataclass(value):
            _look(value, found)


def with_topic_id(values: Any, topic_id: UUID) -> Any:
    if values is TOPIC_ID:
        return topic_id
    if isinstance(values, Mapping):
        return {key: with_topic_id(value, topic_id) for key, value in values.items()}
    if isinstance(values, list):
        return [with_topic_id(value, topic_id) for value in values]
    return values


def ask(
    connection: socket.socket,
    api: ApiKey,
    version: int,
    values: Mapping[str, Any],
    client_id: bytes = b"matrix",
) -> Any:
    codec = ask_codec(api, version)
    head = HEADER.pack(api, version, 7, len(client_id)) + client_id + (b"\0" if codec.flexible else b"")
    payload = head + codec.write(values)
    connection.sendall(struct.pack(">i", len(payload)) + payload)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return codec.read(_exactly(connection, size), 5 if codec.response_header_flexible else 4)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return data


class Cluster:
    """With a topic, a group and a transactional id; and the rules that a case asks for."""

    def __init__(self, admin: socket.socket, alice: socket.socket, settle_s: float = 0) -> None:
        """`settle_s` is the time from the answer that a rule was made until it counts."""
        self.admin = admin
        self.alice = alice
        self._settle_s = settle_s
        self.topic_id = prepare(admin)

    def answers(self, case: Case) -> dict[str, list[str]]:
        found = {}
        for grants in ((), *case.grants):
            set_rules(self.admin, grants)
            time.sleep(self._settle_s)
            answer = ask(self.alice, case.api, case.version, with_topic_id(case.values, self.topic_id))
            found[describe(grants)] = findings(answer)
        return found


def describe(grants: tuple[Rule, ...]) -> str:
    return ", ".join(f"{operation.name} {kind.name} {name}" for operation, kind, name in grants) or "nothing"


def set_rules(admin: socket.socket, grants: tuple[Rule, ...]) -> None:
    set_acls(admin, [acl(rule) for rule in grants])


def set_acls(admin: socket.socket, rules: Sequence[Acl]) -> None:
    """These and no others."""
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    ask(admin, ApiKey.DELETE_ACLS, 3, {"filters": [everything]})
    creations = [
        {
            "resource_type": rule.resource_type,
            "resource_name": rule.resource_name,
            "resource_pattern_type": rule.pattern_type,
            "principal": rule.principal,
            "host": rule.host,
            "operation": rule.operation,
            "permission_type": rule.permission,
        }
        for rule in rules
    ]
    answer = ask(admin, ApiKey.CREATE_ACLS, 3, {"creations": creations})
    assert all(result.error_code == 0 for result in answer.results)


def prepare(admin: socket.socket) -> UUID:
    """Makes the topics, the group and the transactional id; the id of the first topic."""
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name, **made} for name in (TOPIC, OTHER)]
    answer = ask(admin, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 20_000})
    for key_type, key in ((0, GROUP), (1, TRANSACTION)):
        values = {"key_type": key_type, "coordinator_keys": [key]}
        until(lambda values=values: ask(admin, ApiKey.FIND_COORDINATOR, 4, values).coordinators[0])
    producer = {"transactional_id": TRANSACTION, "transaction_timeout": 1000}
    producer |= {"producer_id": -1, "producer_epoch": -1}
    until(lambda: ask(admin, ApiKey.INIT_PRODUCER_ID, 4, producer))
    commit = next(case for case in CASES if case.api is ApiKey.OFFSET_COMMIT).values
    until(lambda: ask(admin, ApiKey.OFFSET_COMMIT, 9, commit).topics[0].partitions[0])
    (topic_id,) = (made.topic_id for made in answer.topics if made.name == TOPIC)
    return UUID(str(topic_id))


def until(attempt: Callable[[], Any]) -> Any:
    """A coordinator that is being loaded is asked again."""
    for _ in range(200):
        if (answer := attempt()).error_code == 0:
            return answer
        time.sleep(0.1)
    raise TimeoutError("the coordinator is not ready")
