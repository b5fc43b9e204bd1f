"""A client of a whole cluster: finds the broker to ask, connects, and asks again while a retry can help."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client import fetch
from ottla.client.connections import Connections, parse_addresses
from ottla.client.errors import (
    STALE_METADATA,
    ClusterUnreachable,
    error_for,
    is_retriable,
    raise_for_code,
)
from ottla.client.metadata import (
    NO_LEADER,
    BrokerNode,
    ClusterInfo,
    PartitionInfo,
    TopicInfo,
    read_cluster,
    read_topic,
)
from ottla.client.peer import Peer, PeerLost, PeerUnusable
from ottla.client.timeouts import timeouts_from_properties
from ottla.runtime.net import Network
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, KafkaError, UnknownTopicOrPartition

T = TypeVar("T")

GROUP: Final = 0
TRANSACTION: Final = 1

EARLIEST: Final = -2
LATEST: Final = -1

# A topic just created may not have reached every broker; one that stays unknown longer does not exist.
UNKNOWN_TOPIC_SECONDS_MAX = 2.0


class OffsetAt(NamedTuple):
    offset: int
    """-1 when no record is that young."""
    timestamp_ms: int
    leader_epoch: int


class ClusterClient:
    """`async with ClusterClient(network, "host:9092", properties) as cluster: …`

    `properties` have Kafka's names. All methods may be called by many tasks at once. They raise KafkaError
    with what was asked in its text, ClusterUnreachable, or PeerUnusable.
    """

    def __init__(
        self, network: Network, bootstrap: str | Iterable[str], properties: Mapping[str, str] | None = None
    ) -> None:
        properties = properties or {}
        self._bootstrap = parse_addresses(bootstrap)
        self.timeouts = timeouts_from_properties(properties)
        self._connections = Connections(network, properties, self.timeouts.connect_s)
        self._cluster = ClusterInfo(None, -1, {})
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[tuple[int, str], BrokerNode] = {}
        self._is_stale = False
        self.unreachable: ClusterUnreachable | None = None
        """Why the attempt before the one under way failed, if no broker could be reached."""
        self.passing: KafkaError | PeerLost | None = None
        """The same, if one was reached."""

    async def __aenter__(self) -> ClusterClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connections.close()

    # What there is

    async def cluster(self) -> ClusterInfo:
        await self.retried(lambda: self._refresh([]))
        return self._cluster

    async def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Fresh; those that do not exist are left out."""
        wanted = sorted(set(names))
        await self.retried(lambda: self._refresh(wanted))
        return {name: self._topics[name] for name in wanted if name in self._topics}

    async def topics_matching(self, pattern: str) -> dict[str, TopicInfo]:
        """The pattern has to match the whole name, as in Kafka's consumers."""
        matches = re.compile(pattern).fullmatch
        await self.retried(lambda: self._refresh(None))
        return {name: topic for name, topic in sorted(self._topics.items()) if matches(name)}

    async def partition(self, topic: str, partition: int) -> PartitionInfo:
        """As last heard; asks the cluster only when it has no leader to name."""
        for is_fresh in (False, True):
            if is_fresh:
                await self._refresh([topic])
            known = self._topics.get(topic)
            if known is not None and (info := known.partitions.get(partition)) is not None:
                if info.leader != NO_LEADER:
                    return info
                if is_fresh:
                    raise error_for(ErrorCode.leader_not_available, None, f"{topic}-{partition}")
        raise UnknownTopicOrPartition(
            f"topic {topic} does not exist"
            if topic not in self._topics
            else f"topic {topic} has no partition {partition}"
        )

    # Whom to ask: one attempt each, to be used within `retried` or as `find` of `ask`

    async def node(self, node_id: int) -> Peer:
        broker = await self._broker(node_id)
        return await self._connections.peer(broker.host, broker.port)

    async def node_at(self, host: str, port: int) -> Peer:
        return await self._connections.peer(host, port)

    async def any_node(self) -> Peer:
        known = [(broker.host, broker.port) for broker in self._cluster.brokers.values()]
        return await self._connections.any_peer(list(dict.fromkeys((*known, *self._bootstrap))))

    async def leader(self, topic: str, partition: int) -> Peer:
        return await self.node((await self.partition(topic, partition)).leader)

    async def controller(self) -> Peer:
        if self._cluster.controller_id not in self._cluster.brokers:
            await self._refresh([])
        return await self.node(self._cluster.controller_id)

    async def coordinator(self, kind: int, key: str) -> Peer:
        broker = await self.coordinating_broker(kind, key)
        return await self._connections.peer(broker.host, broker.port)

    async def coordinating_broker(self, kind: int, key: str) -> BrokerNode:
        """The one that looks after a group or a transactional id."""
        known = self._coordinators.get((kind, key))
        if known is None:
            peer = await self.any_node()
            values = {"key_type": kind, "coordinator_keys": [key]}
            answer = await self._bounded(peer, peer.ask(ApiKey.FIND_COORDINATOR, values))
            found = answer.coordinators[0]
            raise_for_code(found.error_code, found.error_message, f"coordinator of {key}")
            # Where it is, the answer says itself: other brokers may not have heard of it yet.
            known = self._coordinators[kind, key] = BrokerNode(found.node_id, found.host, found.port)
        return known

    # Asking

    async def ask(
        self,
        find: int | Callable[[], Awaitable[Peer]] | None,
        api_key: ApiKey,
        values: Mapping[str, Any] | None = None,
        *,
        version_max: int | None = None,
        check: Callable[[Any], None] | None = None,
        about: str | None = None,
    ) -> Any:
        """The answer of one broker: an id, any (None), or the one that `find` returns on each attempt.

        An error code of the whole answer is raised, as one about the API unless `about` says something else.
        `check` may raise those inside the answer (`raise_for_code`); whatever is retriable is asked again.
        """

        async def attempt() -> Any:
            if find is None:
                peer = await self.any_node()
            else:
                peer = await (self.node(find) if isinstance(find, int) else find())
            answer = await self._bounded(peer, peer.ask(api_key, values, version_max=version_max))
            code = getattr(answer, "error_code", ErrorCode.none)
            message = getattr(answer, "error_message", None)
            raise_for_code(code, message, api_key.name if about is None else about)
            if check is not None:
                check(answer)
            return answer

        return await self.retried(attempt)

    async def serves(self, api_key: ApiKey) -> bool:
        """Whether the brokers know an API; all of a cluster are taken to be alike."""
        return api_key in (await self.retried(self.any_node)).versions

    async def ask_controller(
        self, api_key: ApiKey, values: Mapping[str, Any], check: Callable[[Any], None] | None = None
    ) -> Any:
        return await self.ask(self.controller, api_key, values, check=check)

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        api_key: ApiKey,
        values: Mapping[str, Any],
        check: Callable[[Any], None] | None = None,
        *,
        version_max: int | None = None,
        about: str | None = None,
    ) -> Any:
        return await self.ask(
            lambda: self.coordinator(kind, key),
            api_key,
            values,
            check=check,
            version_max=version_max,
            about=about,
        )

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again while the error is one that passes, until `default.api.timeout.ms`."""
        now = asyncio.get_running_loop().time
        started = now()
        timeout_s = self.timeouts.api_s
        self.unreachable = self.passing = None
        while True:
            try:
                return await attempt()
            except UnknownTopicOrPartition:
                if now() - started > min(timeout_s, UNKNOWN_TOPIC_SECONDS_MAX):
                    raise
                self._forget()
            except KafkaError as error:
                if not is_retriable(error.code) or now() - started > timeout_s:
                    raise
                self.unreachable, self.passing = None, error
                if error.code in STALE_METADATA:
                    self._forget()
            except PeerUnusable:
                raise
            except ClusterUnreachable as error:
                # Addresses that never worked are more likely wrong than down.
                is_down = self._connections.have_reached(error.failures)
                if now() - started > (timeout_s if is_down else min(timeout_s, self.timeouts.connect_s)):
                    raise
                self.unreachable, self.passing = error, None
                self._forget()
            except PeerLost as error:
                if now() - started > timeout_s:
                    raise ClusterUnreachable(f"gave up after {now() - started:.0f} s: {error}", {}) from error
                self.unreachable, self.passing = None, error
                self._forget()
            await asyncio.sleep(self.timeouts.backoff_s)

    # Reading

    async def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, read_committed: bool = False
    ) -> dict[tuple[str, int], OffsetAt]:
        """For each partition the first offset at or after a time in ms, or EARLIEST, or LATEST."""
        found: dict[tuple[str, int], OffsetAt] = {}

        async def attempt() -> None:
            by_leader: dict[int, dict[str, list[dict[str, int]]]] = {}
            for (topic, partition), timestamp in sorted(timestamps.items()):
                if (topic, partition) not in found:
                    info = await self.partition(topic, partition)
                    rows = by_leader.setdefault(info.leader, {}).setdefault(topic, [])
                    rows.append({"partition_index": partition, "timestamp": timestamp})
            asked = [self._list_offsets(node, topics, read_committed) for node, topics in by_leader.items()]
            for answer in await asyncio.gather(*asked, return_exceptions=True):
                if isinstance(answer, BaseException):
                    raise answer
                for topic in answer.topics:
                    for row in topic.partitions:
                        about = f"offset of {topic.name}-{row.partition_index}"
                        raise_for_code(row.error_code, None, about)
                        at = OffsetAt(row.offset, row.timestamp, row.leader_epoch)
                        found[topic.name, row.partition_index] = at

        await self.retried(attempt)
        return found

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        read_committed: bool = False,
    ) -> fetch.Fetched:
        """Record batches as they are stored. OffsetOutOfRange when the offset is gone or yet to come."""
        about = f"fetch of {topic}-{partition} at offset {offset}"

        async def attempt() -> fetch.Fetched:
            info = await self.partition(topic, partition)
            peer = await self.node(info.leader)
            body = fetch.encode(
                {topic: [fetch.FetchFrom(partition, offset, info.leader_epoch)]},
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                read_committed=read_committed,
            )
            peer.version(ApiKey.FETCH, fetch.VERSION)
            answer = await self._bounded(peer, peer.ask_raw(ApiKey.FETCH, fetch.VERSION, [body]))
            code, partitions = fetch.decode(answer)
            fetched = partitions.get((topic, partition))
            if fetched is not None:
                code = fetched.error_code
            if fetched is None or code != ErrorCode.none:
                raise error_for(code, None, about)
            return fetched

        return await self.retried(attempt)

    async def wait_for_records(
        self, positions: Mapping[tuple[str, int], int], *, max_wait_ms: int, read_committed: bool = False
    ) -> None:
        """Until one of the partitions may have something at its position; errors end the wait, too."""
        by_leader: dict[int, dict[str, list[fetch.FetchFrom]]] = {}
        try:
            for (topic, partition), offset in sorted(positions.items()):
                info = await self.partition(topic, partition)
                wanted = by_leader.setdefault(info.leader, {}).setdefault(topic, [])
                wanted.append(fetch.FetchFrom(partition, offset, info.leader_epoch))
            peers = [(await self.node(node_id), topics) for node_id, topics in by_leader.items()]
        except (KafkaError, PeerLost, ClusterUnreachable):
            await asyncio.sleep(max_wait_ms / 1000)
            return
        bodies = [
            (
                peer,
                fetch.encode(
                    topics,
                    max_wait_ms=max_wait_ms,
                    min_bytes=1,
                    max_bytes=1,
                    partition_max_bytes=1,
                    read_committed=read_committed,
                ),
            )
            for peer, topics in peers
        ]
        waits = [
            asyncio.ensure_future(peer.ask_raw(ApiKey.FETCH, fetch.VERSION, [body])) for peer, body in bodies
        ]
        try:
            await asyncio.wait(waits, timeout=self.timeouts.request_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _list_offsets(
        self, node_id: int, topics: Mapping[str, list[dict[str, int]]], read_committed: bool
    ) -> Any:
        values = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "timeout": self.timeouts.request_ms,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        peer = await self.node(node_id)
        return await self._bounded(peer, peer.ask(ApiKey.LIST_OFFSETS, values))

    async def _broker(self, node_id: int) -> BrokerNode:
        broker = self._cluster.brokers.get(node_id)
        if broker is None or self._is_stale:
            await self._refresh([])
            broker = self._cluster.brokers.get(node_id)
        if broker is None:
            known = list(self._cluster.brokers)
            message = f"broker {node_id} is not part of the cluster; brokers are {known}"
            raise error_for(ErrorCode.broker_not_available, message, "")
        return broker

    async def _refresh(self, topics: list[str] | None) -> None:
        """None: all topics there are."""
        peer = await self.any_node()
        asked = None if topics is None else [{"name": name} for name in topics]
        values = {"topics": asked, "allow_auto_topic_creation": False}
        answer = await self._bounded(peer, peer.ask(ApiKey.METADATA, values))
        self._cluster = read_cluster(answer)
        self._is_stale = False
        if topics is None:
            self._topics = {}
        for row in answer.topics:
            if row.error_code == ErrorCode.unknown_topic_or_partition:
                self._topics.pop(row.name, None)
            elif row.error_code not in (ErrorCode.none, ErrorCode.leader_not_available):
                raise error_for(row.error_code, None, f"topic {row.name}")
            else:
                self._topics[row.name] = read_topic(row)

    async def _bounded(self, peer: Peer, request: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self.timeouts.request_s):
                return await request
        except TimeoutError:
            self._connections.drop(peer)
            limit = f"request.timeout.ms={self.timeouts.request_ms}"
            raise PeerLost(f"{peer.address}: no answer within {limit}") from None

    def _forget(self) -> None:
        """Whatever was cached may be why the last attempt failed."""
        self._is_stale = True
        self._topics.clear()
        self._coordinators.clear()
