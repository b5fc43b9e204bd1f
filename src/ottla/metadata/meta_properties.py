"""`meta.properties`: which cluster and node a log directory belongs to, in Apache Kafka's format.

A directory without the file is new and is given one. Directories that disagree stop the start: data of
another cluster or node would otherwise be served, or deleted, as this one's. So does a new directory while
one that the node had is gone: most likely it is the mount point of a disk that is not mounted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import NamedTuple
from uuid import UUID

from ottla.config import parse_properties
from ottla.metadata.uuids import RESERVED_MAX, parse_uuid, random_uuid, uuid_text
from ottla.runtime.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "meta.properties"
VERSION = "1"
_RESTORE = (
    "restore the file from a backup, or copy that of another directory of this node and give it the "
    "directory.id that this directory had"
)


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
    # Where ZooKeeper was used, Apache Kafka at first wrote none.
    version = values.get("version", "0" if "broker.id" in values else "")
    if not version.isdecimal():
        raise MetaPropertiesError(f"{path}: has no version, the file may be damaged; {_RESTORE}")
    if version != VERSION:
        raise MetaPropertiesError(
            f"{path}: version={version} is not supported, only {VERSION}; "
            "directories of ZooKeeper-based clusters must be migrated first"
        )
    for key in ("cluster.id", "node.id", "directory.id"):
        if not values.get(key):
            raise MetaPropertiesError(f"{path}: {key} is missing, the file may be damaged; {_RESTORE}")
    try:
        node_id = int(values["node.id"])
        directory_id = parse_uuid(values["directory.id"])
    except ValueError as error:
        raise MetaPropertiesError(f"{path}: {error}, the file may be damaged; {_RESTORE}") from error
    if directory_id.int <= RESERVED_MAX:
        raise MetaPropertiesError(f"{path}: directory.id={values['directory.id']} is a reserved id")
    return MetaProperties(values["cluster.id"], node_id, directory_id)


class Directories(NamedTuple):
    """By path: those that have their properties, and those that are to be given them."""

    formatted: dict[str, MetaProperties]
    new: dict[str, MetaProperties]

    def of(self, path: str) -> MetaProperties:
        return self.formatted[path] if path in self.formatted else self.new[path]

    def check_formatted(self) -> None:
        """Of a node that is one of several: alone it could only draw an id of a cluster of its own."""
        if not self.formatted:
            raise MetaPropertiesError(
                f"{', '.join(self.new)}: has no {FILE_NAME}, and this node is one of several, which must all "
                "have the id of their cluster: kafka-storage format --cluster-id ID --config FILE. The ID of "
                "a cluster that is there already says kafka-cluster cluster-id --bootstrap-server HOST:PORT; "
                "for a new one kafka-storage random-uuid draws it, the same for every node"
            )

    def write_new(self, disk: Disk) -> dict[str, MetaProperties]:
        """The properties of all directories, which all have them then."""
        for log_dir, properties in self.new.items():
            disk.replace_file(f"{log_dir}/{FILE_NAME}", properties.to_text().encode())
        return self.formatted | self.new

    def check_known(self, known: Collection[UUID], failed: int = 0) -> None:
        """`known` are the directory ids that the node had when it last ran; `failed` are so many directories
        that are there and cannot be read."""
        present = {properties.directory_id for properties in self.formatted.values()}
        missing = sorted(uuid_text(each) for each in known if each.int > RESERVED_MAX and each not in present)
        if len(missing) <= failed:
            return
        if self.new:
            new = ", ".join(self.new)
            cluster_id = next((each.cluster_id for each in self.formatted.values()), "ID")
            raise MetaPropertiesError(
                f"{new}: has no {FILE_NAME}, while this node had a directory (directory.id="
                f"{', '.join(missing)}) that is not there now; is its disk mounted? Mount it, or restore its "
                f"{FILE_NAME}. To give up what was in it, remove it from log.dirs, or format the new one: "
                f"kafka-storage format --cluster-id {cluster_id} --config FILE --ignore-formatted"
            )
        log.warning(
            "this node had a directory (directory.id=%s) that is not among log.dirs now: partitions that "
            "were in it are fetched from their other replicas, and those without any begin empty. If that is "
            "not on purpose, stop the broker and add the directory again",
            ", ".join(missing),
        )


def prepare(
    disk: Disk, random: Random, log_dirs: Sequence[str], node_id: int, cluster_id: str | None = None
) -> dict[str, MetaProperties]:
    """As `examine`; new directories are written."""
    return examine(disk, random, log_dirs, node_id, cluster_id).write_new(disk)


def examine(
    disk: Disk,
    random: Random,
    log_dirs: Sequence[str],
    node_id: int,
    cluster_id: str | None = None,
    *,
    on_error: Callable[[str, OSError], None] | None = None,
) -> Directories:
    """The properties of each directory, all of one cluster and this node; new ones have none on disk yet.

    `cluster_id` is what to expect, or what to give a new cluster; without it one is drawn. `on_error` is told
    of a directory that cannot be read; if it does not raise, the directory is left out.
    """
    found: dict[str, MetaProperties] = {}
    unreadable = set()
    for log_dir in log_dirs:
        try:
            make_dir(disk, log_dir)
            properties = load(disk, log_dir)
        except OSError as error:
            if on_error is None:
                raise
            on_error(log_dir, error)
            unreadable.add(log_dir)
            continue
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
    new = {
        log_dir: MetaProperties(expected, node_id, random_uuid(random))
        for log_dir in log_dirs
        if log_dir not in found and log_dir not in unreadable
    }
    return Directories(found, new)


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
