"""Settings of topics, brokers, groups and client metrics: keys set, deleted, appended to, or all replaced.

A resource changes as a whole or not at all. Which keys there are, and what they may be, is `ottla.config`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.config import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigKey,
    ConfigType,
    validate_broker,
    validate_group,
    validate_topic,
)
from ottla.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    INTERVAL_MS_DEFAULT,
    client_metrics_subscription,
)
from ottla.config.listener_settings import parse_listener_key
from ottla.controller.command import Deciding, Result, check_size
from ottla.controller.topic_names import check_name
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.metadata.records import NO_LEADER, ConfigRecord, MetadataRecord, PartitionChangeRecord
from ottla.wire.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    UnknownTopicOrPartition,
)

VALUE_LENGTH_MAX = 32_767
ISR_MIN = "min.insync.replicas"


_KEYS: Mapping[int, Mapping[str, ConfigKey]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.BROKER: BROKER_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: int
    value: str | None = None


class ResourceChanges(NamedTuple):
    resource_type: int
    resource_name: str
    changes: tuple[ConfigChange, ...]


class ResourceConfigs(NamedTuple):
    """All the values a resource is to have."""

    resource_type: int
    resource_name: str
    values: tuple[tuple[str, str | None], ...]


class ConfigOutcome(NamedTuple):
    resource_type: int
    resource_name: str
    error: KafkaError | None = None


def incremental_alter_configs(
    image: MetadataImage, config: BrokerConfig, resources: Sequence[ResourceChanges]
) -> Deciding[list[ConfigOutcome]]:
    return _alter(image, config, resources)


def alter_configs(
    image: MetadataImage, config: BrokerConfig, resources: Sequence[ResourceConfigs]
) -> Deciding[list[ConfigOutcome]]:
    return _alter(image, config, resources)


def effective_config(config: BrokerConfig, image: MetadataImage) -> BrokerConfig:
    """The broker's file under what `image` has set for it and for all brokers."""
    default = image.config(ResourceType.BROKER, "")
    own = image.config(ResourceType.BROKER, str(config.node_id))
    return config.with_replayed(default, own) if default or own else config


def check_topic_values(
    config: BrokerConfig, values: Mapping[str, str], changed: Collection[str] | None = None
) -> None:
    """Raises InvalidConfig, also for a topic that is yet to be created. `changed` as in `validate_topic`."""
    _check_lengths(values)
    try:
        validate_topic(config, values, changed)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error


def _alter(
    image: MetadataImage, config: BrokerConfig, resources: Sequence[ResourceChanges | ResourceConfigs]
) -> Deciding[list[ConfigOutcome]]:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    records: list[MetadataRecord] = []
    outcomes = []
    for resource in resources:
        yield
        key = (resource.resource_type, resource.resource_name)
        try:
            if counts[key] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            records += _alter_resource(image, config, resource)
            outcomes.append(ConfigOutcome(*key))
        except KafkaError as error:
            outcomes.append(ConfigOutcome(*key, error))
    try:
        check_size(records)
    except PolicyViolation as error:
        return Result(
            [], [ConfigOutcome(outcome.resource_type, outcome.resource_name, error) for outcome in outcomes]
        )
    return Result(records, outcomes)


