"""When snapshots of the metadata log are taken, and when they and the log before them are removed.

As in Apache Kafka: one for every so many bytes of records, and the oldest go once log and snapshots together
pass the retention size. The newest stays whatever its size.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ottla.config import BrokerConfig
from ottla.log.log import PartitionLog
from ottla.metadata.image import MetadataImage
from ottla.metadata.snapshot import (
    Snapshot,
    SnapshotDamaged,
    SnapshotId,
    list_snapshots,
    parse_snapshot,
    read_snapshot,
    remove_leftovers,
    write_snapshot,
)
from ottla.raft.metadata_log import QuorumError
from ottla.records.records import Record
from ottla.runtime import Runtime
from ottla.runtime.tasks import finished
from ottla.wire.errors import StorageError

logger = logging.getLogger(__name__)

DAMAGED_SUFFIX = ".damaged"


class SnapshotPolicy(NamedTuple):
    bytes_between: int
    """Of records since the last snapshot, before the next one is taken."""
    retention_bytes: int
    """Of log and snapshots together. Negative for no limit."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> SnapshotPolicy:
        return cls(
            bytes_between=config.integer("metadata.log.max.record.bytes.between.snapshots"),
            retention_bytes=config.integer("metadata.max.retention.bytes"),
        )


class Snapshots:
    def __init__(self, runtime: Runtime, log: PartitionLog, policy: SnapshotPolicy) -> None:
        self._runtime = runtime
        self._log = log
        self._policy = policy
        self._log_bytes = 0
        """Appended since the last snapshot."""
        remove_leftovers(runtime.disk, log.dir)
        self._ids = list_snapshots(runtime.disk, log.dir)

    def newest(self) -> SnapshotId | None:
        return self._ids[-1] if self._ids else None

    def oldest(self) -> SnapshotId | None:
        """Of those that the log goes on from. Older ones are left where it has begun anew with a leader's, or
        where a crash came before they were removed."""
        return next((each for each in self._ids if each.offset >= self._log.start_offset), None)

    def _look_again(self) -> None:
        self._ids = list_snapshots(self._runtime.disk, self._log.dir)

    def load_newest(self) -> Snapshot | None:
        """Of those that are whole and that the log goes on from; None where the log has everything.

        Newer ones, which are damaged, are set aside: nothing is lost without them.
        """
        damaged: dict[SnapshotId, SnapshotDamaged] = {}
        for identity in reversed(list_snapshots(self._runtime.disk, self._log.dir)):
            if damaged and identity.offset < self._log.start_offset:
                break
            try:
                snapshot = read_snapshot(self._runtime.disk, self._log.dir, identity)
            except SnapshotDamaged as error:
                damaged[identity] = error
                continue
            self._set_aside(damaged, f"the snapshot {identity.file_name} and the log after it")
            return snapshot
        if not damaged:
            return None
        # One at offset 0 is what the cluster began with, which no log has.
        if self._log.start_offset > 0 or min(damaged).offset == 0:
            raise QuorumError(
                f"{damaged[max(damaged)]}; no older snapshot is whole and has the log after it. Restore the "
                f"file, or all of {self._log.dir}, from a backup"
            )
        self._set_aside(damaged, "the log alone")
        return None

    def _set_aside(self, damaged: Mapping[SnapshotId, SnapshotDamaged], instead: str) -> None:
        for identity, error in damaged.items():
            path = f"{self._log.dir}/{identity.file_name}"
            self._runtime.disk.rename(path, path + DAMAGED_SUFFIX)
            logger.error(
                "%s. It is set aside as %s%s, and the metadata is read from %s instead. Nothing is lost, but "
                "check the disk",
                error,
                identity.file_name,
                DAMAGED_SUFFIX,
                instead,
            )
        self._look_again()

    def count_appended(self, size_bytes: int) -> None:
        self._log_bytes += size_bytes

    @property
    def due(self) -> bool:
        return self._log_bytes >= self._policy.bytes_between

    async def take(self, image: MetadataImage, quorum: Sequence[Record], last_timestamp_ms: int) -> None:
        """Off the event loop: an image of many partitions takes a while to encode."""
        self._log_bytes = 0
        try:
            await self._runtime.offload.run(
                write_snapshot,
                self._runtime.disk,
                self._log.dir,
                image,
                quorum,
                last_timestamp_ms=last_timestamp_ms,
                now_ms=self._runtime.clock.now_ms(),
            )
            self._look_again()
            self._remove_old()
        except (OSError, StorageError) as error:
            # The log still has everything; the next attempt comes after as many bytes again.
            logger.error(
                "%s: no snapshot at offset %d, or old ones not removed: %s; tried again after %d more bytes",
                self._log.dir,
                image.offset,
                error,
                self._policy.bytes_between,
            )

    async def install(self, identity: SnapshotId, data: bytes) -> Snapshot:
        """One that the leader has. Raises SnapshotDamaged; blocks until it is on the medium."""
        path = f"{self._log.dir}/{identity.file_name}"
        snapshot = await self._runtime.offload.run(parse_snapshot, data, path, identity)
        await finished(self._runtime.offload.run(self._runtime.disk.replace_file, path, data))
        self._look_again()
        self._log_bytes = 0
        return snapshot

    def read(self, identity: SnapshotId, position: int, bytes_max: int) -> tuple[int, bytes] | None:
        """Its size, and what is there from a position on; None where there is no such snapshot."""
        if identity not in self._ids:
            return None
        file = self._runtime.disk.open(f"{self._log.dir}/{identity.file_name}")
        try:
            return file.size, bytes(file.read(position, min(bytes_max, max(file.size - position, 0))))
        finally:
            file.close()

    def _remove_old(self) -> None:
        if self._policy.retention_bytes < 0:
            return
        snapshots = list_snapshots(self._runtime.disk, self._log.dir)
        sizes = {identity: self._size_bytes(identity) for identity in snapshots}
        for oldest, following in pairwise(snapshots):
            if self._log.size_bytes + sum(sizes.values()) <= self._policy.retention_bytes:
                return
            if following.offset > self._log.next_offset:
                # One of the leader's that is being installed: the log is about to begin anew with it.
                return
            # First the start of the log, then the file: a crash in between leaves a file too many.
            self._log.delete_records_before(following.offset)
            self._log.enforce_retention(self._runtime.clock.now_ms())
            self._runtime.disk.remove(f"{self._log.dir}/{oldest.file_name}")
            remove_leftovers(self._runtime.disk, self._log.dir)
            del sizes[oldest]
            self._look_again()

    def _size_bytes(self, identity: SnapshotId) -> int:
        file = self._runtime.disk.open(f"{self._log.dir}/{identity.file_name}")
        try:
            return file.size
        finally:
            file.close()
