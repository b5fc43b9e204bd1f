"""Reads partitions as whole answers of brokers, which become columns, for sinks that take those.

Which partitions, the group decides, with the other client, which holds them paused; this one only fetches:
one long poll per leader, some megabytes ahead of the task.
"""

from __future__ import annotations

import asyncio
import logging
import queue
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.client import fetch
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.errors import STALE_METADATA, ClusterUnreachable, error_for
from ottla.client.metadata import NO_LEADER
from ottla.client.peer import PeerLost, PeerUnusable
from ottla.client.pem_stores import SecurityError
from ottla.connect.errors import ConnectError
from ottla.connect.plugin import Partition
from ottla.connect.running.known_settings import EVERY_CLIENT, knows_all
from ottla.records.batch import iter_headers
from ottla.spark.connection import Connection
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition

_log = logging.getLogger(__name__)
_MAX_WAIT_MS: Final = 500
_MIN_BYTES: Final = 1
_FETCH_BYTES_MAX: Final = 50 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 1024 * 1024
_AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
_AGAIN_S: Final = 0.2
_LOOK_S: Final = 1.0
_RESETS: Final = {
    "earliest": EARLIEST, "smallest": EARLIEST, "beginning": EARLIEST,
    "latest": LATEST, "largest": LATEST, "end": LATEST,
}  # fmt: skip
_KNOWN: Final = EVERY_CLIENT | {
    "allow.auto.create.topics",
    "auto.offset.reset",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "heartbeat.interval.ms",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "topic.metadata.refresh.interval.ms",
    "value.deserializer",
}


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    bootstrap: str
    properties: Mapping[str, str]
    max_wait_ms: int
    min_bytes: int
    fetch_bytes_max: int
    partition_bytes_max: int
    is_committed: bool
    reset: int | None
    """Where to begin without an offset; None if that is an error."""


def settings_of(client: Mapping[str, str]) -> ReaderSettings | None:
    """None if a consumer's settings ask for what only the other client does."""
    if not knows_all(client, _KNOWN):
        return None
    try:
        return ReaderSettings(
            client["bootstrap.servers"],
            {name: value for name, value in client.items() if name != "bootstrap.servers"},
            int(client.get("fetch.max.wait.ms", _MAX_WAIT_MS)),
            int(client.get("fetch.min.bytes", _MIN_BYTES)),
            int(client.get("fetch.max.bytes", _FETCH_BYTES_MAX)),
            int(client.get("max.partition.fetch.bytes", _PARTITION_BYTES_MAX)),
            # librdkafka's default, which is what the other way has.
            client.get("isolation.level", "read_committed").lower() == "read_committed",
            _RESETS.get(client.get("auto.offset.reset", "earliest").lower()),
        )
    except ValueError:
        return None


class Chunk(NamedTuple):
    """What one answer has of a partition, from an offset on."""

    place: Partition
    offset: int
    next_offset: int
    records: memoryview
    aborted: Any
    began: int
    """When reading of the partition began anew, as a number."""


class TopicMissing(Exception):
    """The cluster does not know a topic that is to be read."""


