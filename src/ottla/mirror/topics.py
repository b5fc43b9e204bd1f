"""Topics of the source in the target: found, made, grown, and kept alike in settings and access rules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.admin import acls, configs
from ottla.client.admin.topics import add_partitions, create_topic
from ottla.client.cluster import ClusterClient
from ottla.client.metadata import TopicInfo
from ottla.mirror.settings import FlowSettings
from ottla.mirror.topic_log import replication_factor
from ottla.wire.acls import Acl, AclFilter, AclResource, Operation, PatternType, Permission
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_FACTOR: Final = 2
_LOOKS: Final = 50
_LOOK_S: Final = 0.1
_STATIC_BROKER: Final = configs.SOURCES.index("STATIC_BROKER_CONFIG")
_ANY: Final = 1


@dataclass(frozen=True, slots=True)
class MirroredTopic:
    """One that is in both clusters; partitions that the target lacks are not mirrored yet."""

    name: str
    id: str | None
    remote: str
    partitions: int


class Topics:
    def __init__(self, source: ClusterClient, target: ClusterClient, settings: FlowSettings) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._told: set[str] = set()
        self.known: dict[str, MirroredTopic] = {}

    async def find(self) -> dict[str, TopicInfo]:
        """What the source has that is to be mirrored."""
        found = await self._source.topics_matching(".*")
        for name in found:
            if self._settings.would_come_back(name) and not self._settings.policy.is_internal(name):
                self._tell_once(
                    f"{self._settings.name}: {name} is not mirrored: it would come back under the same name, "
                    "and go round for ever. Give each way topics of its own"
                )
        return {name: topic for name, topic in found.items() if self._settings.takes_topic(name)}

    async def refresh(self) -> None:
        """Makes what the target lacks. One topic that cannot be made does not keep others from it."""
        found = await self.find()
        remotes = {name: self._settings.remote(name) for name in found}
        existing = await self.existing(remotes.values())
        missing = [name for name in found if remotes[name] not in existing]
        described = await self.source_configs(missing)
        made = {
            remotes[name]
            for name in missing
            if await self._create(name, found[name], described.get(name, []))
        }
        for name, topic in found.items():
            there = existing.get(remotes[name])
            if there is not None and len(there.partitions) < len(topic.partitions):
                await self._grow(remotes[name], len(topic.partitions))
        for _ in range(_LOOKS):
            existing = await self.existing(remotes.values())
            if made <= existing.keys():
                break
            # Not all brokers have heard of them yet, and the next time may be minutes away.
            await asyncio.sleep(_LOOK_S)
        self.take(found, existing)

    async def existing(self, remotes: Iterable[str]) -> dict[str, TopicInfo]:
        """Those that the target has. They are not asked for by name: of one that may not be seen, or whose
        name is too long, the answer would be an error of all."""
        there = await self._target.topics_matching(".*")
        return {name: there[name] for name in remotes if name in there}

    def take(self, found: Mapping[str, TopicInfo], existing: Mapping[str, TopicInfo]) -> None:
        """What the source and the target have."""
        remotes = {name: self._settings.remote(name) for name in found}
        self.known = {
            name: MirroredTopic(
                name,
                None if topic.id is None else str(topic.id),
                remotes[name],
                min(len(topic.partitions), len(existing[remotes[name]].partitions)),
            )
            for name, topic in found.items()
            if remotes[name] in existing
        }

    async def source_configs(self, names: Iterable[str]) -> dict[str, list[configs.Setting]]:
        return await self._described(self._source, self._settings.source.alias, sorted(names))

    async def _described(
        self, cluster: ClusterClient, alias: str, names: list[str]
    ) -> dict[str, list[configs.Setting]]:
        """Without topics whose settings may not be seen, which keep nobody from those of the others."""
        try:
            return await configs.describe_configs(cluster, configs.TOPIC, names)
        except KafkaError as error:
            if error.code == ErrorCode.unknown_topic_or_partition:
                # Gone since topics were looked at.
                raise
            if len(names) == 1:
                self._tell_once(
                    f"{self._settings.name}: settings of {names[0]} cannot be read in {alias}, and are not "
                    f"mirrored: {error}"
                )
                return {}
        found: dict[str, list[configs.Setting]] = {}
        for name in names:
            found |= await self._described(cluster, alias, [name])
        return found

    def wanted_configs(self, described: Iterable[configs.Setting]) -> dict[str, str | None]:
        """What a topic of the target should be set to; None for what should be its cluster's default."""
        exclude = self._settings.configs_exclude
        wanted: dict[str, str | None] = {}
        for setting in described:
            is_excluded = exclude is not None and exclude.fullmatch(setting.name)
            if is_excluded or setting.read_only or setting.sensitive or setting.source == _STATIC_BROKER:
                continue
            is_set = not setting.is_default or self._settings.defaults_from_source
            wanted[setting.name] = setting.value if is_set else None
        return wanted

    async def differing_configs(self) -> dict[str, tuple[dict[str, str], list[str]]]:
        """By names in the target: what has to be set there, and what to be given back its default."""
        described = await self.source_configs(self.known)
        remotes = [topic.remote for topic in self.known.values()]
        there = await self._described(self._target, self._settings.target.alias, remotes)
        differing = {}
        for name, settings in described.items():
            remote = self.known[name].remote
            values = {each.name: each for each in there.get(remote, ())}
            added: dict[str, str] = {}
            deleted: list[str] = []
            for key, value in self.wanted_configs(settings).items():
                current = values.get(key)
                if current is None:
                    # The target's brokers do not know the setting.
                    continue
                if value is None:
                    if configs.SOURCES[current.source] == "DYNAMIC_TOPIC_CONFIG":
                        deleted.append(key)
                elif current.value != value:
                    added[key] = value
            if added or deleted:
                differing[remote] = added, deleted
        return differing

    async def sync_configs(self) -> None:
        for remote, (added, deleted) in (await self.differing_configs()).items():
            try:
                await configs.alter_configs(self._target, configs.TOPIC, remote, added, deleted)
            except KafkaError as error:
                self._tell_once(f"{self._settings.name}: settings of {remote} cannot be changed: {error}")
            else:
                changes = [*(f"{key}={value}" for key, value in added.items()), *deleted]
                what = ", ".join(changes)
                _log.info("%s: %s is set to what it is in the source: %s", self._settings.name, remote, what)

    async def sync_acls(self) -> None:
        """Who may read there what it may read here. Nobody but the mirror is to write there, so what allows
        it is left out, and what allows everything becomes what allows to read."""
        try:
            found = await acls.describe_acls(
                self._source,
                AclFilter(AclResource.TOPIC, None, PatternType.LITERAL, None, None, _ANY, _ANY),
            )
        except KafkaError as error:
            if error.code == ErrorCode.security_disabled:
                self._tell_once(f"{self._settings.name}: the source has no access rules to mirror")
                return
            raise
        wanted = []
        for acl in found:
            allows = acl.permission == Permission.ALLOW
            if acl.resource_name not in self.known or (allows and acl.operation == Operation.WRITE):
                continue
            operation = Operation.READ if allows and acl.operation == Operation.ALL else acl.operation
            remote = self.known[acl.resource_name].remote
            wanted.append(acl._replace(resource_name=remote, operation=operation))
        await self._create_acls(wanted)

    async def _create_acls(self, wanted: list[Acl]) -> None:
        if not wanted:
            return
        try:
            await acls.create_acls(self._target, wanted)
        except KafkaError as error:
            self._tell_once(f"{self._settings.name}: access rules cannot be made in the target: {error}")

    async def _create(self, name: str, topic: TopicInfo, described: Iterable[configs.Setting]) -> bool:
        """Whether it is there now."""
        remote = self._settings.remote(name)
        wanted = self.wanted_configs(described)
        values = {key: value for key, value in wanted.items() if value is not None}
        factor = await replication_factor(self._target, self._settings.replication_factor, _FACTOR)
        try:
            await create_topic(
                self._target,
                remote,
                partitions=len(topic.partitions),
                replication_factor=factor,
                configs=values,
            )
        except KafkaError as error:
            # Another process of the mirror may have been faster.
            if error.code == ErrorCode.topic_already_exists:
                return True
            self._tell_once(f"{self._settings.name}: {remote} cannot be made in the target: {error}")
            return False
        _log.info("%s: made %s with %d partitions", self._settings.name, remote, len(topic.partitions))
        return True

    async def _grow(self, remote: str, count: int) -> None:
        try:
            await add_partitions(self._target, [remote], count)
        except KafkaError as error:
            if error.code != ErrorCode.invalid_partitions:
                self._tell_once(f"{self._settings.name}: {remote} cannot be grown in the target: {error}")
        else:
            _log.info("%s: %s has %d partitions now", self._settings.name, remote, count)

    def _tell_once(self, text: str) -> None:
        """What goes wrong each time is worth one line."""
        if text not in self._told:
            self._told.add(text)
            _log.warning(text)

    def partitions(self) -> Mapping[tuple[str, int], MirroredTopic]:
        return {
            (topic.name, number): topic for topic in self.known.values() for number in range(topic.partitions)
        }
