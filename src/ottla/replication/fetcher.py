"""Keeps partitions up with the brokers that lead them: per leader a connection, and one fetch at a time.

What is asked for and what is wanted of an answer is decided in `fetching`. Here it is sent, and what comes is
appended as it is, so that replicas have the same bytes. Where this log has something else than the leader's,
it is cut; only that, and a log that begins anew, wait for the disk. After every wait the partition may lead,
be gone, or follow in another epoch: then nothing more is done to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import Iterable, Iterator

from ottla.client import replica_fetch as codec
from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import Peer, PeerLost
from ottla.client.replica_fetch import ReplicaFetched
from ottla.config import BrokerConfig
from ottla.log.manager import LogManager
from ottla.log.types import StartsWithinBatch, UnexpectedOffset
from ottla.replication.fetching import FetchSession, Followed, is_session_error
from ottla.replication.in_sync import InSync
from ottla.replication.leadership import NO_BROKER_EPOCH
from ottla.replication.partition import Partition
from ottla.replication.throttles import Throttles
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.runtime.tasks import TaskScope
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, UnsupportedVersion

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
# The leader, or this broker, has yet to hear of what the other one knows.
_SOON_SECONDS = 0.05
_SOON = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.unknown_topic_id,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch,
}
# As much as is appended before others have a turn.
_TURN_BYTES = 256 * 1024
LATEST, EARLIEST = -1, -2


class Fetchers:
    """One per leader, made when first needed. `listener` is the one that brokers use between themselves."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        logs: LogManager,
        in_sync: InSync,
        throttles: Throttles,
        listener: str,
        tasks: TaskScope,
    ) -> None:
        self.config = config
        self.runtime = runtime
        self.logs = logs
        self.in_sync = in_sync
        self.throttles = throttles
        self._listener = listener
        self._tasks = tasks
        self._by_leader: dict[int, _Fetcher] = {}
        self._leader_of: dict[Partition, tuple[int, int]] = {}

    def __iter__(self) -> Iterator[tuple[int, Followed]]:
        """Partitions that are followed, each with the broker that leads it."""
        return (
            (leader, followed) for leader, fetcher in self._by_leader.items() for followed in fetcher.followed
        )

    def address_of(self, broker_id: int) -> tuple[str, int] | None:
        broker = self.in_sync.image.brokers.get(broker_id)
        for endpoint in () if broker is None else broker.endpoints:
            if endpoint.name == self._listener:
                return endpoint.host, endpoint.port
        return None

    def epoch_of(self, broker_id: int) -> int:
        broker = self.in_sync.image.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None else broker.epoch

    def follow(self, partition: Partition, leader: int) -> None:
        now = (leader, partition.leader_epoch)
        before = self._leader_of.get(partition)
        if before == now:
            return
        if before is not None and before[0] != leader:
            self.unfollow(partition)
        self._leader_of[partition] = now
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = _Fetcher(self, leader)
            self._tasks.spawn(fetcher.run(), f"fetch-from-{leader}")
        fetcher.add(Followed(partition))

    def unfollow(self, partition: Partition) -> None:
        before = self._leader_of.pop(partition, None)
        if before is not None:
            self._by_leader[before[0]].remove(partition)


