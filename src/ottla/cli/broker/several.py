"""`ottla start --brokers N`: a cluster on one machine, each broker a process, with one command."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from ottla import __version__
from ottla.cli.broker import pid_file
from ottla.cli.broker.console_beside import check_console, console_beside
from ottla.cli.broker.settings import given_properties
from ottla.cli.broker.stop_signals import ignore_from_now_on, stop_signals
from ottla.cli.broker.supervisor import Command, FailedToStart, Supervisor, tell
from ottla.client.admin.quorum import quorum_leader
from ottla.client.admin.topics import list_topics
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterUnreachable
from ottla.client.peer import PeerLost, PeerUnusable
from ottla.config import BrokerConfig, ConfigError
from ottla.config.local_cluster import HOST, LocalNode, local_nodes, local_properties
from ottla.log.names import LOCK_FILE
from ottla.metadata.local_directories import lay_out
from ottla.metadata.meta_properties import MetaPropertiesError, make_dir
from ottla.runtime.disk import DiskLocked, PosixDisk
from ottla.runtime.net import AsyncioNetwork, free_ports
from ottla.wire.errors import KafkaError

_DIRECTORY = "ottla-data"
_PORT = 9092
_PORT_MAX = 65535
_NAMES_MAX = 6


def serve_several(
    brokers: int,
    properties_file: str | None,
    port: int | None,
    data_dir: str | None,
    rack: str | None,
    settings: Sequence[str],
    log_level: str,
    console_port: int | None,
) -> int:
    """The status to exit with."""
    began = time.monotonic()
    directory = os.path.abspath(data_dir or _DIRECTORY)
    disk = PosixDisk()
    with ExitStack() as stack:
        try:
            given = given_properties(properties_file, settings)
            nodes = _nodes(brokers, _PORT if port is None else port, directory)
            rack = rack or socket.gethostname()
            configs = [
                BrokerConfig.from_properties(local_properties(node, nodes, rack, given)) for node in nodes
            ]
            if console_port is not None:
                check_console(configs[0])
            make_dir(disk, directory)
            stack.callback(disk.lock(f"{directory}/{LOCK_FILE}").release)
            cluster_id = lay_out(disk, random.SystemRandom(), directory, nodes, rack, given)
        except DiskLocked:
            return _fail(f"{directory}: in use by another process; stop it or choose another --data-dir")
        except (ConfigError, MetaPropertiesError) as error:
            return _fail(str(error))
        except OSError as error:
            return _fail(f"{error.filename}: {error.strerror}")
        pid_file.write(directory)
        stack.callback(pid_file.remove, directory)
        announcement = _Announcement(nodes, directory, cluster_id, configs[0].to_brokers, began)
        status = asyncio.run(_serve(announcement, log_level, console_port))
    ignore_from_now_on()
    return status


def _nodes(brokers: int, port: int, directory: str) -> list[LocalNode]:
    if port == 0:
        ports = free_ports(HOST, 2 * brokers)
        return local_nodes(directory, ports[:brokers], ports[brokers:])
    last = port + 2 * brokers - 1
    if last > _PORT_MAX:
        raise ConfigError(f"--port {port}: {brokers} brokers need the ports up to {last}; choose a lower one")
    return local_nodes(directory, range(port, port + brokers), range(port + brokers, last + 1))


class _Announcement(NamedTuple):
    nodes: Sequence[LocalNode]
    directory: str
    cluster_id: str
    to_brokers: Mapping[str, str]
    began: float


async def _serve(announcement: _Announcement, log_level: str, console_port: int | None) -> int:
    nodes = announcement.nodes
    argv = [sys.executable, "-m", "ottla.cli.main", "start", "--log-level", log_level]
    supervisor = Supervisor([Command(node.id, [*argv, node.properties_file]) for node in nodes], _say)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, supervisor.stop)
    announcing = asyncio.ensure_future(_announce(supervisor, announcement))
    try:
        async with console_beside(console_port, ",".join(node.address for node in nodes)):
            await supervisor.run()
    except FailedToStart as error:
        return _fail(str(error))
    finally:
        announcing.cancel()
        await asyncio.gather(announcing, return_exceptions=True)
    return 0


async def _announce(supervisor: Supervisor, announcement: _Announcement) -> None:
    nodes, directory, cluster_id, to_brokers, began = announcement
    await supervisor.wait_ready()
    addresses = ",".join(node.address for node in nodes)
    seconds = time.monotonic() - began
    lines = [
        f"Ottla {__version__}",
        f"Ready: {addresses} in {seconds:.2f} s",
        f"Data: {directory}, each broker's settings in broker-*/server.properties",
    ]
    try:
        async with ClusterClient(AsyncioNetwork(), addresses, to_brokers) as cluster:
            controller = await quorum_leader(cluster)
            led: dict[int, list[str]] = {node.id: [] for node in nodes}
            for topic in (await list_topics(cluster)).values():
                for partition in topic.partitions:
                    led.setdefault(partition.leader, []).append(f"{topic.name}-{partition.number}")
    except (KafkaError, ClusterUnreachable, PeerLost, PeerUnusable) as error:
        _say(f"cannot tell who leads what: {error}")
        controller, led = -1, {}
    lines.append(f"Cluster: {cluster_id}" + (f", its controller is broker {controller}" if led else ""))
    processes = supervisor.processes
    for node in nodes:
        process = f"process {processes[node.id]}" if node.id in processes else "not running"
        leads = f", leads {_partitions(led[node.id])}" if node.id in led else ""
        lines.append(f"Broker {node.id}: {node.address}, {process}{leads}")
    if led.get(-1):
        lines.append(f"Nobody leads {_partitions(led[-1])}")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _partitions(names: Sequence[str]) -> str:
    """`no partition`, or some of them by name and how many there are."""
    if not names:
        return "no partition"
    count = f"{len(names)} partition{'s' if len(names) > 1 else ''}"
    rest = ", …" if len(names) > _NAMES_MAX else ""
    return f"{count} ({', '.join(names[:_NAMES_MAX])}{rest})"


def _say(text: str) -> None:
    tell(f"ottla: {text}")


def _fail(message: str) -> int:
    _say(message)
    return 1
