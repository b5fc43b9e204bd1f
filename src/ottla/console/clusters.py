"""The clusters that a console is for: a client of each, and what was heard of it a moment ago.

A page is made of what a cluster says of all its topics or groups. One with ten thousand of them takes a while
to say it, so answers are kept for some seconds, and longer if they took longer: whoever looks gets what is
there, and has it renewed for the next look. That is done in a thread beside the one that serves pages, since
to read such an answer takes a second. What the console changes itself makes it forget.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ottla.client.admin.groups import Committed, Listed, committed_offsets_of, list_groups
from ottla.client.admin.log_dirs import LogDir, describe_log_dirs
from ottla.client.admin.share_groups import SharedOffset, is_share, shared_offsets_of
from ottla.client.admin.topics import Partition, TopicState, list_topics, offsets_told
from ottla.client.cluster import LATEST, ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.metadata import ClusterInfo
from ottla.console.history import History, Sample
from ottla.console.problems import EXPECTED
from ottla.console.rest import Rest
from ottla.console.schemas import Schemas
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError

log = logging.getLogger(__name__)

FRESH_S = 2.0
STALE_S = 15.0
_RENEWALS_SHARE = 0.1
"""How much of the time is spent on renewing something that is looked at all the time."""
_QUICK_S = FRESH_S * _RENEWALS_SHARE
SAMPLE_S = 10.0
_SAMPLING_SHARE = 0.1
"""How much of the time a cluster is measured; one that takes long to tell is asked less often."""
_DEFAULTS = {"client.id": "ottla-console", "default.api.timeout.ms": "15000"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    name: str
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    login: bool = False
    """Whether whoever looks has to give a user and a password of the cluster's own."""
    connect: str = ""
    """Where the REST API of its Connect cluster is, if it has one."""
    registry: str = ""
    """Where its schema registry is, if it has one."""
    sample_s: float = SAMPLE_S
    """How often it is measured, for charts."""


def new_client(settings: ClusterSettings) -> ClusterClient:
    return ClusterClient(AsyncioNetwork(), settings.bootstrap, {**_DEFAULTS, **settings.properties})


class Remembered(Generic[T]):
    """What `ask` gave a moment ago. At most one asks at a time, however many want to know."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._known: T | None = None
        self._at_s = 0.0
        self._fresh_s = FRESH_S
        self._asking: asyncio.Task[T] | None = None

    async def get(self) -> T:
        age_s, known = time.monotonic() - self._at_s, self._known
        if known is not None and age_s < self._fresh_s + STALE_S:
            if age_s > self._fresh_s:
                renewing = self._renewed()
                if self._fresh_s <= FRESH_S:
                    # The last answer came quickly, so this one is waited for, if it does, too.
                    await asyncio.wait({renewing}, timeout=_QUICK_S)
                    if renewing.done() and not renewing.cancelled() and renewing.exception() is None:
                        return renewing.result()
            return known
        return await self.fresh()

    async def fresh(self) -> T:
        """Asked for now, or by somebody else a moment ago who still waits for it."""
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
        mine, began_s = asyncio.current_task(), time.monotonic()
        try:
            known = await self._ask()
        finally:
            is_current = self._asking is mine
            if is_current:
                self._asking = None
        if is_current:
            self._known, self._at_s = known, time.monotonic()
            self._fresh_s = max(FRESH_S, (self._at_s - began_s) / _RENEWALS_SHARE)
        return known


def _take_error(task: asyncio.Task[Any]) -> None:
    """Whoever waits is told; where nobody does, the next one asks again."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Topics:
    info: ClusterInfo
    by_name: Mapping[str, TopicState]

    def leaders(self, places: Collection[Partition]) -> dict[Partition, int]:
        """Of partitions that there are, and that have one."""
        topics = {place.topic: self.by_name[place.topic] for place in places if place.topic in self.by_name}
        led = {
            Partition(name, each.number): each.leader
            for name, topic in topics.items()
            for each in topic.partitions
            if each.leader >= 0
        }
        return {place: led[place] for place in places if place in led}


@dataclass(frozen=True, slots=True)
class Groups:
    listed: Mapping[str, Listed]
    committed: Mapping[str, Mapping[Partition, Committed]]
    """Of share groups, where what they are done with ends."""
    ends: Mapping[Partition, int]
    """Of what they read, so far as it exists and somebody tells."""


@dataclass(frozen=True, slots=True)
class Sizes:
    topics: Mapping[str, int]
    """On all disks together."""
    replicas: Mapping[tuple[Partition, int], int]
    """By partition and broker."""
    brokers: Mapping[int, int]
    directories: Mapping[int, list[LogDir]]
    """Of each broker, without what is in them."""


