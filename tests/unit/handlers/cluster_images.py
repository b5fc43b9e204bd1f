"""A cluster as a test wants it, and a broker that sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from immutables import Map

from ottla.config import BrokerConfig
from ottla.controller import configs, topics
from ottla.controller.command import Deciding
from ottla.controller.configs import ConfigOutcome, ResourceChanges, ResourceConfigs
from ottla.controller.topics import NewPartitions, NewTopic, TopicDefaults, TopicOutcome, TopicRef
from ottla.handlers.context import Broker, RequestContext
from ottla.handlers.session import Session
from ottla.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.metadata.records import Endpoint
from ottla.raft.settings import QuorumSettings
from ottla.replication.manager import HostedTopic
from ottla.runtime.turns import run_in_turns
from ottla.wire.api import ApiKey

T = TypeVar("T")
CONFIG = BrokerConfig.from_properties({"node.id": "1"})
DEFAULTS = TopicDefaults(partition_count=1, replication_factor=1, config=CONFIG)
DIRECTORY = UUID(int=100)


def broker_image(broker_id: int, *, fenced: bool = False, listener: str = "PLAINTEXT") -> BrokerImage:
    return BrokerImage(
        id=broker_id,
        epoch=1,
        incarnation_id=UUID(int=200 + broker_id),
        endpoints=(
            Endpoint(name=listener, host=f"host{broker_id}", port=9090 + broker_id, security_protocol=0),
        ),
        features=(),
        rack=f"rack{broker_id}",
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(DIRECTORY,),
    )


def partition_image(
    leader: int = 1, replicas: Sequence[int] = (1,), isr: Sequence[int] = (1,)
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(replicas),
        isr=tuple(isr),
        leader=leader,
        leader_epoch=5,
        partition_epoch=0,
        directories=tuple(DIRECTORY for _ in replicas),
    )


def image_of(
    partitions: Mapping[str, Sequence[PartitionImage]] | None = None,
    brokers: Sequence[BrokerImage] | None = None,
    configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None,
    **other: Any,
) -> MetadataImage:
    images = {
        name: TopicImage(name, UUID(int=1000 + number), tuple(states))
        for number, (name, states) in enumerate((partitions or {}).items())
    }
    hosts = {broker for states in (partitions or {}).values() for each in states for broker in each.replicas}
    topics_on = {
        broker: Map(
            {
                topic.id: None
                for topic in images.values()
                if any(broker in each.replicas for each in topic.partitions)
            }
        )
        for broker in hosts
    }
    return MetadataImage(
        offset=42,
        epoch=3,
        topics=Map(images),
        topic_names=Map({topic.id: name for name, topic in images.items()}),
        topics_on=Map(topics_on),
        brokers={broker.id: broker for broker in brokers or [broker_image(1)]},
        configs=Map(configs or {}),
        **other,
    )


class MemoryController:
    """The real commands on an image in memory: what they write is committed at once."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    async def create_topics(self, new: Sequence[NewTopic], *, validate_only: bool) -> list[TopicOutcome]:
        return await self._commit(topics.create_topics(self.image, new, DEFAULTS, Random(1)), validate_only)

    async def delete_topics(self, refs: Sequence[TopicRef]) -> list[TopicOutcome]:
        return await self._commit(topics.delete_topics(self.image, refs))

    async def create_partitions(
        self, new: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[TopicOutcome]:
        return await self._commit(topics.create_partitions(self.image, new, Random(1)), validate_only)

    async def alter_configs(
        self, resources: Sequence[ResourceConfigs], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        return await self._commit(configs.alter_configs(self.image, CONFIG, resources), validate_only)

    async def incremental_alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool
    ) -> list[ConfigOutcome]:
        return await self._commit(
            configs.incremental_alter_configs(self.image, CONFIG, resources), validate_only
        )

    async def _commit(self, deciding: Deciding[T], validate_only: bool = False) -> T:
        result = await run_in_turns(deciding)
        if not validate_only:
            self.image = self.image.apply_all(result.records, self.image.offset + 1, self.image.epoch)
        return result.response


class NoReplicas:
    """All topics live elsewhere."""

    by_id: ClassVar[dict[bytes, HostedTopic]] = {}

    async def wait_made(self, topics: Iterable[str]) -> None: ...


def broker_with(image: MetadataImage, properties: Mapping[str, str] | None = None, **parts: Any) -> Broker:
    """Parts that a test does not give are None: a handler that needs them fails."""
    controller = parts.get("controller") or MemoryController(image)
    config = BrokerConfig.from_properties({"node.id": "1", **(properties or {})})
    given: dict[str, Any] = {
        "config": config,
        "node_id": 1,
        "cluster_id": "cluster",
        "metadata": controller,
        "controller": controller,
        "replicas": NoReplicas(),
        "quorum": SimpleNamespace(kraft_version=0, voter_set=QuorumSettings.from_config(config).voters),
    } | parts
    return Broker(**{field.name: given.get(field.name) for field in fields(Broker)})


def context(version: int, listener: str = "PLAINTEXT") -> RequestContext:
    session = Session(listener, "127.0.0.1", 40_000)
    session.client_id = "test"
    return RequestContext(session, version, 7, ApiKey.METADATA)
