"""The clusters that a console is for: a client of each, and what was heard of it a moment ago.

A page is made of what a cluster says of all its topics or groups. One with ten thousand of them takes a while
to say it, so answers are kept for some seconds: whoever looks gets what is there, and has it renewed for the
next look. What the console changes itself makes it forget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ottla.client.admin.groups import Committed, Listed, committed_offsets_of, list_groups
from ottla.client.admin.log_dirs import LogDir, describe_log_dirs
from ottla.client.admin.topics import Partition, TopicState, list_topics
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.metadata import ClusterInfo
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError

FRESH_S = 2.0
STALE_S = 15.0
_DEFAULTS = {"client.id": "ottla-console", "default.api.timeout.ms": "15000"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False


class Remembered(Generic[T]):
    """What `ask` gave a moment ago. At most one asks at a time, however many want to know."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._known: T | None = None
        self._at_s = -STALE_S
        self._asking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        age_s = time.monotonic() - self._at_s
        if self._known is not None and age_s < STALE_S:
            if age_s > FRESH_S:
                self._renewed()
            return self._known
        return await asyncio.shield(self._renewed())

    def forget(self) -> None:
        self._known = None
        # An answer that is under way may be from before the change.
        self._asking = None

    def _renewed(self) -> asyncio.Task[T]:
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._renew())
            self._asking.add_done_callback(_take_error)
        return self._asking

    async def _renew(self) -> T:
        mine = asyncio.current_task()
        try:
            known = await self._ask()
        finally:
            is_current = self._asking is mine
            if is_current:
                self._asking = None
        if is_current:
            self._known, self._at_s = known, time.monotonic()
        return known


def _take_error(task: asyncio.Task[Any]) -> None:
    """Whoever waits is told; where nobody does, the next one asks again."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Topics:
    info: ClusterInfo
    by_name: Mapping[str, TopicState]


@dataclass(frozen=True, slots=True)
class Groups:
    listed: Mapping[str, Listed]
    committed: Mapping[str, Mapping[Partition, Committed]]


class Cluster:
    """Belongs to one event loop."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.read_only = settings.read_only
        self.client = self.new_client()
        self.topics: Remembered[Topics] = Remembered(self._topics)
        self.groups: Remembered[Groups] = Remembered(self._groups)
        self.log_dirs: Remembered[Mapping[int, list[LogDir]]] = Remembered(self._log_dirs)

    def new_client(self) -> ClusterClient:
        """For whoever keeps brokers waiting: answers of a connection come in the order of its requests."""
        properties = {**_DEFAULTS, **self.settings.properties}
        return ClusterClient(AsyncioNetwork(), self.settings.bootstrap, properties)

    def close(self) -> None:
        self.client.close()

    def changed(self) -> None:
        for remembered in (self.topics, self.groups, self.log_dirs):
            remembered.forget()

    async def _topics(self) -> Topics:
        by_name = await list_topics(self.client)
        return Topics(await self.client.cluster(), by_name)

    async def _groups(self) -> Groups:
        listed = await list_groups(self.client, every_kind=True)
        with_offsets = [group for group in listed if group.type.lower() != "share"]
        committed = await committed_offsets_of(self.client, with_offsets)
        return Groups({group.id: group for group in listed}, committed)

    async def _log_dirs(self) -> Mapping[int, list[LogDir]]:
        """Of brokers that answer; who may not ask sees no sizes."""
        brokers = (await self.client.cluster()).brokers

        async def of(broker: int) -> list[LogDir]:
            try:
                return await describe_log_dirs(self.client, broker)
            except (KafkaError, ClusterUnreachable):
                return []

        return dict(zip(brokers, await asyncio.gather(*map(of, brokers)), strict=True))
