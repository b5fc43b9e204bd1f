"""The way from a broker to the active controller, whichever node that is at the moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import Peer, PeerLost
from ottla.runtime import Runtime
from ottla.runtime.seldom import Seldom
from ottla.wire.api import ApiKey
from ottla.wire.envelopes import pack_host, pack_principal, unpack_answer
from ottla.wire.errors import ErrorCode, NotController, UnsupportedVersion

log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS = 2.0
RETRY_SECONDS = 0.05
"""Between two tries; an election takes several of them."""

LOOK_SECONDS = 0.25
"""How often whoever waits for an answer looks whether that node still leads."""

FindController: TypeAlias = Callable[[], tuple[str, int] | None]
"""Where the leader of the quorum listens to other nodes; None while nobody leads, or this node does."""


class ControllerChannel:
    """Answers on one connection come in order: requests that are in a hurry get a channel of their own."""

    def __init__(
        self, runtime: Runtime, find: FindController, properties: Mapping[str, str], *, timeout_s: float
    ) -> None:
        """`properties` are a client's: what it is called, and how controllers are reached."""
        self._find = find
        self._timeout_s = timeout_s
        self._connections = Connections(runtime.net, properties, CONNECT_SECONDS)
        self._seldom = Seldom(runtime.clock)
        self._answered: tuple[tuple[str, int], Peer] | None = None
        """Who answered last."""

    @property
    def timeout_ms(self) -> int:
        """How long a request and the search for somebody to take it may last."""
        return int(self._timeout_s * 1000)

    @property
    def is_in_touch(self) -> bool:
        """Whoever answered last leads as of now, and is still connected; or there is nobody to ask."""
        if self._answered is None:
            return self._find() is None
        address, peer = self._answered
        return not peer.is_lost and self._find() == address

    def close(self) -> None:
        self._connections.close()

    async def ask(self, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
        """The active controller's answer, whoever that is by then. NotController if nobody could be asked."""

        async def once(peer: Peer) -> Any:
            answer = await peer.ask(api_key, values)
            return None if _is_not_controller(answer) else answer

        return await self._try(once)

    async def forward(
        self, request: bytes, principal: str, host: str, flexible: bool, *, is_by_token: bool = False
    ) -> memoryview:
        """The body of the answer to a client's request, given with its header.

        It is asked again where no answer came, as in Apache Kafka, so that it may be carried out twice.
        `flexible` says what the answer's header is. Raises NotController as `ask` does, and
        UnsupportedVersion if the controller does not take such requests.
        """
        values = {
            "request_data": request,
            "request_principal": pack_principal(principal, is_by_token=is_by_token),
            "client_host_address": pack_host(host),
        }

        async def once(peer: Peer) -> memoryview | None:
            answer = await peer.ask(ApiKey.ENVELOPE, values)
            match answer.error_code:
                case ErrorCode.none:
                    return unpack_answer(answer.response_data, flexible)
                case ErrorCode.not_controller:
                    return None
                case refusal:
                    raise UnsupportedVersion(
                        f"the active controller, {peer.address}, does not take the request: "
                        f"{refusal.name.upper()}"
                    )

        try:
            return await self._try(once)
        except NotController as refusal:
            if self._seldom.is_due():
                log.warning("a request of %s at %s is refused: %s", principal, host, refusal)
            raise

    async def _try(self, once: Callable[[Peer], Awaitable[T | None]]) -> T:
        reason = "nobody leads the metadata quorum"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        while True:
            address = self._find()
            if address is not None:
                try:
                    peer = await self._connections.peer(*address)
                    answer = await self._answer(once(peer), peer, address, deadline)
                    if answer is not None:
                        self._answered = (address, peer)
                        return answer
                    reason = f"{peer.address} is not the active controller"
                except (ClusterUnreachable, PeerLost, OSError) as error:
                    reason = str(error)
            if loop.time() + RETRY_SECONDS >= deadline:
                raise NotController(f"the active controller cannot be asked: {reason}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _answer(
        self, asking: Awaitable[T | None], peer: Peer, address: tuple[str, int], deadline: float
    ) -> T | None:
        """None once another is to be asked: a node that stands still does not say that it leads no more."""
        asked = asyncio.ensure_future(asking)
        try:
            while True:
                left_s = deadline - asyncio.get_running_loop().time()
                await asyncio.wait([asked], timeout=min(LOOK_SECONDS, max(left_s, 0)))
                if asked.done():
                    return await asked
                if left_s <= 0:
                    self._connections.drop(peer)
                    raise PeerLost(f"{peer.address}: no answer in {self._timeout_s:g} s")
                if self._find() != address:
                    self._connections.drop(peer)
                    return None
        finally:
            asked.cancel()


def _is_not_controller(answer: Any) -> bool:
    """CreateTopics has no code of its own, but one for each topic."""
    coded = [answer] if hasattr(answer, "error_code") else answer.topics
    return any(each.error_code is ErrorCode.not_controller for each in coded)