class _Fetcher:
    def __init__(self, fetchers: Fetchers, leader: int) -> None:
        self._fetchers = fetchers
        self._leader = leader
        self._runtime = fetchers.runtime
        self._session = FetchSession()
        self._changed = asyncio.Event()
        self._peer: Peer | None = None
        self._peer_epoch = NO_BROKER_EPOCH
        self._says = Seldom(fetchers.runtime.clock)
        self._connections = Connections(
            fetchers.runtime.net,
            {
                **fetchers.config.to_brokers,
                "client.id": f"broker-{fetchers.in_sync.node_id}-fetcher-{leader}",
            },
            CONNECT_SECONDS,
        )

    @property
    def followed(self) -> Iterable[Followed]:
        return self._session

    def add(self, followed: Followed) -> None:
        self._session.add(followed)
        self._changed.set()
        if self._peer_epoch != self._fetchers.epoch_of(self._leader):
            # It was restarted: who fell silent with its former life will not answer any more.
            self._hang_up()

    def remove(self, partition: Partition) -> None:
        self._session.remove((partition.topic_id, partition.topic_partition.partition))
        if not len(self._session):
            self._hang_up()

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._connections.drop(self._peer)

    async def run(self) -> None:
        try:
            while True:
                if not len(self._session):
                    self._connections.close()
                    self._session.reset()
                    self._changed.clear()
                    await self._changed.wait()
                try:
                    await self._fetch()
                except (ClusterUnreachable, PeerLost, UnsupportedVersion, OSError, TimeoutError) as error:
                    self._session.reset()
                    if self._says.is_due():
                        log.warning(
                            "cannot fetch from broker %d: %s; trying again",
                            self._leader,
                            error or repr(error),
                        )
                    await self._pause(self._backoff_seconds)
        finally:
            self._connections.close()

    @property
    def _backoff_seconds(self) -> float:
        return self._fetchers.config.integer("replica.fetch.backoff.ms") / 1000

    async def _pause(self, seconds: float) -> None:
        """Unless there is another partition to fetch for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _fetch(self) -> None:
        config = self._fetchers.config
        clock = self._runtime.clock
        request = self._session.next_request(clock.monotonic(), self._fetchers.throttles.holds_back)
        if request is None:
            await self._pause(_SOON_SECONDS)
            return
        peer = await self._connected()
        version = peer.version(ApiKey.FETCH, codec.VERSION_MAX)
        if version < codec.VERSION_MIN:
            raise UnsupportedVersion(f"{peer.address} takes no Fetch of version {codec.VERSION_MIN}")
        wait_ms = config.integer("replica.fetch.wait.max.ms")
        body = codec.encode(
            request.positions,
            request.forgotten,
            replica_id=self._fetchers.in_sync.node_id,
            broker_epoch=self._fetchers.in_sync.broker_epoch,
            session=request.session,
            max_wait_ms=wait_ms,
            min_bytes=config.integer("replica.fetch.min.bytes"),
            max_bytes=config.integer("replica.fetch.response.max.bytes"),
            partition_max_bytes=config.integer("replica.fetch.max.bytes"),
        )
        try:
            async with asyncio.timeout(wait_ms / 1000 + config.integer("replica.socket.timeout.ms") / 1000):
                answer = await peer.ask_raw(ApiKey.FETCH, version, [body])
            error, session_id, rows = codec.decode(answer)
        except (TimeoutError, struct.error, IndexError, ValueError) as failure:
            # What comes over this connection later would be taken for something else.
            self._connections.drop(peer)
            raise PeerLost(f"{peer.address}: no answer, or none that can be read: {failure!r}") from failure
        if error and not is_session_error(error):
            self._session.reset()
            await self._pause(self._backoff_seconds)
            return
        unyielded_bytes = 0
        for followed, row in self._session.take(error, session_id, rows):
            await self._apply(peer, followed, row)
            unyielded_bytes += len(row.records)
            if unyielded_bytes > _TURN_BYTES:
                unyielded_bytes = 0
                await asyncio.sleep(0)

    async def _connected(self) -> Peer:
        address = self._fetchers.address_of(self._leader)
        if address is None:
            raise PeerLost(f"the metadata does not say where broker {self._leader} listens to other brokers")
        self._peer_epoch = self._fetchers.epoch_of(self._leader)
        self._peer = await self._connections.peer(*address)
        return self._peer

    async def _apply(self, peer: Peer, followed: Followed, row: ReplicaFetched) -> None:
        partition = followed.partition
        try:
            if row.error_code == ErrorCode.offset_out_of_range:
                await self._find_place(peer, followed)
            elif row.error_code:
                self._leave_alone(followed, ErrorCode(row.error_code))
                return
            elif row.diverging is not None:
                await self._truncate(followed, partition.log.truncation_offset(*row.diverging))
            else:
                await self._append(followed, row)
        except (KafkaError, UnexpectedOffset, OSError) as error:
            if self._says.is_due():
                log.error(
                    "%s cannot be kept up with its leader, broker %d: %s; trying again",
                    partition.topic_partition,
                    self._leader,
                    error,
                )
            self._session.back_off(followed, self._runtime.clock.monotonic() + self._backoff_seconds)
        else:
            self._session.done(followed)

    async def _append(self, followed: Followed, row: ReplicaFetched) -> None:
        partition = followed.partition
        try:
            partition.append_as_follower(row.records, row.high_watermark, row.log_start_offset)
        except StartsWithinBatch as within:
            # The leader's log starts within a batch, whose first records were deleted.
            await self._begin_anew(followed, within.base_offset)
            if followed.is_current:
                partition.append_as_follower(row.records, row.high_watermark, row.log_start_offset)
        except UnexpectedOffset:
            # Of that batch, this log has the beginning from another leader, and epochs cannot tell any more.
            if partition.log.next_offset != row.log_start_offset:
                raise
            await self._begin_anew(followed, row.log_start_offset)
        followed.leader_high_watermark = row.high_watermark
        followed.is_behind = partition.log.next_offset < row.high_watermark
        self._fetchers.throttles.fetched(partition, len(row.records))

    def _leave_alone(self, followed: Followed, code: ErrorCode) -> None:
        seconds = _SOON_SECONDS if code in _SOON else self._backoff_seconds
        if code not in _SOON and self._says.is_due():
            log.warning(
                "broker %d answers %s for %s; trying again",
                self._leader,
                code.name.upper(),
                followed.partition.topic_partition,
            )
        self._session.back_off(followed, self._runtime.clock.monotonic() + seconds)

    async def _truncate(self, followed: Followed, offset: int) -> None:
        partition, logs = followed.partition, self._fetchers.logs
        partition_log = partition.log
        if offset < partition_log.next_offset:
            offset = partition_log.batch_start(offset)
            log.warning(
                "%s: cutting the log from offset %d back to %d, from where on its leader, broker %d, has "
                "other records",
                partition.topic_partition,
                partition_log.next_offset,
                offset,
                self._leader,
            )
        # Before the rest, which then waits for nothing: should the partition lead meanwhile, its log is the
        # right one.
        while offset < partition_log.next_offset and partition_log.lower_recovery_point(offset):
            await logs.write_checkpoints()
        if followed.is_current and not partition_log.is_closed:
            await logs.truncate(partition.topic_partition, offset)
            partition.truncated()

    async def _find_place(self, peer: Peer, followed: Followed) -> None:
        """The leader has nothing at the end of this log: it is shorter, or begins later."""
        partition = followed.partition
        impossible = partition.log.start_of_later_epochs(followed.leader_epoch)
        if impossible is not None:
            # No CRC covers the epoch of a batch, and a power cut may leave anything: it is to be sent again.
            await self._truncate(followed, impossible)
            return
        leader_end = await self._offset_of(peer, followed, LATEST)
        if leader_end < partition.log.next_offset:
            if followed.is_current:
                await self._truncate(followed, leader_end)
            return
        leader_start = await self._offset_of(peer, followed, EARLIEST)
        if leader_start <= partition.log.next_offset:
            return
        await self._begin_anew(followed, leader_start)

    async def _begin_anew(self, followed: Followed, offset: int) -> None:
        partition = followed.partition
        while followed.is_current and partition.log.lower_recovery_point(
            partition.log.segments[0].base_offset
        ):
            await self._fetchers.logs.write_checkpoints()
        if followed.is_current:
            log.warning(
                "%s: begins anew at offset %d: its leader, broker %d, no longer has what comes next at %d",
                partition.topic_partition,
                offset,
                self._leader,
                partition.log.next_offset,
            )
            await self._fetchers.logs.truncate_fully_and_start_at(partition.topic_partition, offset)
            partition.truncated()

    async def _offset_of(self, peer: Peer, followed: Followed, position: int) -> int:
        topic, index = followed.partition.topic_partition
        asked = {
            "partition_index": index,
            "current_leader_epoch": followed.leader_epoch,
            "timestamp": position,
        }
        answer = await peer.ask(
            ApiKey.LIST_OFFSETS,
            {
                "replica_id": self._fetchers.in_sync.node_id,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [asked]}],
            },
        )
        found = answer.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(f"{peer.address} answers {found.error_code.name.upper()} when asked for offsets")
        return int(found.offset)
