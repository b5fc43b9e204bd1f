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
from ottla.config.local_cluster import HOST, LocalNode, local_nodes
from ottla.metadata.local_directories import lay_out
from ottla.runtime.disk import PosixDisk
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.testing.process import BrokerProcess
from ottla.testing.settings import SettingValue, cluster_properties, setting_text

T = TypeVar("T")

_RACK = "test"
_POLL_SECONDS = 0.05


class ClusterBroker(BrokerProcess):
    """One of the brokers: `kill9`, `pause`, `resume`, `stop`, `start` and `restart` it as any other."""

    def __init__(self, node: LocalNode, log_level: str, settings: Mapping[str, SettingValue]) -> None:
        super().__init__(data_dir=node.data_dir, port=node.port, log_level=log_level)
        self.id = node.id
        self.settings = settings
        """Its own, which win over those of all; from its next start on, if they are changed."""
        self._properties_file = node.properties_file

    def _arguments(self) -> list[str]:
        own = (("--set", f"{name}={setting_text(value)}") for name, value in self.settings.items())
        return [self._properties_file, *(argument for pair in own for argument in pair)]


class BrokerCluster:
    """`with BrokerCluster() as cluster:` three brokers, by their ids from 1 on.

    `settings` are for all of them, by their names in `server.properties`; `own_settings` for one, by its id:
    `{1: {"broker.rack": "north"}}`. Topics have a replica on each of
    three brokers and take writes while two of them live, unless the settings say something else.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        brokers: int = 3,
        data_dir: str | None = None,
        log_level: str = "info",
        own_settings: Mapping[int, Mapping[str, SettingValue]] | None = None,
    ) -> None:
        self._own_dir = None if data_dir is not None else tempfile.mkdtemp(prefix="ottla-cluster-")
        self.data_dir = data_dir or self._own_dir or ""
        ports = free_ports(HOST, 2 * brokers)
        nodes = local_nodes(self.data_dir, ports[:brokers], ports[brokers:])
        self.cluster_id = lay_out(
            PosixDisk(), random.SystemRandom(), self.data_dir, nodes, _RACK, cluster_properties(settings)
        )
        own = own_settings or {}
        self.brokers = {node.id: ClusterBroker(node, log_level, own.get(node.id, {})) for node in nodes}

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

        async def ask() -> T:
            async with ClusterClient(AsyncioNetwork(), self.bootstrap_servers) as cluster:
                return await question(cluster)

        return asyncio.run(ask())
