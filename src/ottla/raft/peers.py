"""The other members of the quorum: where they are, and the connections to them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import Peer, PeerLost
from ottla.metadata.features import KRAFT_VERSION
from ottla.raft.asking import RefusedByPeer, ask
from ottla.raft.messages import FetchRequest, FetchSnapshotRequest, Request, Response
from ottla.raft.settings import FIRST_BOOTSTRAP_ID, QuorumSettings
from ottla.raft.voters import KRaftVersions, Listener, Voter, VoterSet
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.wire.errors import KafkaError

logger = logging.getLogger(__name__)


_REFUSED = os.strerror(errno.ECONNREFUSED)


class NoAnswer(Enum):
    THIS_TIME = "this time"
    """Or none that can be used."""
    NOBODY_LISTENS = "nobody listens"


class _Learned(NamedTuple):
    address: tuple[str, int]
    instead_of: tuple[str, int] | None
    """What log or configuration said then; what they say later is newer."""


class Peers:
    def __init__(self, runtime: Runtime, settings: QuorumSettings, voters: Callable[[], VoterSet]) -> None:
        self._settings = settings
        self._voters = voters
        self._request_s = settings.timeouts.request / 1000
        self._learned: dict[int, _Learned] = {}
        self._clock = runtime.clock
        self._seldom: dict[int, Seldom] = {}
        properties = {**settings.to_controllers, "client.id": f"raft-client-{settings.me.id}"}
        # Answers come in the order of requests: a vote must not wait behind a fetch that waits for records.
        self._fetching = Connections(runtime.net, properties, self._request_s)
        self._others = Connections(runtime.net, properties, self._request_s)

    def learn(self, node_id: int, host: str, port: int) -> None:
        """Where a leader says, or is said, to listen."""
        self._learned[node_id] = _Learned((host, port), self._named(node_id))

    def address(self, node_id: int) -> tuple[str, int] | None:
        if node_id <= FIRST_BOOTSTRAP_ID:
            return self._settings.bootstrap[FIRST_BOOTSTRAP_ID - node_id]
        named, learned = self._named(node_id), self._learned.get(node_id)
        if learned is None or learned.instead_of != named or (named and named == self.configured(node_id)):
            return named
        # The log may say where it was before it moved, until this node has fetched the rest from there.
        return learned.address

    def _named(self, node_id: int) -> tuple[str, int] | None:
        """As the log has it, or else the configuration."""
        return self._place(self._voters().get(node_id)) or self.configured(node_id)

    def configured(self, node_id: int) -> tuple[str, int] | None:
        """What an administrator has written down: nodes may know themselves by names that others do not."""
        return self._place(self._settings.voters.get(node_id))

    def _place(self, voter: Voter | None) -> tuple[str, int] | None:
        listener = None if voter is None else self._choose(voter.listeners)
        return None if listener is None else (listener.host, listener.port)

    def _choose(self, listeners: tuple[Listener, ...]) -> Listener | None:
        return self.listener(listeners) or next(iter(listeners), None)

    def listener(self, listeners: Sequence[Listener]) -> Listener | None:
        """The one by which members of the quorum reach each other."""
        named = (each for each in listeners if each.name.upper() == self._settings.listener)
        return next(named, None)

    async def kraft_versions(self, listener: Listener) -> KRaftVersions | None:
        """What a node supports; None where it does not answer."""
        try:
            async with asyncio.timeout(self._request_s):
                peer = await self._others.peer(listener.host, listener.port)
        except (TimeoutError, ClusterUnreachable, PeerLost, KafkaError, OSError):
            return None
        for feature in peer.api_versions.supported_features:
            if feature.name == KRAFT_VERSION:
                return KRaftVersions(feature.min_version, feature.max_version)
        return KRaftVersions()

    async def ask(self, node_id: int, request: Request) -> Response | NoAnswer:
        address = self.address(node_id)
        if address is None:
            return NoAnswer.THIS_TIME
        is_fetch = isinstance(request, FetchRequest | FetchSnapshotRequest)
        connections = self._fetching if is_fetch else self._others
        peer: Peer | None = None
        try:
            async with asyncio.timeout(self._request_s):
                peer = await connections.peer(*address)
                return await ask(peer, request, self._settings, self.learn)
        except TimeoutError:
            if peer is not None:
                connections.drop(peer)
            reason = "no answer in time"
        except ClusterUnreachable as error:
            reason = next(iter(error.failures.values()), str(error))
        except (PeerLost, RefusedByPeer, KafkaError, OSError) as error:
            reason = str(error)
        self._complain(node_id, address, request, reason)
        return NoAnswer.NOBODY_LISTENS if reason == _REFUSED else NoAnswer.THIS_TIME

    def _complain(self, node_id: int, address: tuple[str, int], request: Request, reason: str) -> None:
        seldom = self._seldom.get(node_id)
        if seldom is None:
            seldom = self._seldom[node_id] = Seldom(self._clock)
        if seldom.is_due():
            logger.warning(
                "the metadata quorum: %s to node %s at %s:%d failed: %s; tried again",
                type(request).__name__,
                node_id if node_id >= 0 else "(bootstrap)",
                *address,
                reason,
            )

    def close(self) -> None:
        self._fetching.close()
        self._others.close()
