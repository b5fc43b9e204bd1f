"""The connections to other members of the quorum. A node that is alone does not load any of this."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ottla.client.connections import Connections
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import Peer, PeerLost
from ottla.metadata.features import KRAFT_VERSION
from ottla.raft.asking import Learn, RefusedByPeer, ask
from ottla.raft.messages import FetchRequest, FetchSnapshotRequest, Request, Response
from ottla.raft.settings import QuorumSettings
from ottla.raft.voters import KRaftVersions, Listener
from ottla.runtime.net import Network
from ottla.wire.errors import KafkaError


class PeerConnections:
    def __init__(self, network: Network, properties: Mapping[str, str], request_s: float) -> None:
        self._request_s = request_s
        # Answers come in the order of requests: a vote must not wait behind a fetch that waits for records.
        self._fetching = Connections(network, properties, request_s)
        self._others = Connections(network, properties, request_s)

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

    async def ask(
        self, address: tuple[str, int], request: Request, settings: QuorumSettings, learn: Learn
    ) -> Response | str:
        """A text says why there is no answer."""
        is_fetch = isinstance(request, FetchRequest | FetchSnapshotRequest)
        connections = self._fetching if is_fetch else self._others
        peer: Peer | None = None
        try:
            async with asyncio.timeout(self._request_s):
                peer = await connections.peer(*address)
                return await ask(peer, request, settings, learn)
        except TimeoutError:
            if peer is not None:
                connections.drop(peer)
            return "no answer in time"
        except ClusterUnreachable as error:
            return next(iter(error.failures.values()), str(error))
        except (PeerLost, RefusedByPeer, KafkaError, OSError) as error:
            return str(error)

    def close(self) -> None:
        self._fetching.close()
        self._others.close()
