"""How far a mirror is: lag of each partition, how fast it goes, and what is not alike on both sides.

All of it is read from the clusters, so it holds for all processes of a mirror and without asking any of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.client.admin.groups import describe_group
from ottla.client.admin.topics import Partition
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.metadata import NO_LEADER
from ottla.mirror.checkpoints import Checkpoints, Translations
from ottla.mirror.formats import Heartbeat, SourcePosition, Unreadable, read_heartbeat
from ottla.mirror.policy import HEARTBEATS
from ottla.mirror.positions import Positions
from ottla.mirror.settings import FlowSettings
from ottla.mirror.topic_log import TopicReader
from ottla.mirror.topics import Topics
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    partition: Partition
    remote: Partition
    mirrored: int
    """The offset in the source behind what is in the target, or will not come any more."""
    end: int | None
    """Behind what is committed in the source; None where nobody leads the partition, who could tell."""
    rate: float
    """Offsets per second, while it was looked at."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.mirrored)


@dataclass(frozen=True, slots=True)
class FlowStatus:
    name: str
    processes: int
    partitions: Sequence[PartitionStatus]
    out_of_sync: Sequence[str]
    heartbeat_age_s: float | None = None
    """Of the newest heartbeat that was written to the target; None where there is none."""

    @property
    def lag(self) -> int:
        """Of the partitions of which it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def rate(self) -> float:
        return sum(each.rate for each in self.partitions)


@dataclass(slots=True)
class _Look:
    """Clients of both clusters for as long as somebody looks."""

    settings: FlowSettings
    source: ClusterClient = field(init=False)
    target: ClusterClient = field(init=False)

    def __post_init__(self) -> None:
        network = AsyncioNetwork()
        source, target = self.settings.source, self.settings.target
        self.source = ClusterClient(network, source.bootstrap_servers, source.client("admin"))
        self.target = ClusterClient(network, target.bootstrap_servers, target.client("admin"))

    def close(self) -> None:
        self.source.close()
        self.target.close()


async def flow_status(settings: FlowSettings, interval_s: float = 1.0) -> FlowStatus:
    """Looks twice, so long apart, for the rate."""
    look = _Look(settings)
    try:
        positions = Positions(look.target, settings.positions_topic, settings.source.alias)
        before = dict(await positions.read())
        started = time.monotonic()
        topics = Topics(look.source, look.target, settings)
        found = await topics.find()
        out_of_sync = await _topics_out_of_sync(topics, settings)
        out_of_sync += await _groups_out_of_sync(look, settings)
        await asyncio.sleep(max(0.0, interval_s - (time.monotonic() - started)))
        after = await positions.read()
        seconds = time.monotonic() - started
        partitions = sorted(Partition(name, number) for name in found for number in found[name].partitions)
        led = [
            place for place in partitions if found[place.topic].partitions[place.number].leader != NO_LEADER
        ]
        leaderless = [place for place in partitions if place not in set(led)]
        out_of_sync += [
            f"{place} has no leader in {settings.source.alias}: nothing can be read" for place in leaderless
        ]
        statuses, lost = await _partitions(look.source, settings, led, (before, after), seconds)
        out_of_sync += lost
        for place in leaderless:
            mirrored = after[place].offset + 1 if place in after else 0
            statuses.append(PartitionStatus(place, _remote(place, settings), mirrored, None, 0.0))
        statuses.sort(key=lambda each: each.partition)
        return FlowStatus(
            settings.name,
            await _process_count(look.target, settings),
            statuses,
            out_of_sync,
            await _heartbeat_age(look.target, settings),
        )
    finally:
        look.close()


async def _partitions(
    source: ClusterClient,
    settings: FlowSettings,
    partitions: Sequence[Partition],
    looks: tuple[Mapping[Partition, SourcePosition], Mapping[Partition, SourcePosition]],
    seconds: float,
) -> tuple[list[PartitionStatus], list[str]]:
    """Of partitions that somebody leads; and what was lost of them, in words."""
    before, after = looks
    starts = await source.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await source.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    statuses, lost = [], []
    for partition in partitions:
        start = starts[partition].offset
        written = after[partition].offset + 1 if partition in after else start
        if written < start:
            lost.append(
                f"up to {start - written} records of {partition}, from offset {written} on, were deleted in "
                f"{settings.source.alias} before they were mirrored"
            )
        mirrored = max(written, start)
        earlier = max(before[partition].offset + 1 if partition in before else start, start)
        remote = _remote(partition, settings)
        end = ends[partition].offset
        rate = max(0, mirrored - earlier) / seconds
        statuses.append(PartitionStatus(partition, remote, mirrored, end, rate))
    return statuses, lost


def _remote(partition: Partition, settings: FlowSettings) -> Partition:
    return partition._replace(topic=settings.remote(partition.topic))


async def _topics_out_of_sync(topics: Topics, settings: FlowSettings) -> list[str]:
    found = await topics.find()
    remotes = {name: settings.remote(name) for name in found}
    existing = await topics.existing(remotes.values())
    told = []
    for name, topic in found.items():
        there = existing.get(remotes[name])
        if there is None:
            told.append(f"topic {remotes[name]} does not exist in {settings.target.alias}")
        elif len(there.partitions) < len(topic.partitions):
            told.append(
                f"topic {remotes[name]} has {len(there.partitions)} partitions in {settings.target.alias}, "
                f"{len(topic.partitions)} in {settings.source.alias}"
            )
    if settings.sync_configs_s is not None:
        topics.take(found, existing)
        for remote, (added, deleted) in (await topics.differing_configs()).items():
            changes = [
                *(f"{key}={value}" for key, value in added.items()),
                *(f"{key} unset" for key in deleted),
            ]
            told.append(f"settings of {remote} should be: {', '.join(changes)}")
    return told


async def _groups_out_of_sync(look: _Look, settings: FlowSettings) -> list[str]:
    if settings.emit_checkpoints_s is None or not settings.emit_offset_syncs:
        return []
    syncs_at = look.target if settings.offset_syncs_in_target else look.source
    translations = Translations(syncs_at, settings.offset_syncs_topic)
    checkpoints = Checkpoints(look.source, look.target, settings, translations, lambda _: True)
    return await checkpoints.outdated()


async def _process_count(target: ClusterClient, settings: FlowSettings) -> int:
    try:
        return len((await describe_group(target, settings.group)).members)
    except KafkaError:
        return 0


async def _heartbeat_age(target: ClusterClient, settings: FlowSettings) -> float | None:
    newest: Heartbeat | None = None

    def take(key: bytes, value: bytes | None, _: int) -> None:
        nonlocal newest
        try:
            beat = read_heartbeat(key, value or b"")
        except Unreadable:
            return
        if (beat.source, beat.target) == (settings.source.alias, settings.target.alias):
            newest = beat

    await TopicReader(target, HEARTBEATS, take).read_to_end()
    return None if newest is None else max(0.0, time.time() - newest.timestamp_ms / 1000)