class Survey:
    """A thread with an event loop and a client of its own, for answers that take long to be read."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console-survey", daemon=True)
        self._thread.start()

    async def ask(self, question: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question(self._client), self._loop))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._client.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Cluster:
    """Belongs to one event loop."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.read_only = settings.read_only
        self.client = self.new_client()
        self.connect = Rest("Connect", settings.connect) if settings.connect else None
        self.schemas = Schemas(settings.registry) if settings.registry else None
        self._survey = Survey(self.new_client())
        self.topics: Remembered[Topics] = Remembered(lambda: self._survey.ask(_topics))
        self.groups: Remembered[Groups] = Remembered(self._groups)
        self.sizes: Remembered[Sizes] = Remembered(lambda: self._survey.ask(_sizes))
        self.history = History()
        self._measuring = asyncio.ensure_future(self._measure_on())

    def new_client(self) -> ClusterClient:
        """For whoever keeps brokers waiting: answers of a connection come in the order of its requests."""
        return new_client(self.settings)

    def close(self) -> None:
        self._measuring.cancel()
        self._survey.close()
        self.client.close()

    async def _groups(self) -> Groups:
        topics = await self.topics.get()
        return await self._survey.ask(lambda client: _groups(client, topics))

    async def _measure_on(self) -> None:
        """Also what pages are made of is fresh then, for whoever looks next."""
        while True:
            began_s = time.monotonic()
            try:
                self.history.note(await self._sample())
            except EXPECTED as error:
                log.debug("cluster %s was not measured: %s", self.name, error)
                self.history.note_gap(int(time.time() * 1000))
            except Exception:
                log.exception("cluster %s could not be measured", self.name)
                self.history.note_gap(int(time.time() * 1000))
            took_s = time.monotonic() - began_s
            await asyncio.sleep(max(self.settings.sample_s - took_s, took_s / _SAMPLING_SHARE))

    async def _sample(self) -> Sample:
        topics, sizes, groups = await asyncio.gather(
            self.topics.fresh(), self.sizes.fresh(), self.groups.fresh()
        )
        leaders = {
            Partition(name, each.number): each.leader
            for name, topic in topics.by_name.items()
            for each in topic.partitions
            if each.leader >= 0
        }
        ends = await self._survey.ask(lambda client: offsets_told(client, leaders, LATEST))
        return Sample(
            time.monotonic(),
            int(time.time() * 1000),
            ends,
            {
                place: sizes.replicas[place, leader]
                for place, leader in leaders.items()
                if (place, leader) in sizes.replicas
            },
            {
                group: {place: each.offset for place, each in committed.items()}
                for group, committed in groups.committed.items()
            },
        )

    def changed(self) -> None:
        for remembered in (self.topics, self.groups, self.sizes):
            remembered.forget()


async def _topics(client: ClusterClient) -> Topics:
    by_name = await list_topics(client)
    return Topics(await client.cluster(), by_name)


async def _groups(client: ClusterClient, topics: Topics) -> Groups:
    listed = await list_groups(client, every_kind=True)
    committed = await committed_offsets_of(client, [group for group in listed if not is_share(group)])
    shared = [group for group in listed if is_share(group)]
    for group, told in (await shared_offsets_of(client, shared)).items():
        committed[group] = shared_as_committed(told)
    read = {place for offsets in committed.values() for place in offsets}
    ends = await offsets_told(client, topics.leaders(read), LATEST)
    return Groups({group.id: group for group in listed}, committed, ends)


def shared_as_committed(told: Mapping[Partition, SharedOffset]) -> dict[Partition, Committed]:
    """Where a share group begins in a partition: everything before is done with."""
    return {
        place: Committed(at.start, at.leader_epoch, "") for place, at in told.items() if at.start is not None
    }


async def _sizes(client: ClusterClient) -> Sizes:
    """Of brokers that answer; who may not ask sees no sizes."""
    brokers = (await client.cluster()).brokers

    async def of(broker: int) -> list[LogDir]:
        try:
            return await describe_log_dirs(client, broker)
        except (KafkaError, ClusterUnreachable):
            return []

    log_dirs = dict(zip(brokers, await asyncio.gather(*map(of, brokers)), strict=True))
    topics: dict[str, int] = defaultdict(int)
    replicas: dict[tuple[Partition, int], int] = {}
    for broker, directories in log_dirs.items():
        for directory in directories:
            for held in directory.replicas:
                topics[held.partition.topic] += held.size_bytes
                if not held.is_future:
                    replicas[held.partition, broker] = held.size_bytes
    directories_alone = {
        broker: [directory._replace(replicas=()) for directory in found] for broker, found in log_dirs.items()
    }
    held_bytes = {
        broker: sum(held.size_bytes for directory in found for held in directory.replicas)
        for broker, found in log_dirs.items()
    }
    return Sizes(topics, replicas, held_bytes, directories_alone)
