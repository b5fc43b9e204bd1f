"""The metadata of a cluster as directories and files, with the names and texts of Apache Kafka's shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from ottla.cli.files.releases import METADATA_VERSION, level_text
from ottla.metadata.java_text import double
from ottla.metadata.uuids import uuid_text

if TYPE_CHECKING:
    from ottla.cli.files.metadata_source import ClusterMetadata
    from ottla.metadata.image import BrokerImage, PartitionImage, TopicImage

Node: TypeAlias = "Directory | str"
Make: TypeAlias = "Callable[[], Node]"


@dataclass(frozen=True, slots=True)
class Directory:
    """What is in it is made when it is looked at: a cluster may have very many partitions."""

    children: Mapping[str, Make]

    @property
    def names(self) -> list[str]:
        return sorted(self.children)

    def child(self, name: str) -> Node | None:
        make = self.children.get(name)
        return None if make is None else make()


_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_RECOVERY_STATES = ("RECOVERED", "RECOVERING")
_RULE_RESOURCES = (
    "UNKNOWN",
    "ANY",
    "TOPIC",
    "GROUP",
    "CLUSTER",
    "TRANSACTIONAL_ID",
    "DELEGATION_TOKEN",
    "USER",
)
_PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS = (
    "UNKNOWN",
    "ANY",
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
)
_PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_QUOTA_NAMES = {"client-id": "clientId", "ip": "ip", "user": "user"}


def root(metadata: ClusterMetadata) -> Directory:
    return Directory({"image": lambda: _image(metadata), "local": _local})


def _local() -> Node:
    from ottla import __version__

    return Directory({"version": lambda: __version__, "commitId": lambda: "unknown"})


def _image(metadata: ClusterMetadata) -> Node:
    image = metadata.image
    return Directory(
        {
            "provenance": lambda: _provenance(metadata),
            "features": lambda: _features(image.features),
            "cluster": lambda: _cluster(metadata),
            "topics": lambda: _topics(image.topics.values()),
            "configs": lambda: _configs(image.configs),
            "clientQuotas": lambda: _quotas(metadata.quotas),
            "producerIds": lambda: Directory({"nextProducerId": lambda: str(image.next_producer_id or -1)}),
            "acls": lambda: Directory({"byId": lambda: _rules(metadata.rules)}),
            "scram": lambda: _credentials(metadata.credentials),
            "delegationToken": lambda: _tokens(metadata.tokens),
        }
    )


def _provenance(metadata: ClusterMetadata) -> str:
    seconds, milliseconds = divmod(metadata.last_timestamp_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{milliseconds:03d}".rstrip("0").rstrip(".")
    return f"offset {metadata.image.offset}, epoch {metadata.image.epoch}, time {moment}{fraction}Z[UTC]"


def _features(levels: Mapping[str, int]) -> Node:
    version = levels.get(METADATA_VERSION)
    shown = "Optional.empty" if version is None else f"Optional[{level_text(METADATA_VERSION, version)}]"
    found = {f"finalized_{name}": str(level) for name, level in levels.items() if name != METADATA_VERSION}
    return _texts({"metadataVersion": shown, **found})


def _cluster(metadata: ClusterMetadata) -> Node:
    image = metadata.image
    return Directory(
        {
            "brokers": lambda: Directory(
                {
                    str(broker.id): partial(_broker, broker, metadata.cordoned)
                    for broker in image.brokers.values()
                }
            ),
            "controllers": lambda: Directory(
                {
                    str(controller.controller_id): partial(_controller, controller)
                    for controller in image.controllers.values()
                }
            ),
        }
    )


def _broker(broker: BrokerImage, cordoned: Mapping[int, Iterable[UUID]]) -> str:
    rack = "Optional.empty" if broker.rack is None else f"Optional[{broker.rack}]"
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, "
        f"incarnationId={uuid_text(broker.incarnation_id)}, {_reach(broker.endpoints, broker.features)}, "
        f"rack={rack}, fenced={_java(broker.fenced)}, "
        f"inControlledShutdown={_java(broker.in_controlled_shutdown)}, isMigratingZkBroker=false, "
        f"directories={_uuids(broker.directories)}, "
        f"cordonedDirectories={_uuids(cordoned.get(broker.id, ()))})"
    )


def _controller(controller: Any) -> str:
    return (
        f"ControllerRegistration(id={controller.controller_id}, "
        f"incarnationId={uuid_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_java(controller.zk_migration_ready)}, "
        f"{_reach(controller.end_points, controller.features)})"
    )


def _reach(endpoints: Iterable[Any], features: Iterable[Any]) -> str:
    """Listeners and features, which brokers and controllers show alike."""
    listeners = ", ".join(
        f"Endpoint(listenerName='{endpoint.name}', "
        f"securityProtocol={_named(_SECURITY_PROTOCOLS, endpoint.security_protocol)}, "
        f"host='{endpoint.host}', port={endpoint.port})"
        for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.name)
    )
    levels = ", ".join(
        f"{feature.name}: {feature.min_supported_version}-{feature.max_supported_version}"
        for feature in sorted(features, key=lambda feature: feature.name)
    )
    return f"listeners=[{listeners}], supportedFeatures={{{levels}}}"


def _topics(topics: Iterable[TopicImage]) -> Node:
    found = sorted(topics, key=lambda topic: topic.name)
    return Directory(
        {
            "byName": lambda: Directory({topic.name: partial(_topic, topic) for topic in found}),
            "byId": lambda: Directory({uuid_text(topic.id): partial(_topic, topic) for topic in found}),
        }
    )


def _topic(topic: TopicImage) -> Node:
    parts: dict[str, Make] = {"name": lambda: topic.name, "id": lambda: uuid_text(topic.id)}
    for number, partition in enumerate(topic.partitions):
        parts[str(number)] = partial(_partition, partition)
    return Directory(parts)


def _partition(partition: PartitionImage) -> str:
    return (
        f"PartitionRegistration(replicas={_list(partition.replicas)}, "
        f"directories={_uuids(partition.directories)}, isr={_list(partition.isr)}, "
        f"removingReplicas={_list(partition.removing_replicas)}, "
        f"addingReplicas={_list(partition.adding_replicas)}, "
        f"elr={_list(partition.eligible_leader_replicas)}, "
        f"lastKnownElr={_list(partition.last_known_elr)}, leader={partition.leader}, "
        f"leaderRecoveryState={_named(_RECOVERY_STATES, partition.leader_recovery_state)}, "
        f"leaderEpoch={partition.leader_epoch}, partitionEpoch={partition.partition_epoch})"
    )


def _configs(configs: Mapping[tuple[int, str], Mapping[str, str]]) -> Node:
    found: dict[str, Make] = {}
    for (kind, name), values in configs.items():
        label = _RESOURCES.get(kind, "UNKNOWN")
        found[f"{label}:{name}" if name else label] = partial(_texts, values)
    return Directory(found)


def _quotas(quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]]) -> Node:
    found: dict[str, Make] = {}
    for entity, limits in quotas.items():
        name = "_".join(
            f"{_QUOTA_NAMES.get(kind, kind)}({_escaped(value or '<default>')})" for kind, value in entity
        )
        shown = {key: double(value) for key, value in limits.items()}
        found[name] = partial(_texts, shown)
    return Directory(found)


def _rules(rules: Mapping[UUID, Any]) -> Node:
    return _texts({uuid_text(number): _rule(rule) for number, rule in rules.items()})


def _rule(rule: Any) -> str:
    return (
        f"StandardAcl[resourceType={_named(_RULE_RESOURCES, rule.resource_type)}, "
        f"resourceName={rule.resource_name}, patternType={_named(_PATTERNS, rule.pattern_type)}, "
        f"principal={rule.principal}, host={rule.host}, operation={_named(_OPERATIONS, rule.operation)}, "
        f"permissionType={_named(_PERMISSIONS, rule.permission_type)}]"
    )


def _credentials(credentials: Mapping[tuple[int, str], Any]) -> Node:
    def users(wanted: int) -> Node:
        return _texts(
            {
                user: f"ScramCredentialData(salt={found.salt.hex()}, storedKey={found.stored_key.hex()}, "
                f"serverKey={found.server_key.hex()}, iterations={found.iterations})"
                for (mechanism, user), found in credentials.items()
                if mechanism == wanted
            }
        )

    return Directory({name: partial(users, number) for number, name in _MECHANISMS.items()})


def _tokens(tokens: Mapping[str, Any]) -> Node:
    return _texts(
        {
            name: f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}"
            f"(tokenRequester={token.requester}(renewers={' '.join(token.renewers)}, "
            f"issueTimestamp={token.issue_timestamp}, maxTimestamp={token.max_timestamp}), "
            f"expiryTimestamp={token.expiration_timestamp}"
            for name, token in tokens.items()
        }
    )


def _texts(values: Mapping[str, str]) -> Directory:
    return Directory({name: partial(str, text) for name, text in values.items()})


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"UNKNOWN({number})"


def _list(numbers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _uuids(values: Iterable[UUID]) -> str:
    return f"[{', '.join(map(uuid_text, values))}]"


def _java(value: bool) -> str:
    return "true" if value else "false"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