def _alter_resource(
    image: MetadataImage, config: BrokerConfig, resource: ResourceChanges | ResourceConfigs
) -> list[MetadataRecord]:
    current = image.config(resource.resource_type, resource.resource_name)
    values, touched = altered_values(current, resource)
    _check_lengths(values)
    if image.keeps_eligible_replicas:
        _check_isr_min(resource, touched)
    match resource.resource_type:
        case ResourceType.TOPIC:
            _check_topic(image, config, resource.resource_name, values, touched)
        case ResourceType.BROKER:
            _check_broker(image, config, resource.resource_name, values, touched)
        case ResourceType.GROUP:
            _check_group(effective_config(config, image), resource.resource_name, values, touched)
        case ResourceType.CLIENT_METRICS:
            _check_client_metrics(resource.resource_name, values)
        case kind if kind in ResourceType.__members__.values():
            raise InvalidRequest(f"Configs of resource type {ResourceType(kind).name} are not supported.")
        case _:
            raise InvalidRequest(f"Unknown resource type {resource.resource_type}")
    records: list[MetadataRecord] = [
        ConfigRecord(
            resource_type=resource.resource_type, resource_name=resource.resource_name, name=name, value=value
        )
        for name, value in touched.items()
        # Setting a broker's value anew makes it reload what the value points at, such as a certificate.
        if value != current.get(name) or resource.resource_type == ResourceType.BROKER
    ]
    if image.keeps_eligible_replicas and touched.get(ISR_MIN, current.get(ISR_MIN)) != current.get(ISR_MIN):
        from ottla.metadata.cluster_records import ClearElrRecord

        # Who was eligible under the old number may lack what was committed under the new one.
        is_topic = resource.resource_type == ResourceType.TOPIC
        name = resource.resource_name if is_topic else ""
        records.append(ClearElrRecord(topic_name=name))
        records += _kept_where_nobody_leads(image, [name] if is_topic else image.topics)
    return records


def _kept_where_nobody_leads(image: MetadataImage, topics: Iterable[str]) -> Iterator[PartitionChangeRecord]:
    """Nothing is committed there under the new number until one of the old eligible replicas leads; without
    them nobody ever could, but uncleanly. Apache Kafka forgets them; it reads these records as we do."""
    for topic in map(image.topics.__getitem__, topics):
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER and (
                partition.eligible_leader_replicas or partition.last_known_elr
            ):
                yield PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.id,
                    eligible_leader_replicas=partition.eligible_leader_replicas,
                    last_known_elr=partition.last_known_elr,
                )


def altered_values(
    current: Mapping[str, str], resource: ResourceChanges | ResourceConfigs
) -> tuple[dict[str, str], dict[str, str | None]]:
    """All that a resource would have, and what of it is new, with None for what goes."""
    if isinstance(resource, ResourceChanges):
        touched = _apply_changes(resource, current)
    else:
        touched = _replace_all(resource, current)
    return {name: value for name, value in {**current, **touched}.items() if value is not None}, touched


def _check_isr_min(resource: ResourceChanges | ResourceConfigs, touched: Mapping[str, str | None]) -> None:
    """All brokers have to agree on the number that decides who is eligible."""
    if resource.resource_type != ResourceType.BROKER or ISR_MIN not in touched:
        return
    if resource.resource_name:
        raise InvalidConfig(f"Broker-level {ISR_MIN} cannot be altered while ELR is enabled.")
    if touched[ISR_MIN] is None:
        raise InvalidConfig(f"Cluster-level {ISR_MIN} cannot be removed while ELR is enabled.")


def check_changes(resource: ResourceChanges) -> None:
    """What holds for changes of whatever resource."""
    _check_keys([change.name for change in resource.changes])
    missing = [
        change.name
        for change in resource.changes
        if change.value is None and change.operation != ConfigOperation.DELETE
    ]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")


def _apply_changes(resource: ResourceChanges, current: Mapping[str, str]) -> dict[str, str | None]:
    check_changes(resource)
    return {
        change.name: _changed_value(resource.resource_type, change, current.get(change.name))
        for change in resource.changes
    }


