"""Several brokers in processes of their own that replicate each other's partitions, and lose each other."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

from ottla.client.admin.quorum import quorum_leader
from ottla.client.cluster import ClusterClient
from ottla.config import BrokerConfig
from ottla.config.local_cluster import HOST, LocalNode, Relayed, local_nodes, local_properties
from ottla.metadata.local_directories import lay_out
from ottla.runtime.disk import PosixDisk
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.testing.links import Links, Relay
from ottla.testing.process import BrokerProcess
from ottla.testing.settings import SettingValue, cluster_properties, setting_text

T = TypeVar("T")

_RACK = "test"
_POLL_SECONDS = 0.05


class ClusterBroker(BrokerProcess):
    """One of the brokers: `kill9`, `pause`, `resume`, `stop`, `start` and `restart` it as any other."""

    def __init__(
        self,
        node: LocalNode,
        log_level: str,
        settings: Mapping[str, SettingValue],
        links: Links | None,
        survives_ctrl_c: bool = False,
    ) -> None:
        super().__init__(
            data_dir=node.data_dir, port=node.port, log_level=log_level, survives_ctrl_c=survives_ctrl_c
        )
        self.id = node.id
        self.settings = settings
        """Its own, which win over those of all; from its next start on, if they are changed."""
        self._node = node
        self._links = links

    def launch(self) -> None:
        super().launch()
        node, relayed = self._node, self._node.relayed
        if self._links is not None and relayed is not None:
            self._links.open(
                [
                    Relay(self.id, relayed.seen_port, relayed.port),
                    Relay(self.id, relayed.seen_controller_port, node.controller_port),
                ]
            )

    def isolate(self) -> None:
        """Cut it off from the other brokers, until `reconnect`; clients still reach it."""
        self._needed_links().isolate(self.id)

    def slow(self, seconds: float) -> None:
        """All that goes between it and the other brokers takes so much longer, each way."""
        self._needed_links().slow(self.id, seconds)

    def reconnect(self) -> None:
        """Neither isolated nor slow any more. What was on its way arrives."""
        self._needed_links().mend(self.id)

    @property
    def is_isolated(self) -> bool:
        return self._links is not None and self._links.is_isolated(self.id)

    def _needed_links(self) -> Links:
        if self._links is None:
            raise RuntimeError("the brokers of this cluster are connected directly: use relayed=True")
        return self._links

    def _arguments(self) -> list[str]:
        own = (("--set", f"{name}={setting_text(value)}") for name, value in self.settings.items())
        return [self._node.properties_file, *(argument for pair in own for argument in pair)]

    def _forget(self) -> None:
        super()._forget()
        if self._links is not None:
            self._links.close(self.id)


class BrokerCluster:
    """`with BrokerCluster() as cluster:` three brokers, by their ids from 1 on.

    `settings` are for all of them, by their names in `server.properties`; `own_settings` for one, by its id:
    `{1: {"broker.rack": "north"}}`. Topics have a replica on each of
    three brokers and take writes while two of them live, unless the settings say something else. With
    `relayed=False` they are connected directly, which is faster, but cannot be cut. `survives_ctrl_c` is
    that of each broker.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        brokers: int = 3,
        data_dir: str | None = None,
        log_level: str = "info",
        own_settings: Mapping[int, Mapping[str, SettingValue]] | None = None,
        relayed: bool = True,
        survives_ctrl_c: bool = False,
    ) -> None:
        self._own_dir = None if data_dir is not None else tempfile.mkdtemp(prefix="ottla-cluster-")
        self.data_dir = data_dir or self._own_dir or ""
        ports = free_ports(HOST, 5 * brokers)
        nodes = local_nodes(self.data_dir, ports[:brokers], ports[brokers : 2 * brokers])
        if relayed:
            relays = zip(*(ports[number * brokers :][:brokers] for number in (2, 3, 4)), strict=True)
            nodes = [
                node._replace(relayed=Relayed(*ports)) for node, ports in zip(nodes, relays, strict=True)
            ]
        self.cluster_id = lay_out(
            PosixDisk(), random.SystemRandom(), self.data_dir, nodes, _RACK, cluster_properties(settings)
        )
        own = own_settings or {}
        self._links = Links() if relayed else None
        self.brokers = {
            node.id: ClusterBroker(node, log_level, own.get(node.id, {}), self._links, survives_ctrl_c)
            for node in nodes
        }
        self._written = local_properties(nodes[0], nodes, _RACK, cluster_properties(settings))

    def _as_a_broker(self) -> Mapping[str, str]:
        """How brokers ask each other, which is open to nobody else where listeners are closed."""
        return BrokerConfig.from_properties(self._written).to_brokers

    @property
    def bootstrap_servers(self) -> str:
        """All of them, whether they are up or not."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def __getitem__(self, broker_id: int) -> ClusterBroker:
        return self.brokers[broker_id]

    def start(self) -> BrokerCluster:
        """Returns when clients can connect to all that were not running."""
        started = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_ready()
        return self

    def close(self) -> None:
        """End what still runs, and remove the data unless it is in a directory of the caller's."""
        with ExitStack() as stack:
            if self._own_dir is not None:
                stack.callback(shutil.rmtree, self._own_dir, ignore_errors=True)
            if self._links is not None:
                stack.callback(self._links.end)
            for broker in self.brokers.values():
                stack.callback(broker.close)

    def __enter__(self) -> BrokerCluster:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Who is who, as the brokers that are up say.

    def controller(self) -> ClusterBroker:
        """The one that leads the metadata quorum."""
        return self.brokers[self.ask(quorum_leader)]

    def leader(self, topic: str, partition: int = 0) -> ClusterBroker:
        async def ask(cluster: ClusterClient) -> int:
            return (await cluster.retried(lambda: cluster.partition(topic, partition))).leader

        return self.brokers[self.ask(ask)]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Ids of the brokers whose replicas are in sync."""

        async def ask(cluster: ClusterClient) -> set[int]:
            return {*(await cluster.retried(lambda: cluster.partition(topic, partition))).isr}

        return self.ask(ask)

    def wait_in_sync(self, topic: str, count: int, partition: int = 0, timeout_seconds: float = 30) -> None:
        """Until so many replicas are in sync."""
        deadline = time.monotonic() + timeout_seconds
        while len(found := self.in_sync(topic, partition)) != count:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"in sync on {topic}-{partition}: {sorted(found)} after {timeout_seconds} s"
                )
            time.sleep(_POLL_SECONDS)

    def ask(self, question: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """What a client of the brokers is told by those that are up."""
        # Others would not answer, or say what was true once.
        able = [
            broker.bootstrap_servers
            for broker in self.brokers.values()
            if broker.is_running and not broker.is_paused and not broker.is_isolated
        ]
        servers = ",".join(able) or self.bootstrap_servers

        async def asked() -> T:
            async with ClusterClient(AsyncioNetwork(), servers, self._as_a_broker()) as cluster:
                return await question(cluster)

        return asyncio.run(asked())