class ColumnReader:
    """Used by one thread. ConnectError for settings that no connection can be made with."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        try:
            self._connection = Connection(settings.bootstrap, settings.properties)
        except (SecurityError, ValueError) as error:
            raise ConnectError(str(error)) from error
        self._cluster: ClusterClient = self._connection.cluster
        self._ready: queue.SimpleQueue[Chunk | Exception] = queue.SimpleQueue()
        self._loop = _Loop(settings, self._cluster, self._ready)
        self._connection.call(self._loop.start)
        self._began: dict[Partition, int] = {}
        self._count = 0

    def add(self, positions: Mapping[Partition, int | None]) -> None:
        """Partitions to read from, and where; None where no offset is known. What is there of them already
        does not come any more."""
        self._count += 1
        for place in positions:
            self._began[place] = self._count
        self._connection.call(self._loop.add, dict(positions), self._count)

    def remove(self, places: Iterable[Partition]) -> None:
        gone = list(places)
        for place in gone:
            self._began.pop(place, None)
        self._connection.call(self._loop.remove, gone)

    def take(self, timeout_s: float) -> Chunk | None:
        """The next, None if there is none in time. ConnectError, TopicMissing."""
        try:
            found = self._ready.get(timeout=timeout_s) if timeout_s > 0 else self._ready.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, Exception):
            raise found
        self._connection.call(self._loop.taken, len(found.records))
        return found if self._began.get(found.place) == found.began else None

    def lag(self, done: Mapping[Partition, int]) -> int:
        """Records behind what is done, by the ends that came with the last answers."""
        ends = dict(self._loop.ends)
        return sum(max(0, ends[place] - offset) for place, offset in done.items() if place in ends)

    def close(self) -> None:
        self._connection.run(self._loop.end())
        self._connection.close()


class _Loop:
    """What runs on the event loop."""

    def __init__(
        self,
        settings: ReaderSettings,
        cluster: ClusterClient,
        ready: queue.SimpleQueue[Chunk | Exception],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._ready = ready
        self._positions: dict[Partition, int] = {}
        self._began: dict[Partition, int] = {}
        self._unplaced: set[Partition] = set()
        self._waiting_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None]
        self.ends: dict[Partition, int] = {}

    def add(self, positions: Mapping[Partition, int | None], began: int) -> None:
        for place, offset in positions.items():
            self._began[place] = began
            self._positions.pop(place, None)
            self._unplaced.discard(place)
            if offset is None:
                self._unplaced.add(place)
            else:
                self._positions[place] = offset
        self._changed.set()

    def remove(self, places: Iterable[Partition]) -> None:
        for place in places:
            self._positions.pop(place, None)
            self._unplaced.discard(place)
            self.ends.pop(place, None)
        self._changed.set()

    def taken(self, size: int) -> None:
        self._waiting_bytes -= size
        if self._waiting_bytes < _AHEAD_BYTES_MAX:
            self._has_room.set()

    def start(self) -> None:
        self._running = asyncio.ensure_future(self._run())

    async def end(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        """Until cancelled. Who leads what is looked up again whenever it, or what is wanted, has changed."""
        while True:
            self._changed.clear()
            readers: list[asyncio.Task[None]] = []
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                by_leader = await self._by_leader()
                readers = [
                    asyncio.ensure_future(self._read_on(leader, places))
                    for leader, places in by_leader.items()
                ]
                done, _ = await asyncio.wait({changed, *readers}, return_when=asyncio.FIRST_COMPLETED)
                for reader in done - {changed}:
                    reader.result()
            except PeerUnusable as error:
                self._ready.put(error)
                await asyncio.sleep(_AGAIN_S)
            except UnknownTopicOrPartition as error:
                self._ready.put(TopicMissing(str(error)))
                await asyncio.sleep(_AGAIN_S)
            except KafkaError as error:
                if error.code.retriable:
                    _log.warning("records cannot be read now: %s; trying again", error)
                else:
                    self._ready.put(ConnectError(f"records cannot be read: {error}"))
                await asyncio.sleep(_AGAIN_S)
            except (PeerLost, ClusterUnreachable, TimeoutError, OSError) as error:
                _log.warning("records cannot be read now: %s; trying again", error)
                await asyncio.sleep(_AGAIN_S)
            except Exception as error:
                # Whatever it is, or whoever takes would wait for ever.
                self._ready.put(error)
                await asyncio.sleep(_AGAIN_S)
            finally:
                changed.cancel()
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)

    async def _by_leader(self) -> dict[int, list[Partition]]:
        """What there is to read. Partitions that nobody leads at present, or that are gone, are looked at
        again, and keep nobody waiting."""
        wanted = sorted({*self._positions, *self._unplaced})
        topics = await self._cluster.topics({topic for topic, _ in wanted})
        leaders: dict[Partition, int] = {}
        for place in wanted:
            topic = topics.get(place[0])
            info = None if topic is None else topic.partitions.get(place[1])
            if info is None:
                self._ready.put(TopicMissing(f"{place[0]}-{place[1]} does not exist"))
            elif info.leader != NO_LEADER:
                leaders[place] = info.leader
        if len(wanted) > len(leaders):
            asyncio.get_running_loop().call_later(_LOOK_S, self._changed.set)
        await self._find_places(leaders.keys() & self._unplaced)
        grouped: dict[int, list[Partition]] = {}
        for place, leader in leaders.items():
            if place in self._positions:
                grouped.setdefault(leader, []).append(place)
        return grouped

    async def _find_places(self, places: set[Partition]) -> None:
        if not places:
            return
        reset = self._settings.reset
        if reset is None:
            named = ", ".join(f"{topic}-{number}" for topic, number in sorted(places))
            raise ConnectError(
                f"{named}: the group has no offset there, or one that is gone, and auto.offset.reset says "
                "that this is an error: set it to earliest or latest, or give the group an offset"
            )
        found = await self._cluster.list_offsets(dict.fromkeys(places, reset))
        for place, at in found.items():
            if place in self._unplaced:
                self._unplaced.discard(place)
                self._positions[place] = at.offset

    async def _read_on(self, leader: int, places: list[Partition]) -> None:
        """From one broker, until something there is not as it was."""
        settings = self._settings
        while True:
            await self._has_room.wait()
            wanted: dict[str, list[fetch.FetchFrom]] = {}
            for place in places:
                if place in self._positions:
                    wanted.setdefault(place[0], []).append(fetch.FetchFrom(place[1], self._positions[place]))
            if not wanted:
                return
            peer = await self._cluster.node(leader)
            peer.version(ApiKey.FETCH, fetch.VERSION)
            body = fetch.encode(
                wanted,
                max_wait_ms=settings.max_wait_ms,
                min_bytes=settings.min_bytes,
                max_bytes=settings.fetch_bytes_max,
                partition_max_bytes=settings.partition_bytes_max,
                read_committed=settings.is_committed,
            )
            async with asyncio.timeout(self._cluster.timeouts.request_s):
                answer = await peer.ask_raw(ApiKey.FETCH, fetch.VERSION, [body])
            code, fetched = fetch.decode(answer)
            if code != ErrorCode.none:
                raise error_for(code, None, f"fetch from broker {leader}")
            # Those that were read come last the next time, so that none is starved by the others.
            places.sort(key=lambda each: bool(fetched[each].records) if each in fetched else False)
            stale = [self._take_in(place, each) for place, each in fetched.items()]
            if any(stale):
                await asyncio.sleep(_AGAIN_S)
                return
            # Brokers that answer at once would keep everything else from running.
            await asyncio.sleep(0)

    def _take_in(self, place: Partition, fetched: fetch.Fetched) -> bool:
        """Whether somebody else has to be asked for the partition."""
        offset = self._positions.get(place)
        if offset is None:
            return False
        if fetched.error_code == ErrorCode.offset_out_of_range:
            _log.warning(
                "%s-%d has no offset %d (any more); auto.offset.reset says where to go on", *place, offset
            )
            del self._positions[place]
            self._unplaced.add(place)
            return True
        if fetched.error_code in STALE_METADATA:
            return True
        if fetched.error_code != ErrorCode.none:
            raise error_for(fetched.error_code, None, f"{place[0]}-{place[1]}")
        self.ends[place] = (
            fetched.last_stable_offset if self._settings.is_committed else fetched.high_watermark
        )
        next_offset = offset
        for _, header in iter_headers(fetched.records):
            next_offset = header.last_offset + 1
        if next_offset > offset:
            self._positions[place] = next_offset
            self._waiting_bytes += len(fetched.records)
            if self._waiting_bytes >= _AHEAD_BYTES_MAX:
                self._has_room.clear()
            self._ready.put(
                Chunk(
                    place, offset, next_offset, fetched.records,
                    fetched.aborted if self._settings.is_committed else (), self._began[place],
                )
            )  # fmt: skip
        return False
