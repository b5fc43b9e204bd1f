"""One registry of a group: follows the topic, and writes to it while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost
from ottla.records.records import Record
from ottla.registry import errors
from ottla.registry.election import Election, Identity
from ottla.registry.errors import NotLeader, RegistryError
from ottla.registry.forwarding import ForwardingFailed
from ottla.registry.records import decode
from ottla.registry.rules import Outcome, Rules
from ottla.registry.store import Store
from ottla.registry.topic import TooLarge, TopicReader, TopicWriter, ensure_topic
from ottla.runtime.clock import Clock
from ottla.runtime.net import Network
from ottla.wire.errors import KafkaError

_log = logging.getLogger(__name__)
T = TypeVar("T")
TROUBLE = (KafkaError, PeerLost, ClusterUnreachable, TimeoutError)
_WRITE_TIMEOUT_S = 60.0
_LOOK_AT_LEADER_S = 0.5


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    bootstrap_servers: str
    properties: dict[str, str]
    topic: str = "_schemas"
    replication_factor: int = -1
    group: str = "schema-registry"
    compatibility: str = "BACKWARD"
    session_timeout_ms: int = 10_000


class RegistryService:
    """`start`, then `run` until cancelled, then `stop`."""

    def __init__(self, network: Network, clock: Clock, settings: RegistrySettings) -> None:
        self._settings = settings
        self._clock = clock

        def client() -> ClusterClient:
            return ClusterClient(network, settings.bootstrap_servers, settings.properties)

        # A broker answers a connection's requests in turn: a fetch or a rebalance that waits would hold up
        # the writes behind it.
        self._reading, self._writing, self._membership = client(), client(), client()
        self._store = Store()
        self.rules = Rules(self._store, settings.compatibility)
        self._reader = TopicReader(self._reading, settings.topic, self._apply)
        self._writer: TopicWriter | None = None
        self._election: Election | None = None
        self._identity: Identity | None = None
        self._one_write = asyncio.Lock()
        self._taking_over: asyncio.Task[None] | None = None
        self.leader: Identity | None = None
        self.cluster_id = ""
        self._changed = asyncio.Condition()
        self._is_ready = asyncio.Event()

    @property
    def group(self) -> str:
        return self._settings.group

    @property
    def is_chosen(self) -> bool:
        """Whether the group wants this registry to lead, be it ready or not."""
        return self.leader == self._identity

    @property
    def is_leader(self) -> bool:
        return self._writer is not None

    async def start(self) -> None:
        """KafkaError, ClusterUnreachable or ValueError where this cannot work."""
        self.cluster_id = (await self._reading.cluster()).cluster_id or ""
        await ensure_topic(self._writing, self._settings.topic, self._settings.replication_factor)

    async def run(self, identity: Identity) -> None:
        """For ever. All that is in the topic is read before this registry stands for election."""
        self._identity = identity
        self._election = Election(
            self._membership,
            self._settings.group,
            identity,
            self._settings.session_timeout_ms,
            self._on_leader,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reader.run())
            await self._reader.catch_up()
            self._is_ready.set()
            tasks.create_task(self._election.run())

    async def wait_until_ready(self) -> None:
        """Until this registry knows all that was in the topic when it started, and who leads."""
        await self._is_ready.wait()
        async with self._changed:
            await self._changed.wait_for(self._knows_leader)

    def _knows_leader(self) -> bool:
        return self.is_leader or (self.leader is not None and self.leader != self._identity)

    async def stop(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
        if self._election is not None:
            try:
                async with asyncio.timeout(2):
                    await self._election.leave()
            except TROUBLE as error:
                _log.warning("the group %s could not be left: %s", self._settings.group, error)
        for client in (self._reading, self._writing, self._membership):
            client.close()

    # What requests do

    async def read(self, ask: Callable[[Rules], T]) -> T:
        """What is not found by a follower may be on its way: it is looked for again at the topic's end."""
        await self._is_ready.wait()
        try:
            return await asyncio.to_thread(ask, self.rules)
        except RegistryError as error:
            if error.status != 404 or self.is_leader:
                raise
        await self.catch_up()
        return await asyncio.to_thread(ask, self.rules)

    async def read_known(self, decide: Callable[[Rules], Outcome]) -> Any:
        """The answer to a command that changes nothing; None for one that has to be written."""
        await self._is_ready.wait()
        try:
            outcome = await asyncio.to_thread(decide, self.rules)
        except RegistryError:
            # The leader may know more.
            return None
        return None if outcome.changes else outcome.answer

    async def catch_up(self) -> None:
        async with asyncio.timeout(_WRITE_TIMEOUT_S):
            await self._reader.catch_up()

    async def wait_until(self, offset: int) -> None:
        """Until this registry has read what another one wrote before this offset."""
        async with asyncio.timeout(_WRITE_TIMEOUT_S):
            await self._reader.wait_until(offset)

    async def write(self, decide: Callable[[Rules], Outcome]) -> tuple[Any, int]:
        """The answer, and where the topic goes on after what was written. NotLeader where another writes."""
        async with self._one_write:
            writer = self._writer
            if writer is None:
                raise NotLeader
            outcome = await asyncio.to_thread(decide, self.rules)
            if not outcome.changes:
                return outcome.answer, self._reader.position
            try:
                async with asyncio.timeout(_WRITE_TIMEOUT_S):
                    written = await writer.write(outcome.changes)
                    return outcome.answer, await self._reader.wait_for_batch_of(written)
            except TooLarge:
                raise errors.schema_too_large() from None
            except BaseException as error:
                # Whether it is in the topic is known to who reads it next, after shutting this writer out.
                self._doubt(error)
                raise

    async def wait_for_change_of_leader(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait()
        except TimeoutError:
            return

    async def while_it_leads(self, url: str, asked: Coroutine[Any, Any, T]) -> T:
        """What the leader answers. ForwardingFailed where another one leads by then: this one may be gone."""
        answer = asyncio.ensure_future(asked)
        try:
            while not answer.done():
                if self.leader is None or self.leader.url != url:
                    raise ForwardingFailed(url, TimeoutError("another registry leads now"), was_sent=True)
                await asyncio.wait((answer,), timeout=_LOOK_AT_LEADER_S)
            return answer.result()
        finally:
            answer.cancel()

    # Leading

    def _on_leader(self, leader: Identity | None) -> None:
        if leader != self.leader:
            _log.info("%s leads the registries of %s", leader.url if leader else "nobody", self.group)
        self.leader = leader
        if leader != self._identity:
            self._give_up()
        elif self._writer is None and (self._taking_over is None or self._taking_over.done()):
            self._taking_over = asyncio.get_running_loop().create_task(self._take_over())
        self._tell()

    async def _take_over(self) -> None:
        settings = self._settings
        transactional_id = f"{settings.group}-{settings.topic}"
        writer = TopicWriter(self._writing, settings.topic, transactional_id, self._clock)
        try:
            await writer.take_over()
            await self._reader.catch_up()
        except TROUBLE as error:
            self._doubt(error)
            return
        self._writer = writer
        _log.info("this registry leads: it has read %s up to %d", settings.topic, self._reader.position)
        self._tell()

    def _give_up(self) -> None:
        if self._taking_over is not None:
            self._taking_over.cancel()
            self._taking_over = None
        self._writer = None

    def _doubt(self, error: BaseException) -> None:
        _log.warning("this registry stops writing until the group says who leads: %r", error)
        self._writer = None
        assert self._election is not None
        self._election.rejoin()

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._changed:
                self._changed.notify_all()

        self._telling = asyncio.get_running_loop().create_task(tell())

    def _apply(self, record: Record) -> None:
        try:
            change = decode(record)
            if change is not None:
                self._store.apply(change)
        except Exception as error:
            # Whoever may write to the topic may write anything: no record ends the registry.
            _log.error(
                "%s: the record at offset %d is left out: %s", self._settings.topic, record.offset, error
            )
