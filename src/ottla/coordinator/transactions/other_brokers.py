"""Asking other brokers of the cluster, over connections that are made when they are first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.metadata.change import MetadataChange
from ottla.metadata.image import BrokerImage, MetadataImage
from ottla.metadata.records import Endpoint
from ottla.runtime.net import Network
from ottla.wire.api import ApiKey
from ottla.wire.errors import NetworkException

if TYPE_CHECKING:
    from ottla.client.connections import Connections


class AskBroker(Protocol):
    """Raises NetworkException where there is no answer: the broker may have acted, or not."""

    async def __call__(self, broker_id: int, api_key: ApiKey, values: Mapping[str, Any]) -> Any: ...


class OtherBrokers:
    def __init__(
        self,
        network: Network,
        image: Callable[[], MetadataImage],
        *,
        listener: str,
        properties: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        """`listener` is the one that brokers use between themselves, `properties` say how they reach it."""
        self._network = network
        self._image = image
        self._listener = listener
        self._properties = properties
        self._timeout_s = timeout_s
        self._connections: Connections | None = None
        self._limits: dict[int, set[asyncio.Timeout]] = {}
        """Of requests under way, by broker."""

    def apply(self, change: MetadataChange) -> None:
        """Whoever waits for a broker that is fenced now, or lives anew, waits no longer.

        One that has lost power or hangs does not end its connections: only the cluster can tell.
        """
        if not self._limits or change.after.brokers is change.before.brokers:
            return
        now = asyncio.get_running_loop().time()
        for broker_id, limits in self._limits.items():
            before, after = change.before.brokers.get(broker_id), change.after.brokers.get(broker_id)
            if before is not after and (after is None or after.fenced or not _same_life(before, after)):
                for limit in limits:
                    if not limit.expired():
                        limit.reschedule(now)

    async def ask(self, broker_id: int, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
        """As `AskBroker`."""
        # Late, because a broker that has nobody to ask need not load what asks.
        from ottla.client.connections import Connections
        from ottla.client.errors import ClusterUnreachable
        from ottla.client.peer import PeerLost

        endpoint, epoch = self._endpoint(broker_id)
        if self._connections is None:
            self._connections = Connections(
                self._network, self._properties, connect_timeout_s=self._timeout_s
            )
        peer = None
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                self._limits.setdefault(broker_id, set()).add(limit)
                peer = await self._connections.peer(endpoint.host, endpoint.port)
                return await peer.ask(api_key, values)
        except TimeoutError as error:
            if peer is not None:
                self._connections.drop(peer)
            # Raises, and says why, where it is the cluster that has given the broker up.
            _, epoch_now = self._endpoint(broker_id)
            how_long = f"within {self._timeout_s:g} s" if epoch_now == epoch else "before it was started anew"
            raise NetworkException(
                f"broker {broker_id} at {endpoint.host}:{endpoint.port} did not answer {how_long}"
            ) from error
        except (PeerLost, ClusterUnreachable, OSError) as error:
            raise NetworkException(f"broker {broker_id} cannot be asked: {error}") from error
        finally:
            self._let_go(broker_id, limit)

    def _let_go(self, broker_id: int, limit: asyncio.Timeout) -> None:
        limits = self._limits.get(broker_id, set())
        limits.discard(limit)
        if not limits:
            self._limits.pop(broker_id, None)

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    def _endpoint(self, broker_id: int) -> tuple[Endpoint, int]:
        """Where to ask it, and its epoch."""
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            raise NetworkException(f"the cluster has no broker {broker_id}")
        if broker.fenced:
            raise NetworkException(f"broker {broker_id} is fenced: the controller does not hear of it")
        for endpoint in broker.endpoints:
            if endpoint.name == self._listener:
                return endpoint, broker.epoch
        raise NetworkException(
            f"broker {broker_id} has no listener {self._listener} for other brokers; set "
            "inter.broker.listener.name alike on all of them"
        )


def _same_life(before: BrokerImage | None, after: BrokerImage) -> bool:
    return before is not None and before.epoch == after.epoch and before.endpoints == after.endpoints
