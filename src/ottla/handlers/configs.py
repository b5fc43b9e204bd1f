"""DescribeConfigs (versions 1 to 4), AlterConfigs (0 to 2), IncrementalAlterConfigs (0 to 1),
ListConfigResources (0 to 1): settings of topics, brokers, groups and client metrics, and levels of loggers.

A broker describes itself: the resource's name is its id, or empty for what is set for the whole cluster.
The controller checks and stores changes, resource by resource. AlterConfigs replaces everything that was set;
IncrementalAlterConfigs changes single keys (0 set, 1 delete, 2 append to a list, 3 subtract from a list).

DescribeConfigs: v1 sources and synonyms (KIP-226) · v3 types and documentation (KIP-569) · v4 flexible
AlterConfigs: v2 flexible · IncrementalAlterConfigs: v1 flexible
ListConfigResources: v0 client metrics only · v1 every resource type (KIP-1142)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.incremental_alter_configs.v1 import response as incremental
from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import ConfigResource, ListConfigResourcesResponse
from kio.static.primitive import i8

from ottla.config import BrokerConfig, ConfigEntry, ConfigError, describe_group, describe_topic
from ottla.config.client_metrics import describe_client_metrics
from ottla.config.listener_settings import parse_listener_key
from ottla.config.security_keys import OF_LISTENER
from ottla.controller.configs import (
    ConfigChange,
    ConfigOutcome,
    ResourceChanges,
    ResourceConfigs,
    altered_values,
    check_changes,
)
from ottla.controller.topic_names import check_name
from ottla.handlers.authorized import may, require
from ottla.handlers.broker_loggers import alter_loggers, check_node, describe_loggers
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.nodes import nodes_on
from ottla.handlers.outcome import error_code, error_message
from ottla.handlers.refusal import answer_with
from ottla.handlers.registry import handles
from ottla.metadata.image import ResourceType
from ottla.runtime.turns import in_turns
from ottla.wire.acls import AclResource, Operation
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, KafkaError, UnknownTopicOrPartition

R = TypeVar("R", ResourceChanges, ResourceConfigs)


@handles(ApiKey.DESCRIBE_CONFIGS)
async def describe_configs(
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    def describe(resource: DescribeConfigsResource) -> DescribeConfigsResult:
        error: KafkaError | None = None
        entries: list[ConfigEntry] = []
        try:
            _check_permission(
                context,
                Operation.DESCRIBE_CONFIGS,
                int(resource.resource_type),
                resource.resource_name,
            )
            entries = _entries(broker, resource)
        except KafkaError as raised:
            error = raised
        return DescribeConfigsResult(
            error_code=error_code(error),
            error_message=error_message(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(
                _described(entry, request.include_synonyms, request.include_documentation)
                for entry in entries
            ),
        )

    # Answered once if named twice. A broker describes nobody but itself, at some length.
    results = [describe(resource) async for resource in in_turns(dict.fromkeys(request.resources))]
    return DescribeConfigsResponse(throttle_time=context.session.throttle_time, results=tuple(results))


def _check_permission(context: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    match resource_type:
        case ResourceType.TOPIC:
            require(context, operation, AclResource.TOPIC, name)
        case ResourceType.GROUP:
            require(context, operation, AclResource.GROUP, name)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER | ResourceType.CLIENT_METRICS:
            require(context, operation, AclResource.CLUSTER)


async def _alterable(context: RequestContext, resources: Sequence[R]) -> tuple[list[R], list[ConfigOutcome]]:
    """Those that may be altered, and refusals of the others."""
    alterable, refused = [], []
    times_named = Counter(resource[:2] for resource in resources)
    async for resource in in_turns(resources):
        kind, name = resource.resource_type, resource.resource_name
        try:
            # What is named twice is refused for that.
            if times_named[resource[:2]] == 1:
                _check_permission(context, Operation.ALTER_CONFIGS, kind, name)
            alterable.append(resource)
        except KafkaError as error:
            refused.append(ConfigOutcome(kind, name, error))
    return alterable, refused


def _entries(broker: Broker, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    # An empty list of keys means all of them, as null does.
    names = resource.configuration_keys or None
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            check_name(name)
            image = broker.metadata.image
            if name not in image.topics:
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
            return describe_topic(broker.config, image.config(ResourceType.TOPIC, name), names)
        case ResourceType.BROKER if not name:
            return broker.config.describe_cluster_default(names)
        case ResourceType.BROKER:
            if name != str(broker.node_id):
                raise InvalidRequest(
                    f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}"
                )
            return broker.config.describe(names)
        case ResourceType.BROKER_LOGGER:
            if not name:
                raise InvalidRequest("Broker id must not be empty")
            check_node(name, broker.node_id)
            return describe_loggers(names)
        case ResourceType.GROUP:
            if not name:
                raise InvalidRequest("Group name must not be empty")
            own = broker.metadata.image.config(ResourceType.GROUP, name)
            return describe_group(broker.config, own, names)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise InvalidRequest("Client metrics subscription name must not be empty")
            return describe_client_metrics(
                broker.metadata.image.config(ResourceType.CLIENT_METRICS, name), names
            )
        case other:
            names_of_kinds = {int(kind): kind.name for kind in ResourceType}
            kind = names_of_kinds.get(int(other), other)
            raise InvalidRequest(f"Configs of resource type {kind} are not supported.")


def _described(
    entry: ConfigEntry, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=i8(entry.source),
        is_sensitive=entry.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=i8(synonym.source))
            for synonym in (entry.synonyms if with_synonyms else ())
        ),
        config_type=i8(entry.type),
        documentation=entry.documentation if with_documentation else None,
    )


async def _usable(
    broker: Broker, context: RequestContext, resources: Sequence[R]
) -> tuple[list[R], list[ConfigOutcome]]:
    """Those that this very node could follow, and refusals of the others: of what settings of its listeners
    point at, files above all, only it knows."""
    own = (int(ResourceType.BROKER), str(broker.node_id))
    is_told = may(context, Operation.ALTER_CONFIGS, AclResource.CLUSTER, quietly=True)
    if broker.check_listeners is None or not is_told:
        return list(resources), []
    usable, refused = [], []
    for resource in resources:
        try:
            if resource[:2] == own:
                await _check_own(broker, broker.check_listeners, resource)
            usable.append(resource)
        except KafkaError as error:
            refused.append(ConfigOutcome(*resource[:2], error))
    return usable, refused


async def _check_own(
    broker: Broker,
    check_listeners: Callable[[BrokerConfig, Collection[str]], None],
    resource: ResourceChanges | ResourceConfigs,
) -> None:
    image = broker.metadata.image
    values, touched = altered_values(image.config(ResourceType.BROKER, resource.resource_name), resource)
    of_listeners = [name for name in touched if name in OF_LISTENER or parse_listener_key(name) is not None]
    if not of_listeners:
        return
    try:
        config = broker.config.with_dynamic(image.config(ResourceType.BROKER, ""), values)
        await broker.runtime.offload.run(check_listeners, config, of_listeners)
    except ConfigError as error:
        raise InvalidRequest(str(error)) from error


async def _refuse_together(
    broker: Broker, context: RequestContext, resources: Sequence[R]
) -> list[ConfigOutcome]:
    """Outcomes for all of them if one could not be followed here; it is not forwarded in parts."""
    _, refused = await _usable(broker, context, resources)
    if not refused:
        return []
    found = {outcome[:2]: outcome for outcome in refused}
    beside = InvalidRequest(
        "Nothing of this request was altered, because settings of the broker that it names were refused."
    )
    return [found.get(each[:2]) or ConfigOutcome(*each[:2], beside) for each in resources]


async def _replaced(request: AlterConfigsRequest) -> list[ResourceConfigs]:
    return [
        ResourceConfigs(
            resource.resource_type,
            resource.resource_name,
            tuple((config.name, config.value) for config in resource.configs),
        )
        async for resource in in_turns(request.resources)
    ]


async def _refuse_alter(
    broker: Broker, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse | None:
    outcomes = await _refuse_together(broker, context, await _replaced(request))
    return await _alter_response(context, outcomes) if outcomes else None


@handles(ApiKey.ALTER_CONFIGS, refuses_here=_refuse_alter)
async def alter_configs(
    broker: Broker, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    resources, refused = await _alterable(context, await _replaced(request))
    resources, unusable = await _usable(broker, context, resources)
    try:
        outcomes = await broker.controller.alter_configs(resources, validate_only=request.validate_only)
    except KafkaError as error:
        outcomes = [ConfigOutcome(r.resource_type, r.resource_name, error) for r in resources]
    return await _alter_response(context, outcomes + refused + unusable)


async def _alter_response(context: RequestContext, outcomes: Sequence[ConfigOutcome]) -> AlterConfigsResponse:
    responses = [
        AlterConfigsResourceResponse(
            error_code=error_code(outcome.error),
            error_message=error_message(outcome.error),
            resource_type=i8(outcome.resource_type),
            resource_name=outcome.resource_name,
        )
        async for outcome in in_turns(outcomes)
    ]
    return AlterConfigsResponse(throttle_time=context.session.throttle_time, responses=tuple(responses))


def _names_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    return any(int(resource.resource_type) == ResourceType.BROKER_LOGGER for resource in request.resources)


async def _changed(request: IncrementalAlterConfigsRequest) -> list[ResourceChanges]:
    return [
        ResourceChanges(
            resource.resource_type,
            resource.resource_name,
            tuple(ConfigChange(c.name, c.config_operation, c.value) for c in resource.configs),
        )
        async for resource in in_turns(request.resources)
    ]


async def _refuse_incremental(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse | None:
    outcomes = await _refuse_together(broker, context, await _changed(request))
    return await _incremental_response(context, outcomes) if outcomes else None


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, stays=_names_loggers, refuses_here=_refuse_incremental)
async def incremental_alter_configs(
    broker: Broker, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> incremental.IncrementalAlterConfigsResponse:
    resources, refused = await _alterable(context, await _changed(request))
    resources, unusable = await _usable(broker, context, resources)
    # Levels of loggers are this process's alone, and are stored nowhere.
    stored = [resource for resource in resources if resource.resource_type != ResourceType.BROKER_LOGGER]
    try:
        outcomes = await broker.controller.incremental_alter_configs(
            stored, validate_only=request.validate_only
        )
    except KafkaError as error:
        outcomes = [ConfigOutcome(r.resource_type, r.resource_name, error) for r in stored]
    found = iter(outcomes)
    times_named = Counter(resource[:2] for resource in resources)
    answers = []
    async for resource in in_turns(resources):
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            answers.append(
                _alter_loggers(
                    broker, resource, times_named[resource[:2]], validate_only=request.validate_only
                )
            )
        else:
            answers.append(next(found))
    return await _incremental_response(context, answers + refused + unusable)


async def _incremental_response(
    context: RequestContext, outcomes: Sequence[ConfigOutcome]
) -> incremental.IncrementalAlterConfigsResponse:
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=error_code(outcome.error),
            error_message=error_message(outcome.error),
            resource_type=i8(outcome.resource_type),
            resource_name=outcome.resource_name,
        )
        async for outcome in in_turns(outcomes)
    ]
    return incremental.IncrementalAlterConfigsResponse(
        throttle_time=context.session.throttle_time, responses=tuple(responses)
    )


def _alter_loggers(
    broker: Broker, resource: ResourceChanges, times_named: int, *, validate_only: bool
) -> ConfigOutcome:
    error: KafkaError | None = None
    try:
        if times_named > 1:
            raise InvalidRequest("Each resource must appear at most once.")
        check_changes(resource)
        check_node(resource.resource_name, broker.node_id)
        alter_loggers(resource.changes, validate_only=validate_only)
    except KafkaError as raised:
        error = raised
    return ConfigOutcome(resource.resource_type, resource.resource_name, error)


@handles(ApiKey.LIST_CONFIG_RESOURCES, answer_with(ListConfigResourcesResponse, config_resources=()))
def list_config_resources(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    known = (
        {int(kind) for kind in ResourceType} if context.version > 0 else {int(ResourceType.CLIENT_METRICS)}
    )
    wanted = set(map(int, request.resource_types)) or known
    if not wanted <= known:
        return ListConfigResourcesResponse(
            throttle_time=context.session.throttle_time,
            error_code=ErrorCode.unsupported_version,
            config_resources=(),
        )
    return ListConfigResourcesResponse(
        throttle_time=context.session.throttle_time,
        error_code=ErrorCode.none,
        config_resources=tuple(
            ConfigResource(resource_name=name, resource_type=i8(resource_type))
            for resource_type in sorted(wanted)
            for name in _resources(broker, context, resource_type)
        ),
    )


def _resources(broker: Broker, context: RequestContext, resource_type: int) -> list[str]:
    image = broker.metadata.image
    match resource_type:
        case ResourceType.TOPIC:
            return sorted(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in nodes_on(image, context.session.listener)]
        case _:
            return sorted(name for kind, name in image.configs if kind == resource_type)
