"""Reading from the source: one long poll per broker, always some megabytes ahead of the writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client import fetch
from ottla.client.admin.topics import Partition
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.errors import STALE_METADATA, ClusterUnreachable, error_for
from ottla.client.peer import PeerLost
from ottla.mirror.batches import Batch, OldFormat, read_committed
from ottla.records.compression import CorruptRecords
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_MAX_WAIT_MS: Final = 500
_FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
_AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
_AGAIN_S: Final = 0.2
# A partition that cannot be read is asked about again after this.
_SET_ASIDE_S: Final = 10.0


class Chunk(NamedTuple):
    partition: Partition
    batches: list[Batch]
    next_offset: int
    size: int
    began: int
    """When reading of the partition began anew, as a number."""


class Fetcher:
    """`run` it in a task; `take` what it has read, in the order of each partition.

    `topic_is_gone` is called when a topic does not exist any more, or only another one of its name.
    """

    def __init__(self, cluster: ClusterClient, name: str, topic_is_gone: Callable[[], None]) -> None:
        self._cluster = cluster
        self._name = name
        self._topic_is_gone = topic_is_gone
        self._positions: dict[Partition, int] = {}
        self._ids: dict[str, UUID | None] = {}
        self._began: dict[Partition, int] = {}
        self._set_aside: dict[Partition, float] = {}
        self._ready: asyncio.Queue[Chunk] = asyncio.Queue()
        self._ready_bytes = 0
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def partitions(self) -> set[Partition]:
        return set(self._positions)

    def add(self, positions: Mapping[Partition, int], ids: Mapping[str, UUID | None]) -> None:
        """Partitions to read from, and where, and the ids of their topics, as far as there are any. What was
        read of the partitions before does not come any more."""
        self._ids.update(ids)
        for partition, offset in positions.items():
            self._positions[partition] = offset
            self._set_aside.pop(partition, None)
            self._began[partition] = self._began.get(partition, 0) + 1
        self._changed.set()

    def remove(self, partition: Partition) -> None:
        self._positions.pop(partition, None)
        self._changed.set()

    async def take(self, timeout_s: float) -> list[Chunk]:
        """All that is there; nothing when nothing has come in time."""
        try:
            async with asyncio.timeout(timeout_s):
                found = [await self._ready.get()]
        except TimeoutError:
            return []
        while not self._ready.empty():
            found.append(self._ready.get_nowait())
        self._ready_bytes -= sum(chunk.size for chunk in found)
        self._has_room.set()
        return [
            chunk
            for chunk in found
            if chunk.partition in self._positions and chunk.began == self._began[chunk.partition]
        ]

    async def run(self) -> None:
        """Until cancelled. Who leads what is looked up again whenever it, or what is wanted, has changed."""
        while True:
            self._changed.clear()
            readers: list[asyncio.Task[None]] = []
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                by_leader = await self._by_leader()
                readers = [
                    asyncio.ensure_future(self._read_on(leader, partitions))
                    for leader, partitions in by_leader.items()
                ]
                done, _ = await asyncio.wait({changed, *readers}, return_when=asyncio.FIRST_COMPLETED)
                for reader in done - {changed}:
                    reader.result()
            except (KafkaError, PeerLost, ClusterUnreachable) as error:
                _log.warning("%s: the source: %s; trying again", self._name, error)
                await asyncio.sleep(_AGAIN_S)
            finally:
                changed.cancel()
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)

    async def _by_leader(self) -> dict[int, list[Partition]]:
        now = asyncio.get_running_loop().time()
        for partition in [each for each, until in self._set_aside.items() if until <= now]:
            del self._set_aside[partition]
        if self._set_aside:
            asyncio.get_running_loop().call_later(min(self._set_aside.values()) - now, self._changed.set)
        wanted = self._positions.keys() - self._set_aside.keys()
        topics = await self._cluster.topics({partition.topic for partition in wanted})
        grouped: dict[int, list[Partition]] = {}
        for partition in sorted(wanted):
            topic = topics.get(partition.topic)
            info = None if topic is None else topic.partitions.get(partition.number)
            known_id = self._ids[partition.topic]
            if topic is None or info is None:
                self._put_aside(partition, "does not exist any more in the source")
                self._topic_is_gone()
            elif known_id is not None and topic.id != known_id:
                self._put_aside(partition, "is of a topic that was made anew in the source")
                self._topic_is_gone()
            elif info.leader < 0:
                self._put_aside(partition, "has no leader in the source at present")
            else:
                grouped.setdefault(info.leader, []).append(partition)
        return grouped

    def _put_aside(self, partition: Partition, why: str) -> None:
        _log.warning("%s: %s %s; looking again in %d s", self._name, partition, why, _SET_ASIDE_S)
        until = asyncio.get_running_loop().time() + _SET_ASIDE_S
        self._set_aside[partition] = until
        asyncio.get_running_loop().call_later(_SET_ASIDE_S, self._changed.set)

    async def _read_on(self, leader: int, partitions: list[Partition]) -> None:
        """From one broker, until something there is not as it was."""
        while True:
            await self._has_room.wait()
            wanted: dict[str, list[fetch.FetchFrom]] = {}
            for partition in partitions:
                if partition in self._positions and partition not in self._set_aside:
                    place = fetch.FetchFrom(partition.number, self._positions[partition])
                    wanted.setdefault(partition.topic, []).append(place)
            if not wanted:
                return
            peer = await self._cluster.node(leader)
            version = peer.version(ApiKey.FETCH, fetch.VERSION_WITH_IDS)
            ids = self._ids_of(wanted) if version == fetch.VERSION_WITH_IDS else None
            if ids is None:
                version = fetch.VERSION
            body = fetch.encode(
                wanted,
                max_wait_ms=_MAX_WAIT_MS,
                min_bytes=1,
                max_bytes=_FETCH_BYTES_MAX,
                partition_max_bytes=_PARTITION_BYTES_MAX,
                read_committed=True,
                ids=ids,
            )
            async with asyncio.timeout(self._cluster.timeouts.request_s):
                answer = await peer.ask_raw(ApiKey.FETCH, version, [body])
            names = None if ids is None else {topic_id: topic for topic, topic_id in ids.items()}
            code, fetched = fetch.decode(answer, names)
            if code != ErrorCode.none:
                raise error_for(code, None, f"fetch from broker {leader}")
            # Those that were read come last the next time, so that none is starved by the others.
            partitions.sort(key=lambda each: bool(fetched[each].records) if each in fetched else False)
            stale = [await self._take_in(Partition(*place), each) for place, each in fetched.items()]
            if any(stale):
                await asyncio.sleep(_AGAIN_S)
                return
            # Brokers that answer at once would keep everything else from running.
            await asyncio.sleep(0)

    def _ids_of(self, topics: Iterable[str]) -> dict[str, UUID] | None:
        """None if one of them has none."""
        found = {topic: topic_id for topic in topics if (topic_id := self._ids[topic]) is not None}
        return found if len(found) == len(set(topics)) else None

    async def _take_in(self, partition: Partition, fetched: fetch.Fetched) -> bool:
        """Whether somebody else has to be asked for the partition."""
        offset = self._positions.get(partition)
        if offset is None:
            return False
        if fetched.error_code == ErrorCode.offset_out_of_range:
            await self._find_place(partition, offset)
            return False
        if fetched.error_code in STALE_METADATA:
            return True
        if fetched.error_code != ErrorCode.none:
            error = error_for(fetched.error_code, None, "")
            self._put_aside(partition, f"cannot be read: {error}")
            return False
        if not fetched.records:
            return False
        try:
            read = read_committed(fetched.records, fetched.aborted, offset)
        except (CorruptRecords, OldFormat) as error:
            self._put_aside(partition, f"cannot be read from offset {offset} on: {error}")
            return False
        if read.next_offset > offset:
            self._positions[partition] = read.next_offset
            size = len(fetched.records)
            self._ready_bytes += size
            if self._ready_bytes >= _AHEAD_BYTES_MAX:
                self._has_room.clear()
            chunk = Chunk(partition, list(read.batches), read.next_offset, size, self._began[partition])
            self._ready.put_nowait(chunk)
        return False

    async def _find_place(self, partition: Partition, offset: int) -> None:
        """An offset that is gone, or that is yet to come because the topic was made anew or lost its end."""
        earliest = (await self._cluster.list_offsets({partition: EARLIEST}))[partition].offset
        latest = (await self._cluster.list_offsets({partition: LATEST}))[partition].offset
        if earliest <= offset <= latest:
            return
        if offset < earliest:
            lost = earliest - offset
            _log.error(
                "%s: up to %d records of %s, from offset %d on, were deleted in the source before they were "
                "mirrored (retention); going on at offset %d",
                self._name, lost, partition, offset, earliest,
            )  # fmt: skip
        else:
            _log.error(
                "%s: %s ends at offset %d in the source, and %d was mirrored: it was made anew, or has lost "
                "its end; it is mirrored again from offset %d on",
                self._name, partition, latest, offset, earliest,
            )  # fmt: skip
        self._positions[partition] = earliest
