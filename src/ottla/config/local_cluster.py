"""Settings of several brokers on one machine: each is broker and controller, and a file says so.

The files are all there is to it: a node that is started with its own, by whomever, is part of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from posixpath import splitext
from typing import NamedTuple

from ottla.config.key import ConfigError

HOST = "127.0.0.1"
BROKERS_MAX = 9
_REPLICAS_MAX = 3
_FILE = "server.properties"
# What tells the nodes apart, and where they find each other.
_OWN = (
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
)
_OWN_IF_RELAYED = ("inter.broker.listener.name", "listener.security.protocol.map")


class Relayed(NamedTuple):
    """Ports of a node that others reach through something in between."""

    port: int
    """Of its listener for other brokers."""
    seen_port: int
    """Where others believe that one to be."""
    seen_controller_port: int


class LocalNode(NamedTuple):
    id: int
    directory: str
    port: int
    controller_port: int
    relayed: Relayed | None = None

    @property
    def voter(self) -> str:
        port = self.controller_port if self.relayed is None else self.relayed.seen_controller_port
        return f"{self.id}@{HOST}:{port}"

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data_dir(self) -> str:
        return f"{self.directory}/data"

    @property
    def properties_file(self) -> str:
        return f"{self.directory}/{_FILE}"


def local_nodes(directory: str, ports: Sequence[int], controller_ports: Sequence[int]) -> list[LocalNode]:
    return [
        LocalNode(number, f"{directory}/broker-{number}", port, controller_port)
        for number, (port, controller_port) in enumerate(zip(ports, controller_ports, strict=True), 1)
    ]


def local_properties(
    node: LocalNode, nodes: Sequence[LocalNode], rack: str, given: Mapping[str, str]
) -> dict[str, str]:
    """The settings of one of the nodes. `given` are the user's own and win over what suits so many nodes."""
    for name in _OWN if node.relayed is None else (*_OWN, *_OWN_IF_RELAYED):
        if name in given:
            remedy = "use --rack" if name == "broker.rack" else "remove it"
            raise ConfigError(f"{name}={given[name]}: of several brokers each is given its own; {remedy}")
    replicas = str(min(len(nodes), _REPLICAS_MAX))
    # One broker may be down without anybody noticing, and no acknowledged record is its alone.
    in_sync = "2" if len(nodes) >= _REPLICAS_MAX else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        **given,
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "broker.rack": rack,
        "listeners": f"{_listener(given)}://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(each.voter for each in nodes),
        "log.dirs": node.data_dir,
        **_kept_apart(node, given),
        **({} if node.relayed is None else _relayed_properties(node, node.relayed)),
    }


def _kept_apart(node: LocalNode, given: Mapping[str, str]) -> dict[str, str]:
    """What is given once and only one process can have: the others take the ports after it, or own files."""
    own = {}
    host, _, port = given.get("ottla.metrics.listener", "").rpartition(":")
    if port.isdecimal() and int(port):
        own["ottla.metrics.listener"] = f"{host}:{int(port) + node.id - 1}"
    if audit_log := given.get("ottla.audit.log"):
        stem, extension = splitext(audit_log)
        own["ottla.audit.log"] = f"{stem}-{node.id}{extension}"
    return own


def _relayed_properties(node: LocalNode, relayed: Relayed) -> dict[str, str]:
    clients = f"PLAINTEXT://{node.address}"
    return {
        "listeners": f"{clients},BROKERS://{HOST}:{relayed.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"{clients},BROKERS://{HOST}:{relayed.seen_port}",
        "inter.broker.listener.name": "BROKERS",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }


def _listener(given: Mapping[str, str]) -> str:
    """One for clients and for the brokers among themselves."""
    return given.get("inter.broker.listener.name") or given.get("security.inter.broker.protocol", "PLAINTEXT")


def properties_text(properties: Mapping[str, str], comment: str) -> str:
    """As `parse_properties` reads it."""
    lines = (f"{_escaped(name, ' =:')}={_escaped(value, '')}" for name, value in properties.items())
    return "\n".join((f"# {comment}", *lines)) + "\n"


def _escaped(text: str, separators: str) -> str:
    for character in ("\\", *separators):
        text = text.replace(character, f"\\{character}")
    blanks = len(text) - len(text.lstrip(" "))
    return "\\ " * blanks + text[blanks:].replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
