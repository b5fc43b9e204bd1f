"""The end of the metadata log that is not known to be committed yet, decoded and ready to be published."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ottla.log.log import PartitionLog
from ottla.metadata.publisher import CommittedBatch, MetadataPublisher
from ottla.metadata.records import MetadataRecord, decode_record
from ottla.metadata.snapshot import Snapshot
from ottla.raft.metadata_log import QuorumError
from ottla.raft.replica_log import ReplicaLog
from ottla.raft.snapshots import Snapshots
from ottla.records.batch import crc_matches, iter_headers
from ottla.records.records import iter_records

READ_BYTES_MAX = 8 * 1024 * 1024


class Uncommitted:
    """What control batches say of the quorum counts from the moment that they are in the log, and so is told
    to the `ReplicaLog` at once; everything else is published once it is committed."""

    def __init__(
        self, log: PartitionLog, replica: ReplicaLog, snapshots: Snapshots, publisher: MetadataPublisher
    ) -> None:
        self._log = log
        self._replica = replica
        self._snapshots = snapshots
        self._publisher = publisher
        self._batches: deque[CommittedBatch] = deque()
        self._published_upto = -1
        self.last_timestamp_ms = 0

    def __iter__(self) -> Iterator[CommittedBatch]:
        return iter(self._batches)

    def begin_with(self, snapshot: Snapshot) -> None:
        """Instead of everything that came before."""
        offset = snapshot.image.offset
        self._batches.clear()
        self._replica.begin_with(snapshot.quorum, offset)
        self.last_timestamp_ms = snapshot.last_timestamp_ms
        self._published_upto = offset
        self._publisher.on_snapshot(snapshot.image)

    def read_from(self, offset: int) -> None:
        """What the log has, at a start."""
        end = self._log.next_offset
        while offset < end:
            data = bytes(self._log.read(offset, READ_BYTES_MAX, upto=end))
            last_offset = self.follow(data, offset)
            if last_offset < offset:
                raise QuorumError(
                    f"{self._log.dir}: there is no batch with offset {offset}, the log ends at {end}; "
                    "restore the log from a backup"
                )
            offset = last_offset + 1

    def follow(self, data: bytes, offset: int) -> int:
        """Batches at the end of the log, from an offset on. The last offset of them; before it where there
        are none."""
        last_offset = offset - 1
        for at, header in iter_headers(data):
            batch = data[at : at + header.size]
            if header.last_offset < offset:
                continue
            if not crc_matches(batch, header.crc):
                raise QuorumError(
                    f"{self._log.dir}: the batch at offset {header.base_offset} does not match its "
                    "checksum; restore the log from a backup"
                )
            records = list(iter_records(batch))
            if header.is_control:
                self._replica.follow(records)
            decoded = [] if header.is_control else [decode_record(each.value or b"") for each in records]
            self._add(CommittedBatch(header.last_offset, header.leader_epoch, decoded), header.size)
            self.last_timestamp_ms = header.max_timestamp
            last_offset = header.last_offset
        return last_offset

    def append(
        self, batch: bytes, decoded: Sequence[MetadataRecord] | None, epoch: int, timestamp_ms: int
    ) -> None:
        """What a leader has just appended. `decoded` is None for a control batch."""
        if decoded is None:
            self._replica.follow(iter_records(batch))
        self._add(CommittedBatch(self._log.next_offset - 1, epoch, decoded or ()), len(batch))
        self.last_timestamp_ms = timestamp_ms

    def _add(self, batch: CommittedBatch, size_bytes: int) -> None:
        self._batches.append(batch)
        self._snapshots.count_appended(size_bytes)

    def forget_from(self, offset: int) -> None:
        """The log was cut off there."""
        self._replica.forget_from(offset)
        while self._batches and self._batches[-1].last_offset >= offset:
            self._batches.pop()

    def publish(self, high_watermark: int) -> None:
        committed = []
        while self._batches and self._batches[0].last_offset < high_watermark:
            batch = self._batches.popleft()
            # Records for which there was no room are followed a second time.
            if batch.last_offset > self._published_upto:
                committed.append(batch)
                self._published_upto = batch.last_offset
        self._publisher.on_commit(committed)
