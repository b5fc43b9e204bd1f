"""Asking other brokers of the cluster, over connections that are made when they are first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ottla.metadata.image import MetadataImage
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
        client_id: str,
        timeout_s: float,
    ) -> None:
        """`listener` is the one that brokers use between themselves."""
        self._network = network
        self._image = image
        self._listener = listener
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connections: Connections | None = None

    async def ask(self, broker_id: int, api_key: ApiKey, values: Mapping[str, Any]) -> Any:
        """As `AskBroker`."""
        # Late, because a broker that has nobody to ask need not load what asks.
        from ottla.client.connections import Connections
        from ottla.client.errors import ClusterUnreachable
        from ottla.client.peer import PeerLost

        endpoint = self._endpoint(broker_id)
        if self._connections is None:
            self._connections = Connections(
                self._network, {"client.id": self._client_id}, connect_timeout_s=self._timeout_s
            )
        peer = None
        try:
            async with asyncio.timeout(self._timeout_s):
                peer = await self._connections.peer(endpoint.host, endpoint.port)
                return await peer.ask(api_key, values)
        except TimeoutError as error:
            if peer is not None:
                self._connections.drop(peer)
            raise NetworkException(
                f"broker {broker_id} at {endpoint.host}:{endpoint.port} did not answer within "
                f"{self._timeout_s:g} s"
            ) from error
        except (PeerLost, ClusterUnreachable, OSError) as error:
            raise NetworkException(f"broker {broker_id} cannot be asked: {error}") from error

    def close(self) -> None:
        if self._connections is not None:
            self._connections.close()

    def _endpoint(self, broker_id: int) -> Endpoint:
        broker = self._image().brokers.get(broker_id)
        if broker is None:
            raise NetworkException(f"the cluster has no broker {broker_id}")
        for endpoint in broker.endpoints:
            if endpoint.name == self._listener:
                return endpoint
        raise NetworkException(
            f"broker {broker_id} has no listener {self._listener} for other brokers; set "
            "inter.broker.listener.name alike on all of them"
        )
