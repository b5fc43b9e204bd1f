"""`meta.properties`: which cluster and node a log directory belongs to, in Apache Kafka's format.

A directory without the file is new and is given one. Directories that disagree stop the start: data of
another cluster or node would otherwise be served, or deleted, as this one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

from ottla.config import parse_properties
from ottla.metadata.uuids import RESERVED_MAX, parse_uuid, random_uuid, uuid_text
from ottla.runtime.disk import Disk

FILE_NAME = "meta.properties"
VERSION = "1"


class MetaPropertiesError(Exception):
    """A log directory that this node must not use. The text names the file and the remedy."""


class MetaProperties(NamedTuple):
    cluster_id: str
    node_id: int
    directory_id: UUID

    def to_text(self) -> str:
        return (
            f"cluster.id={self.cluster_id}\ndirectory.id={uuid_text(self.directory_id)}\n"
            f"node.id={self.node_id}\nversion={VERSION}\n"
        )


def load(disk: Disk, log_dir: str) -> MetaProperties | None:
    path = f"{log_dir}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    values = parse_properties(disk.read_file(path).decode("utf-8", "replace"))
    version = values.get("version", "0")
    if version != VERSION:
        raise MetaPropertiesError(
            f"{path}: version={version} is not supported, only {VERSION}; "
            "directories of ZooKeeper-based clusters must be migrated first"
        )
    for key in ("cluster.id", "node.id", "directory.id"):
        if not values.get(key):
            raise MetaPropertiesError(f"{path}: {key} is missing; restore the file from a backup")
    try:
        node_id = int(values["node.id"])
        directory_id = parse_uuid(values["directory.id"])
    except ValueError as error:
        raise MetaPropertiesError(f"{path}: {error}; restore the file from a backup") from error
    if directory_id.int <= RESERVED_MAX:
        raise MetaPropertiesError(f"{path}: directory.id={values['directory.id']} is a reserved id")
    return MetaProperties(values["cluster.id"], node_id, directory_id)


def prepare(
    disk: Disk, random: Random, log_dirs: Sequence[str], node_id: int, cluster_id: str | None = None
) -> dict[str, MetaProperties]:
    """The properties of each directory, all of one cluster and this node; new directories are written.

    `cluster_id` is what to expect, or what to give a new cluster; without it one is drawn.
    """
    found: dict[str, MetaProperties] = {}
    for log_dir in log_dirs:
        make_dir(disk, log_dir)
        properties = load(disk, log_dir)
        if properties is not None:
            found[log_dir] = properties
    expected = cluster_id
    by_directory_id: dict[UUID, str] = {}
    for log_dir, properties in found.items():
        path = f"{log_dir}/{FILE_NAME}"
        expected = expected or properties.cluster_id
        if properties.cluster_id != expected:
            raise MetaPropertiesError(
                f"{path}: cluster.id={properties.cluster_id}, expected {expected}; "
                "the directory belongs to another cluster"
            )
        if properties.node_id != node_id:
            raise MetaPropertiesError(
                f"{path}: node.id={properties.node_id}, but this node is configured as {node_id}; "
                "set node.id to match, or use other log directories for a new node"
            )
        other = by_directory_id.setdefault(properties.directory_id, log_dir)
        if other != log_dir:
            raise MetaPropertiesError(
                f"{path}: directory.id={uuid_text(properties.directory_id)} is also that of {other}; "
                "one was copied from the other"
            )
    expected = expected or uuid_text(random_uuid(random))
    for log_dir in log_dirs:
        if log_dir not in found:
            properties = MetaProperties(expected, node_id, random_uuid(random))
            disk.replace_file(f"{log_dir}/{FILE_NAME}", properties.to_text().encode())
            found[log_dir] = properties
    return found


def make_dir(disk: Disk, path: str) -> None:
    """So that it is still there after a power cut: a new directory is only on disk once its parent is."""
    parents = []
    while not disk.exists(path):
        parent = path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        parents.append((parent, path))
        path = parent
    for parent, child in reversed(parents):
        disk.make_dirs(child)
        disk.sync_dir(parent)
