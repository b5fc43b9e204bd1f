"""The directories of several brokers of one machine: of the same cluster, each with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from ottla.config.local_cluster import LocalNode, local_properties, properties_text
from ottla.metadata.meta_properties import FILE_NAME, MetaPropertiesError, load, make_dir, prepare
from ottla.metadata.uuids import random_uuid, uuid_text
from ottla.runtime.disk import Disk

_COMMENT = (
    "Written anew by every `ottla start --brokers`: give it settings with --set or a file of your own. "
    "`ottla start` with this file runs this broker alone."
)


def lay_out(
    disk: Disk,
    random: Random,
    directory: str,
    nodes: Sequence[LocalNode],
    rack: str,
    given: Mapping[str, str],
) -> str:
    """The cluster's id. MetaPropertiesError where the directory is another's, or has other brokers."""
    if disk.exists(f"{directory}/{FILE_NAME}"):
        raise MetaPropertiesError(
            f"{directory}: has the data of a single broker; choose another --data-dir for several"
        )
    texts = {
        node: properties_text(local_properties(node, nodes, rack, given), _COMMENT).encode() for node in nodes
    }
    found = _formatted(disk, directory)
    if found and len(found) != len(nodes):
        raise MetaPropertiesError(
            f"{directory}: has {len(found)} brokers, which vote with each other: their number cannot be "
            f"changed like this; say --brokers {len(found)}, or choose another --data-dir"
        )
    cluster_id = next(iter(found.values()), None) or uuid_text(random_uuid(random))
    for node, text in texts.items():
        make_dir(disk, node.directory)
        # There may be passwords among the settings.
        disk.replace_file(node.properties_file, text, private=True)
        prepare(disk, random, [node.data_dir], node.id, cluster_id)
    return cluster_id


def check_of_one_broker(disk: Disk, directory: str) -> None:
    """MetaPropertiesError where several brokers have their directories in it."""
    if found := _formatted(disk, directory):
        raise MetaPropertiesError(
            f"{directory}: has the data of {len(found)} brokers; say --brokers {len(found)}, or run one of "
            f"them: ottla start {directory}/broker-1/server.properties"
        )


def _formatted(disk: Disk, directory: str) -> dict[int, str]:
    """Cluster ids of the brokers that have been started here before."""
    found: dict[int, str] = {}
    number = 1
    while disk.exists(f"{directory}/broker-{number}"):
        properties = load(disk, f"{directory}/broker-{number}/data")
        if properties is not None:
            found[number] = properties.cluster_id
        number += 1
    return found
