"""A cluster as tools see it: ask any broker anything, one request at a time, without asyncio in sight.

Versions are agreed with each broker, so the same calls work against Ottla and Apache Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from ottla import __version__
from ottla.cli.errors import Refused, ToolError, check
from ottla.cli.properties import read_properties
from ottla.client.peer import AuthenticationFailed, Peer, PeerLost
from ottla.client.security import Security, SecurityError, security_from_properties
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode, UnsupportedVersion

T = TypeVar("T")

# Defaults of the admin client's settings with these names.
CONNECT_TIMEOUT_MS = 10_000  # socket.connection.setup.timeout.ms
API_TIMEOUT_MS = 60_000  # default.api.timeout.ms
RETRY_BACKOFF_S = 0.1

GROUP = 0
TRANSACTION = 1
_WORTH_A_RETRY = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
}


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


class Admin:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], client_id: str) -> None:
        self._security = _security(properties)
        self._bootstrap = addresses(bootstrap)
        self._client_id = properties.get("client.id", client_id)
        self._connect_timeout_s = (
            _integer(properties, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS) / 1000
        )
        self.api_timeout_ms = _integer(properties, "default.api.timeout.ms", API_TIMEOUT_MS)
        self._runner = asyncio.Runner()
        self._peers: dict[tuple[str, int], Peer] = {}
        self._nodes: dict[int, Node] = {}

    def ask(
        self,
        api: ApiKey,
        values: Mapping[str, Any] | None = None,
        *,
        node: int | None = None,
        version_max: int | None = None,
    ) -> Any:
        """The answer of one broker, any if `node` is None."""
        return self._within(api, self.peer(node).ask(api, values, version_max=version_max))

    def serves(self, api: ApiKey) -> bool:
        return api in self.peer().versions

    def peer(self, node: int | None = None) -> Peer:
        if node is None:
            return self._any_peer()
        known = self._nodes.get(node) or self.nodes().get(node)
        if known is None:
            raise ToolError(f"broker {node} is not part of the cluster; brokers are {sorted(self._nodes)}")
        return self._connect([(known.host, known.port)])

    def nodes(self) -> dict[int, Node]:
        """The brokers by id, in order."""
        answer = self.ask(ApiKey.METADATA, {"topics": []})
        brokers = sorted(answer.brokers, key=lambda broker: broker.node_id)
        self._nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in brokers
        }
        return self._nodes

    def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """The broker that looks after a group or a transactional id."""

        def find() -> int:
            answer = self.ask(ApiKey.FIND_COORDINATOR, {"key_type": key_type, "coordinator_keys": [key]})
            found = answer.coordinators[0]
            check(found.error_code, found.error_message, f"coordinator of {key}")
            self._nodes[found.node_id] = Node(found.node_id, found.host, found.port)
            return int(found.node_id)

        return self.retried(find)

    def retried(self, attempt: Callable[[], T]) -> T:
        """Again while a coordinator is being found, loaded or busy, for as long as a request may take."""
        deadline = time.monotonic() + self.api_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except Refused as error:
                if error.code not in _WORTH_A_RETRY or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_BACKOFF_S)

    def close(self) -> None:
        with self._runner:
            for peer in self._peers.values():
                peer.close()

    def _within(self, api: ApiKey, request: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(self.api_timeout_ms / 1000):
                return await request

        try:
            return self._runner.run(bounded())
        except TimeoutError:
            seconds = self.api_timeout_ms / 1000
            where = ",".join(peer.address for peer in self._peers.values())
            raise ToolError(f"{where}: no answer to {api.name} within {seconds:g} s") from None
        except PeerLost as error:
            raise ToolError(str(error)) from None
        except UnsupportedVersion as error:
            raise Refused(error.code, error.message) from None

    def _any_peer(self) -> Peer:
        for peer in self._peers.values():
            if not peer.is_lost:
                return peer
        return self._connect(self._bootstrap)

    def _connect(self, targets: list[tuple[str, int]]) -> Peer:
        for target in targets:
            if (peer := self._peers.get(target)) is not None and not peer.is_lost:
                return peer
        target, peer = self._runner.run(self._reach(targets))
        self._peers[target] = peer
        return peer

    async def _reach(self, targets: list[tuple[str, int]]) -> tuple[tuple[str, int], Peer]:
        """The first that answers. A broker that has just been started may need another attempt."""
        reason = "no answer"
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                while True:
                    for target in targets:
                        try:
                            return target, await self._open(*target)
                        except ssl.SSLError as error:
                            # Another attempt would end the same way.
                            address = f"{target[0]}:{target[1]}"
                            raise ToolError(f"{address}: TLS failed: {error.reason or error}") from None
                        except OSError as error:
                            reason = os.strerror(error.errno) if error.errno else str(error)
                    await asyncio.sleep(RETRY_BACKOFF_S)
        except TimeoutError:
            where = ",".join(f"{host}:{port}" for host, port in targets)
            raise ToolError(
                f"cannot reach {where}: {reason} (tried for {self._connect_timeout_s:g} s)"
            ) from None
        except AuthenticationFailed as error:
            raise ToolError(str(error)) from None
        except PeerLost as error:
            raise ToolError(f"{error}; is security.protocol the one of that listener?") from None

    async def _open(self, host: str, port: int) -> Peer:
        return await Peer.connect(
            AsyncioNetwork(),
            host,
            port,
            client_id=self._client_id,
            software_version=__version__,
            security=self._security,
        )


@contextmanager
def cluster(given: argparse.Namespace, properties: Mapping[str, str] | None = None) -> Iterator[Admin]:
    """The cluster that `--bootstrap-server` and `--command-config` of a tool name."""
    if properties is None:
        properties = read_properties(given.command_config) if given.command_config else {}
    controllers = getattr(given, "bootstrap_controller", None)
    if (given.bootstrap_server is None) == (controllers is None):
        raise ToolError("give either --bootstrap-server or --bootstrap-controller")
    admin = Admin(given.bootstrap_server or controllers or "", properties, given.prog.replace(" ", "-"))
    try:
        yield admin
    finally:
        admin.close()


def addresses(text: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for part in text.split(","):
        host, colon, port = part.strip().rpartition(":")
        # Apache Kafka's listeners may stand in front: PLAINTEXT://host:port.
        host = host.rpartition("://")[2].removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ToolError(
                f"--bootstrap-server {text}: must be host:port, or several as host1:9091,host2:9092"
            )
        found.append((host, int(port)))
    return found


def _integer(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise ToolError(f"{name}={text}: must be a whole number of milliseconds")
    return int(text)


def _security(properties: Mapping[str, str]) -> Security:
    try:
        return security_from_properties(properties)
    except SecurityError as error:
        raise ToolError(str(error)) from None
