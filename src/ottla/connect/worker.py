"""A worker put together: state, herder and REST, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn

from ottla.client.admin.groups import committed_offsets
from ottla.client.admin.topics import NewTopic
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerUnusable
from ottla.config.listeners import ANY_HOST
from ottla.connect.errors import ConnectError
from ottla.connect.foreman import Foreman
from ottla.connect.herder import Herder
from ottla.connect.membership import Membership
from ottla.connect.plugins import Plugins, installed
from ottla.connect.rest.app import connect_app
from ottla.connect.state_log import LocalLog, TopicLog
from ottla.connect.worker_settings import WorkerSettings
from ottla.runtime.net import AsyncioNetwork
from ottla.wire.errors import KafkaError

_GROUP_S: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunningWorker:
    address: str
    herder: Herder


@asynccontextmanager
async def running_worker(
    settings: WorkerSettings,
    *,
    connectors: Sequence[dict[str, str]] = (),
    stands_alone: bool = False,
    plugins: Plugins | None = None,
) -> AsyncIterator[RunningWorker]:
    """Serves REST from here on; `connectors` are made if they are not there. Raises ConnectError.

    `stands_alone` keeps connectors and statuses in memory and offsets in a file, as connect-standalone does.
    """
    host, port = settings.address
    listening = _listen(host, port)
    address = _advertised(settings, host, listening.getsockname()[1])
    network = AsyncioNetwork()
    client = {"bootstrap.servers": settings.bootstrap_servers, **settings.client}
    async with ClusterClient(network, settings.bootstrap_servers, settings.client) as cluster:
        try:
            cluster_id = (await cluster.cluster()).cluster_id
        except (KafkaError, ClusterUnreachable, PeerUnusable) as error:
            listening.close()
            raise ConnectError(f"{settings.bootstrap_servers} cannot be reached: {error}") from error
        foreman = Foreman(settings, plugins or installed(), cluster, lambda: address)
        herder = Herder(foreman)
        log: TopicLog | LocalLog
        membership: Membership | None = None
        if stands_alone:
            kept = {settings["offset.storage.topic"]: settings["offset.storage.file.filename"]}
            log = LocalLog(foreman.topics, kept)
            await log.start()
        else:
            log = TopicLog(cluster, client, foreman.topics)
            await log.start(_topics(settings))
        server = uvicorn.Server(
            uvicorn.Config(
                connect_app(herder, lambda: cluster_id, lambda: address),
                log_level="warning",
                lifespan="off",
                timeout_graceful_shutdown=2,
            )
        )
        # Signals are the caller's.
        server.capture_signals = _no_signals  # type: ignore[method-assign,assignment]
        serving = asyncio.create_task(server.serve([listening]))
        try:
            if isinstance(log, TopicLog):
                topic = settings["offset.storage.topic"]
                slot_count = log.partition_count(topic)
                foreman.share(slot_count)
                membership = Membership(
                    client,
                    settings["group.id"],
                    topic,
                    foreman.gain,
                    lambda slots: foreman.lose(slots, slot_count),
                )
            await foreman.start(log)
            if membership is not None:
                await _wait_for_group(cluster, settings["group.id"])
                membership.start()
            for config in connectors:
                await herder.put_connector(config["name"], config, replace=True)
            yield RunningWorker(address, herder)
        finally:
            server.should_exit = True
            await serving
            await foreman.stop()
            if membership is not None:
                await asyncio.to_thread(membership.stop)
            await log.stop()


async def _wait_for_group(cluster: ClusterClient, group: str) -> None:
    """A new cluster's topic of groups takes a moment; a member that comes too early tries again after
    three seconds."""
    try:
        async with asyncio.timeout(_GROUP_S):
            await committed_offsets(cluster, group)
    except (KafkaError, ClusterUnreachable, PeerUnusable, TimeoutError) as error:
        _log.debug("the group %s is not known to be ready: %s", group, error)


class _no_signals:  # noqa: N801
    """In the place of a context manager that would take them."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


def _topics(settings: WorkerSettings) -> list[NewTopic]:
    compacted = {"cleanup.policy": "compact"}
    return [
        NewTopic(
            settings["config.storage.topic"], 1, settings["config.storage.replication.factor"], compacted
        ),
        *(
            NewTopic(
                settings[f"{name}.storage.topic"],
                settings[f"{name}.storage.partitions"],
                settings[f"{name}.storage.replication.factor"],
                compacted,
            )
            for name in ("offset", "status")
        ),
    ]


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=128)
    except OSError as error:
        raise ConnectError(f"listeners: {host}:{port} cannot be listened on: {error.strerror}") from error


def _advertised(settings: WorkerSettings, host: str, port: int) -> str:
    name = settings["rest.advertised.host.name"] or (socket.gethostname() if host in ANY_HOST else host)
    return f"{name}:{settings['rest.advertised.port'] or port}"
