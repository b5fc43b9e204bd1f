"""What a controller's directory is given before its first start: the snapshot that a quorum begins with.

As Apache Kafka writes it: `00000000000000000000-0000000000.checkpoint`, with the level of `kraft.version`,
the first voters where they are known, and the features of a new cluster. It is never sent to others; the
first leader writes all of it into the log.
"""

from __future__ import annotations

import re

from ottla.log.types import METADATA_PARTITION
from ottla.metadata.control import kraft_version_record, voters_record
from ottla.metadata.features import new_cluster_records
from ottla.metadata.image import MetadataImage
from ottla.metadata.meta_properties import make_dir
from ottla.metadata.snapshot import write_snapshot
from ottla.metadata.uuids import RESERVED_MAX, parse_uuid
from ottla.raft.voters import SUPPORTED, Listener, ReplicaKey, Voter, VoterSet, record_of
from ottla.runtime.disk import Disk

_VOTER = re.compile(r"(?P<id>\d+)@(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d+):(?P<directory>.+)")


def parse_initial_voters(text: str, listener: str) -> VoterSet:
    """`id@host:port:directory-id`, separated by commas. Raises ValueError."""
    voters: dict[int, Voter] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _VOTER.fullmatch(part)
        if found is None or int(found["port"]) > 65535:
            raise ValueError(f"{part!r} is not id@host:port:directory-id")
        key = ReplicaKey(int(found["id"]), parse_uuid(found["directory"]))
        if key.directory_id is None or key.directory_id.int <= RESERVED_MAX:
            raise ValueError(f"{part!r} has a directory id that is reserved")
        if key.id in voters:
            raise ValueError(f"Node id {key.id} was specified more than once.")
        endpoint = Listener(listener, found["v6"] or found["host"], int(found["port"]))
        voters[key.id] = Voter(key, (endpoint,), SUPPORTED)
    if not voters:
        raise ValueError("No voters given.")
    return VoterSet(voters.values())


def write_bootstrap_snapshot(
    disk: Disk, metadata_log_dir: str, kraft_version: int, voters: VoterSet, now_ms: int
) -> None:
    """`voters` are none where they come from the configuration, or are not known here."""
    directory = f"{metadata_log_dir}/{METADATA_PARTITION}"
    make_dir(disk, directory)
    quorum = [kraft_version_record(kraft_version, now_ms)] if kraft_version > 0 else []
    if len(voters):
        quorum.append(voters_record(record_of(voters), now_ms))
    image = MetadataImage().apply_all(new_cluster_records(), -1, 0)
    write_snapshot(disk, directory, image, quorum, last_timestamp_ms=now_ms, now_ms=now_ms)
