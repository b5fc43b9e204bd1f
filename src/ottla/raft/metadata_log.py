"""Opening `__cluster_metadata-0`, the log of the metadata quorum.

How much of it is surely on disk is known from the newest snapshot and from the quorum state, which records
where the log ended at the last start and at the last shutdown in good order. What lies beyond may be the torn
end of a crash and is cut at the first bad batch; damage before that is never cut, it stops the start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from ottla.config import BrokerConfig, LogConfig
from ottla.log.log import PartitionLog
from ottla.log.names import LOG_SUFFIX, partition_in_name
from ottla.log.recovery import DamagedLog, open_log
from ottla.log.types import METADATA_PARTITION
from ottla.metadata.snapshot import list_snapshots
from ottla.metadata.uuids import METADATA_TOPIC_ID
from ottla.raft.quorum_state import QuorumState, load_quorum_state
from ottla.raft.room import Room
from ottla.raft.settings import QuorumSettings
from ottla.runtime import Disk, Runtime

SNAPSHOT_SUFFIX = ".checkpoint"

# Of the values of one batch, which is written and committed as a whole.
BATCH_BYTES_MAX = 8 * 1024 * 1024


class QuorumError(Exception):
    """The metadata on disk cannot be used by this node. The text names the remedy."""


def check_metadata_is_there(disk: Disk, config: BrokerConfig) -> None:
    """Without metadata every log would be a stray. Most likely a disk is not mounted.

    Who is no controller may have lost it with a power cut, since it need not sync it, and is told all of it.
    """
    if "controller" not in config.strings("process.roles"):
        return
    directory = f"{config.metadata_log_dir}/{METADATA_PARTITION}"
    names = disk.list_dir(directory) if disk.exists(directory) else ()
    if any(_holds_metadata(disk, f"{directory}/{name}") for name in names):
        return
    for path in config.log_dirs:
        names = disk.list_dir(path) if disk.exists(path) else ()
        found = [name for name in names if (tp := partition_in_name(name)) and tp != METADATA_PARTITION]
        if found:
            raise QuorumError(
                f"{path} holds {len(found)} partitions, such as {found[0]}, but {directory} holds no "
                f"metadata of the cluster. Is the disk of {config.metadata_log_dir} mounted? Mount it, "
                "correct metadata.log.dir, or restore the directory from a backup. To give up what is there "
                "and begin a new cluster, move the partitions away"
            )


def _holds_metadata(disk: Disk, path: str) -> bool:
    if path.endswith(LOG_SUFFIX):
        with contextlib.closing(disk.open(path)) as file:
            return file.size > 0
    return path.endswith(SNAPSHOT_SUFFIX)


def open_metadata_log(runtime: Runtime, config: BrokerConfig, *, clean: bool = False) -> PartitionLog:
    """`clean` says that the node was shut down in good order, so that the log need not be scanned."""
    directory = f"{config.metadata_log_dir}/{METADATA_PARTITION}"
    runtime.disk.make_dirs(directory)
    state = load_quorum_state(runtime.disk, directory) or QuorumState()
    snapshots = list_snapshots(runtime.disk, directory)
    snapshot_offset = snapshots[-1].offset if snapshots else 0
    synced_offset = state.synced_offset
    if QuorumSettings.from_config(config).is_sole and state.kraft_version == 0:
        # Others take snapshots of their leader, and those that never vote sync nothing before they take one.
        synced_offset = max(synced_offset, snapshot_offset)
    try:
        log = open_log(
            runtime,
            directory,
            METADATA_PARTITION,
            _log_config(config),
            clean=clean,
            recovery_point=synced_offset,
            topic_id=METADATA_TOPIC_ID,
            refuse_damage=True,
        )
    except DamagedLog as error:
        raise QuorumError(
            f"{directory}: {error}. All before offset {synced_offset} was on disk; the file is left as it "
            "is: check the disk, repair the bytes or restore the directory from a backup"
        ) from error
    if log.next_offset < synced_offset:
        log.release()
        raise QuorumError(
            f"{directory}: the log ends at offset {log.next_offset}, but {synced_offset} was on disk before; "
            "restore the directory from a backup"
        )
    if log.next_offset < snapshot_offset:
        # A crash came before the log began anew, or took what the snapshot sums up.
        log.truncate_fully_and_start_at(snapshot_offset)
    return log


async def wait_opened(
    runtime: Runtime,
    config: BrokerConfig,
    *,
    clean: bool = False,
    on_wait: Callable[[], Awaitable[None]] | None = None,
) -> PartitionLog:
    """As `open_metadata_log`; what recovery after a crash writes waits for room on the disk."""

    async def opened() -> PartitionLog:
        return open_metadata_log(runtime, config, clean=clean)

    room = Room(runtime.clock, config.metadata_log_dir)
    room.on_wait = on_wait
    return await room.until_there_is(opened)


def _log_config(config: BrokerConfig) -> LogConfig:
    return LogConfig(
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
        # Nobody reads it while it runs.
        file_delete_delay_ms=0,
    )
