"""The other members of the quorum: where they are, and asking them."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ottla.raft.messages import Request, Response
from ottla.raft.settings import FIRST_BOOTSTRAP_ID, QuorumSettings
from ottla.raft.voters import KRaftVersions, Listener, Voter, VoterSet
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom

if TYPE_CHECKING:
    from ottla.raft.peer_connections import PeerConnections

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
        self._network = runtime.net
        self._made: PeerConnections | None = None

    @property
    def _connections(self) -> PeerConnections:
        if self._made is None:
            # Late, because a node that is alone need not load what asks others.
            from ottla.raft.peer_connections import PeerConnections

            properties = {
                **self._settings.to_controllers,
                "client.id": f"raft-client-{self._settings.me.id}",
            }
            self._made = PeerConnections(self._network, properties, self._request_s)
        return self._made

    def prepare(self) -> None:
        """SecurityError where the settings do not say how to reach others."""
        assert self._connections is not None

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
        return await self._connections.kraft_versions(listener)

    async def ask(self, node_id: int, request: Request) -> Response | NoAnswer:
        address = self.address(node_id)
        if address is None:
            return NoAnswer.THIS_TIME
        answer = await self._connections.ask(address, request, self._settings, self.learn)
        if not isinstance(answer, str):
            return answer
        self._complain(node_id, address, request, answer)
        return NoAnswer.NOBODY_LISTENS if answer == _REFUSED else NoAnswer.THIS_TIME

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
        if self._made is not None:
            self._made.close()