def _changed_value(resource_type: int, change: ConfigChange, current: str | None) -> str | None:
    value = change.value or ""
    match change.operation:
        case ConfigOperation.SET:
            return value
        case ConfigOperation.DELETE:
            return None
        case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
            key = _KEYS[resource_type].get(change.name) if resource_type in _KEYS else None
            if resource_type == ResourceType.BROKER and (of_listener := parse_listener_key(change.name)):
                key = of_listener.key
            operation = ConfigOperation(change.operation)
            if key is None or key.type is not ConfigType.LIST:
                raise InvalidConfig(
                    f"Can't {operation.name} to key {change.name} because its type is not LIST."
                )
            if current is None:
                current = key.format(key.default) or ""
            items = [item for item in current.split(",") if item]
            for item in value.split(","):
                if operation is ConfigOperation.SUBTRACT:
                    items = [other for other in items if other != item]
                elif item not in items:
                    items.append(item)
            return ",".join(items)
        case _:
            raise InvalidRequest(f"Unknown operations type {change.operation}")


def _replace_all(resource: ResourceConfigs, current: Mapping[str, str]) -> dict[str, str | None]:
    _check_keys([name for name, _ in resource.values])
    missing = [name for name, value in resource.values if value is None]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")
    touched = dict(resource.values)
    return touched | {name: None for name in sorted(current) if name not in touched}


def _check_keys(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise InvalidRequest("Error due to duplicate config keys")


def _check_lengths(values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if len(value.encode()) > VALUE_LENGTH_MAX:
            raise InvalidConfig(
                f"The configuration value of {name} cannot be added because it exceeds the maximum value "
                f"size of {VALUE_LENGTH_MAX} bytes."
            )


def _check_topic(
    image: MetadataImage,
    config: BrokerConfig,
    name: str,
    values: Mapping[str, str],
    touched: Collection[str],
) -> None:
    if not name:
        raise InvalidRequest("Default topic resources are not allowed.")
    check_name(name)
    check_topic_values(effective_config(config, image), values, touched)
    if name not in image.topics:
        raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")


def _check_group(
    config: BrokerConfig, name: str, values: Mapping[str, str], touched: Collection[str]
) -> None:
    if not name:
        raise InvalidRequest("Default group resources are not allowed.")
    try:
        validate_group(config, values, touched)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error


def _check_client_metrics(name: str, values: Mapping[str, str]) -> None:
    if not name:
        raise InvalidRequest("Subscription name can't be empty")
    for key in values:
        if key not in CLIENT_METRICS_KEYS:
            raise InvalidRequest(f"Unknown client metrics configuration: {key}")
    try:
        CLIENT_METRICS_KEYS["interval.ms"].parse(values.get("interval.ms", str(INTERVAL_MS_DEFAULT)))
    except ConfigError as error:
        raise InvalidRequest(str(error)) from error
    try:
        client_metrics_subscription(values)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from error


def _is_known(broker_key: str) -> bool:
    return broker_key in BROKER_KEYS or parse_listener_key(broker_key) is not None


def _check_broker(
    image: MetadataImage,
    config: BrokerConfig,
    name: str,
    values: Mapping[str, str],
    touched: Collection[str],
) -> None:
    """Topics are not looked at, as in Kafka: one whose own settings contradict a new default keeps them."""
    if name:
        if not name.removeprefix("-").isdecimal():
            raise InvalidRequest("Unable to parse broker name as a base 10 number.")
        broker_id = int(name)
        if broker_id < 0:
            raise InvalidRequest("Invalid negative broker ID.")
        if broker_id not in image.brokers:
            raise BrokerIdNotRegistered(f"No node with id {broker_id} found.")
    default = image.config(ResourceType.BROKER, "")
    try:
        # Only what is new: the rest may come from another version, and is kept. So are keys that nobody
        # knows, as in Kafka, where they are meant for plugins.
        changed = {key: value for key, value in values.items() if key in touched and _is_known(key)}
        validate_broker(changed, per_broker=bool(name))
        if name:
            config.with_dynamic(default, values)
        else:
            config.with_dynamic(values, image.config(ResourceType.BROKER, str(config.node_id)))
    except ConfigError as error:
        # Kafka answers INVALID_REQUEST here, though INVALID_CONFIG would fit better (KAFKA-13609).
        raise InvalidRequest(str(error)) from error
