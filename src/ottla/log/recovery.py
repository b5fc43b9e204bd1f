"""Opening a partition's directory, after a clean shutdown or a crash.

After a clean shutdown files are as they should be and only the last few kilobytes are looked at, to find the
end. After a crash, whatever lies beyond the recovery point may be torn: from the segment that holds it on,
every batch is checked and the log is cut at the first bad one. Batches below the recovery point are on disk
for certain, so a bad one there has rotted and takes nothing else with it: it stays where it is, and if its
header hides where the next begins, that one is looked for. Only where none is left is the log cut.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from uuid import UUID

from ottla.config import LogConfig
from ottla.log.checkpoints import encode_partition_metadata, read_partition_metadata
from ottla.log.epochs import LeaderEpochs, read_leader_epochs
from ottla.log.files import LogFiles, OnError
from ottla.log.log import PartitionLog
from ottla.log.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCHS_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_in_name,
    segment_path,
)
from ottla.log.producers import ProducerStates
from ottla.log.removal import DelayedRemoval
from ottla.log.replay import load_producers
from ottla.log.salvage import header_at, next_whole_batch
from ottla.log.segment import NEVER, RELATIVE_OFFSET_MAX, OpenSegments, Segment
from ottla.log.segments import Segments, new_segment
from ottla.log.snapshots import SnapshotFiles
from ottla.log.syncing import Unsynced
from ottla.log.txn_check import first_doubtful
from ottla.log.types import TopicPartition
from ottla.log.walk import BadBatch, checked_batches, headers
from ottla.records.batch import NO_TIMESTAMP, BatchHeader, crc_matches
from ottla.runtime import Runtime

log = logging.getLogger(__name__)

# Left behind by whatever was interrupted; nothing of use is in them.
_LEFTOVER_SUFFIXES = (DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX, SWAP_SUFFIX)
_METADATA_SNAPSHOT = ".checkpoint"


class DamagedLog(Exception):
    """What was on disk before cannot be read, and whoever opens the log does not go on without it."""


@dataclass(slots=True)
class _Scan:
    """What recovery did, for the one line it logs."""

    records: int = 0
    producers_end: int = 0
    """After the last batch that has a producer."""
    bytes_truncated: int = 0
    damaged: int = 0


def open_log(
    runtime: Runtime,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    start_offset: int = 0,
    topic_id: UUID | None = None,
    open_segments: OpenSegments | None = None,
    removal: DelayedRemoval | None = None,
    on_error: OnError | None = None,
    refuse_damage: bool = False,
    keep_damage: bool = True,
) -> PartitionLog:
    """Open the log in a directory, or begin one if there is none.

    `clean` says that it was closed in good order. `topic_id` is for a new log; an existing one has its own.
    With `refuse_damage`, DamagedLog is raised for what is damaged below the recovery point and hides what
    follows it, and the log is left as it is. Without `keep_damage` a log ends before the first damage that is
    found, also where that was on disk before: for those who can have the rest from elsewhere.
    """
    return _Opening(runtime, directory, partition, config, refuse_damage).open(
        clean=clean,
        recovery_point=recovery_point,
        keep_damage=keep_damage,
        start_offset=start_offset,
        topic_id=topic_id,
        open_segments=open_segments or OpenSegments(),
        removal=removal or DelayedRemoval(runtime.disk),
        on_error=on_error,
    )


class _Opening:
    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        refuse_damage: bool,
    ) -> None:
        self._refuse_damage = refuse_damage
        self._runtime = runtime
        self._disk = runtime.disk
        self._directory = directory
        self._partition = partition
        self._config = config
        self._unsynced = Unsynced()
        self._scan = _Scan()
        self._reindex_from: int | None = None
        """From the segment that begins here on, the indexes of aborted transactions are made again."""
        self._damage: dict[int, list[tuple[int, int]]] = {}
        """By the base offset of a segment: the bytes (from, to) that were stepped over."""

    def open(
        self,
        *,
        clean: bool,
        recovery_point: int,
        keep_damage: bool,
        start_offset: int,
        topic_id: UUID | None,
        open_segments: OpenSegments,
        removal: DelayedRemoval,
        on_error: OnError | None,
    ) -> PartitionLog:
        started = self._runtime.clock.monotonic()
        self._disk.make_dirs(self._directory)
        self._complete_swaps()
        names = self._remove_leftovers(self._disk.list_dir(self._directory))
        segments = [self._find_segment(base) for base in _offsets(names, LOG_SUFFIX)]
        with_aborted = set(_offsets(names, TRANSACTION_INDEX_SUFFIX))
        for segment in segments:
            segment.transactions.has_file = segment.base_offset in with_aborted
        snapshots = SnapshotFiles(self._disk, self._directory, _offsets(names, SNAPSHOT_SUFFIX))
        epochs = read_leader_epochs(self._disk, f"{self._directory}/{LEADER_EPOCHS_FILE}")
        clean = clean or not segments
        next_offset = scanned_from = start_offset
        if segments:
            suspect = len(segments) if clean else Segments(segments).floor(recovery_point)
            for segment in segments[:suspect]:
                self._attach_indexes(segment)
            self._check_transactions(segments[:suspect])
            end_offset = self._find_end(segments[-1]) if clean else None
            if end_offset is None:
                # All of a log that was closed in good order was on disk.
                synced_offset = NEVER if clean else recovery_point
                # Behind that, a follower of a compacted log has gaps as well, but it may fetch again.
                gaps_until = NEVER if keep_damage else synced_offset
                if not self._config.cleanup_compact:
                    gaps_until = 0
                if not keep_damage:
                    synced_offset = 0
                clean = False
                suspect = min(suspect, len(segments) - 1)
                scanned_from = segments[suspect].base_offset
                end_offset = self._check_from(segments, suspect, synced_offset, gaps_until, epochs)
            next_offset = end_offset
        if segments and next_offset < start_offset:
            log.error(
                "%s: the log ends at offset %d, before its start %d; nothing of it is left",
                self._partition,
                next_offset,
                start_offset,
            )
            self._remove_segments(segments)
            next_offset = start_offset
        if not segments:
            segments.append(self._create_segment(next_offset))
        start_offset = max(start_offset, segments[0].base_offset)
        epochs.truncate_from_end(next_offset)
        epochs.truncate_from_start(start_offset)
        for offset in [
            other for other in snapshots.offsets if not segments[0].base_offset <= other <= next_offset
        ]:
            snapshots.remove(offset)
        if clean and not snapshots.offsets and self._reindex_from is None:
            producers = ProducerStates(self._partition)
        else:
            # Batches just scanned need not be looked at again if no idempotent producer wrote them.
            end_offset = next_offset if clean else max(self._scan.producers_end, scanned_from)
            producers = load_producers(
                self._partition,
                snapshots,
                segments,
                end_offset,
                reindex_from=self._reindex_from,
                damage=self._damage,
            )
            for segment in segments:
                if self._reindex_from is not None and segment.base_offset >= self._reindex_from:
                    self._unsynced.paths += segment.index_paths
        snapshots.keep_only([*(segment.base_offset for segment in segments), *snapshots.offsets[-1:]])
        if not clean:
            log.info(
                "recovered %s: %d records scanned, %d damaged batches kept, %d bytes truncated, %d ms",
                self._partition,
                self._scan.records,
                self._scan.damaged,
                self._scan.bytes_truncated,
                (self._runtime.clock.monotonic() - started) * 1000,
            )
            # The process before may have made these and died before it synced them: were the power cut now,
            # records would be lost with them that are flushed from here on.
            self._unsynced.paths.append(f"{self._directory}/{PARTITION_METADATA_FILE}")
            self._unsynced.dirs += [self._directory, self._directory.rpartition("/")[0] or "/"]
        active = segments[-1]
        if active.size:
            active.set_first_timestamp(self._first_timestamp(active))
        for segment in segments:
            segment.release()
        files = LogFiles(
            self._runtime,
            self._directory,
            self._partition,
            self._config,
            segments=Segments(segments),
            snapshots=snapshots,
            open_segments=open_segments,
            removal=removal,
            unsynced=self._unsynced,
            on_error=on_error,
        )
        return PartitionLog(
            self._runtime,
            self._partition,
            self._config,
            files,
            topic_id=self._topic_id(topic_id),
            start_offset=start_offset,
            next_offset=next_offset,
            recovery_point=next_offset if clean else min(recovery_point, next_offset),
            epochs=epochs,
            producers=producers,
            settled=clean,
        )

    def _complete_swaps(self) -> None:
        """A crash came while compaction put a segment in the place of others. It was wholly on disk then."""
        names = self._disk.list_dir(self._directory)
        for base in _offsets(names, LOG_SUFFIX + SWAP_SUFFIX):
            swap = segment_path(self._directory, base, LOG_SUFFIX + SWAP_SUFFIX)
            end = base + 1
            with contextlib.closing(self._disk.open(swap)) as file:
                for _, header in headers(file, 0, file.size):
                    end = header.last_offset + 1
            # Others of the group may lie behind its last record: they hold nothing that compaction kept, and
            # the next round, which begins where this one did, drops them.
            replaced = [other for other in _offsets(names, LOG_SUFFIX) if base <= other < end]
            for other in replaced:
                for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                    path = segment_path(self._directory, other, suffix)
                    if self._disk.exists(path):
                        self._disk.rename(path, path + DELETED_SUFFIX)
            for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                path = segment_path(self._directory, base, suffix)
                if self._disk.exists(path + SWAP_SUFFIX):
                    self._disk.rename(path + SWAP_SUFFIX, path)
            self._disk.sync_dir(self._directory)
            log.info("%s: completed compaction up to offset %d", self._partition, end)

    def _remove_leftovers(self, names: list[str]) -> list[str]:
        kept = []
        logs = {name.removesuffix(LOG_SUFFIX) for name in names if name.endswith(LOG_SUFFIX)}
        for name in names:
            orphan = any(name.endswith(s) and name.removesuffix(s) not in logs for s in INDEX_SUFFIXES)
            # The metadata log keeps its snapshots here and cleans up after them itself.
            if orphan or (name.endswith(_LEFTOVER_SUFFIXES) and _METADATA_SNAPSHOT not in name):
                self._disk.remove(f"{self._directory}/{name}")
            else:
                kept.append(name)
        return kept

    def _topic_id(self, topic_id: UUID | None) -> UUID | None:
        path = f"{self._directory}/{PARTITION_METADATA_FILE}"
        stored = read_partition_metadata(self._disk, path)
        if stored is None and topic_id is not None:
            self._disk.replace_file(path, encode_partition_metadata(topic_id), sync=False)
            self._unsynced.paths.append(path)
            self._unsynced.dirs.append(self._directory)
        return stored or topic_id

    # Segments.

    def _find_segment(self, base_offset: int) -> Segment:
        segment = new_segment(self._runtime, self._directory, self._partition, base_offset, self._config)
        with contextlib.closing(self._disk.open(segment.path)) as file:
            segment.size = file.size
        return segment

    def _first_timestamp(self, segment: Segment) -> int:
        try:
            return next(headers(segment.file, 0, segment.size))[1].max_timestamp
        except BadBatch as error:
            log.error(
                "%s: its first batch is damaged and cannot be read: %s; restore the file from a copy or seek "
                "past the damage",
                segment.path,
                error,
            )
            return NO_TIMESTAMP

    def _create_segment(self, base_offset: int) -> Segment:
        segment = new_segment(self._runtime, self._directory, self._partition, base_offset, self._config)
        segment.create()
        self._unsynced.dirs += [self._directory, self._directory.rpartition("/")[0] or "/"]
        return segment

    def _remove_segments(self, segments: list[Segment]) -> None:
        # Were they to come back after a crash, old records would stand among newer ones.
        self._unsynced.dirs.append(self._directory)
        for segment in segments:
            segment.release()
            for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                path = segment_path(self._directory, segment.base_offset, suffix)
                if self._disk.exists(path):
                    self._disk.remove(path)
        segments.clear()

    def _find_end(self, last: Segment) -> int | None:
        """The offset after the last record of a segment at rest; None if it is not what it should be."""
        next_offset = last.base_offset
        try:
            for position, header in headers(last.file, last.offsets.floor_position(last.size), last.size):
                _check_reach(last, position, header.last_offset)
                if not next_offset <= header.base_offset <= header.last_offset:
                    raise BadBatch(position, f"offset {header.base_offset} cannot follow {next_offset - 1}")
                next_offset = header.last_offset + 1
        except BadBatch as error:
            log.error("%s was closed in good order but is damaged: %s", last.path, error)
            return None
        return next_offset

    def _check_from(
        self,
        segments: list[Segment],
        first: int,
        recovery_point: int,
        gaps_until: int,
        epochs: LeaderEpochs,
    ) -> int:
        """Check the segments from `first` on, cut the log where one is bad, return where it ends.

        Up to `gaps_until`, what is missing between two of them may be what compaction left out.
        """
        next_offset = segments[first].base_offset
        for index in range(first, len(segments)):
            next_offset, whole = self._recover(segments[index], recovery_point, epochs)
            later = segments[index + 1 :]
            # What follows was never synced. If it does not join on, either the end of this segment was lost
            # or that of a truncation was.
            if later and next_offset >= gaps_until and later[0].base_offset != next_offset:
                log.warning(
                    "%s ends at offset %d, %s does not", segments[index].path, next_offset, later[0].path
                )
                whole = False
            if not whole:
                del segments[index + 1 :]
                self._scan.bytes_truncated += sum(lost.size for lost in later)
                self._remove_segments(later)
                break
        return next_offset

    def _recover(self, segment: Segment, recovery_point: int, epochs: LeaderEpochs) -> tuple[int, bool]:
        """Check a segment and rebuild its indexes: (offset after its last record, whether it is whole)."""
        limit = segment.size
        next_offset = segment.base_offset
        problem: BadBatch | None = None
        self._damage.pop(segment.base_offset, None)
        segment.reset()
        segment.transactions.reset()
        while True:
            resume: tuple[int, int] | None = None
            try:
                for position, header, intact in checked_batches(
                    segment.file, segment.size, limit, next_offset
                ):
                    last_offset = header.last_offset
                    _check_reach(segment, position, last_offset)
                    # What a damaged header says of its own end tells nothing.
                    was_synced = (last_offset if intact else next_offset) < recovery_point
                    is_next = header.base_offset == next_offset
                    if was_synced and not (intact and is_next):
                        resume = self._find_misfit(segment, limit, position, header, intact, next_offset)
                        if resume is not None:
                            raise BadBatch(position, "its header does not fit to what follows")
                    if not intact:
                        rotten = BadBatch(
                            position, f"CRC of the batch at offset {header.base_offset} is wrong"
                        )
                        if not was_synced:
                            raise rotten
                        log.error("%s: %s; it was on disk before, so it is kept", segment.path, rotten)
                        self._scan.damaged += 1
                    # The CRC does not cover the base offset, but only compaction leaves gaps.
                    if not is_next and not was_synced and not self._config.cleanup_compact:
                        raise BadBatch(
                            position, f"offset {header.base_offset} does not follow {next_offset - 1}"
                        )
                    segment.note(((last_offset, header.size, header.max_timestamp),))
                    if segment.write_due:
                        segment.write_indexes()
                    if header.leader_epoch > epochs.latest:
                        epochs.assign(header.leader_epoch, header.base_offset)
                    self._scan.records += header.record_count
                    next_offset = last_offset + 1
                    if header.producer_id >= 0:
                        self._scan.producers_end = next_offset
                        if header.is_control:
                            self._reindex(segment.base_offset)
            except BadBatch as error:
                was_synced = next_offset < recovery_point
                if was_synced and self._refuse_damage:
                    segment.release()
                    raise DamagedLog(
                        f"{segment.path} is damaged from offset {next_offset} on, {error}"
                    ) from error
                if was_synced and resume is None:
                    resume = next_whole_batch(
                        segment.file, error.position, limit, next_offset, _offsets_within(segment)
                    )
                if resume is not None:
                    next_offset = self._keep_damage(segment, error, next_offset, resume)
                    continue
                problem = error
            break
        if problem is not None:
            # What was half written when the power went is nobody's loss; what lies whole behind it may be.
            behind = next_whole_batch(
                segment.file, problem.position, limit, next_offset, _offsets_within(segment)
            )
            level = logging.WARNING if behind is None and next_offset >= recovery_point else logging.ERROR
            loss = (
                ""
                if behind is None
                else f"; {limit - behind[0]} bytes of records behind it, from offset {behind[1]} on, are "
                "dropped with it: fetched again where another replica has them, and lost where none has"
            )
            log.log(level, "%s: cut off at offset %d, %s%s", segment.path, next_offset, problem, loss)
            self._scan.bytes_truncated += limit - segment.size
            segment.file.truncate(segment.size)
            self._unsynced.paths.append(segment.path)
        segment.seal()
        self._unsynced.paths += segment.index_paths
        return next_offset, problem is None

    def _find_misfit(
        self,
        segment: Segment,
        limit: int,
        position: int,
        header: BatchHeader,
        intact: bool,
        next_offset: int,
    ) -> tuple[int, int] | None:
        """Where to go on, (position, offset), if what follows a batch shows that its header is damaged."""
        end = position + header.size
        if end >= limit:
            return None
        following = header_at(segment.file, end, limit)
        if intact:
            # A gap that compaction left, unless the next batch lies in what this one claims to have passed.
            if following is None or not next_offset <= following.base_offset <= header.last_offset:
                return None
            is_whole = crc_matches(segment.file.read(end, following.size), following.crc)
            return (end, following.base_offset) if is_whole else None
        if following is not None:
            gap = following.base_offset - header.last_offset - 1
            if gap == 0 or (gap > 0 and self._config.cleanup_compact):
                return None
        return next_whole_batch(segment.file, position, limit, next_offset, _offsets_within(segment))

    def _keep_damage(
        self, segment: Segment, error: BadBatch, next_offset: int, resume: tuple[int, int]
    ) -> int:
        """Go on behind what was on disk before and cannot be read any more. Returns with which offset."""
        position, offset = resume
        log.error(
            "%s: bytes %d to %d are damaged (%s); they were on disk before, so they are kept. Offsets %d to "
            "%d of %s cannot be read, those behind can. Check the disk. Restore the file from a backup, or "
            "let consumers go on behind the damage: kafka-delete-records with offset %d",
            segment.path,
            segment.size,
            position - 1,
            error.reason,
            next_offset,
            offset - 1,
            self._partition,
            offset,
        )
        self._scan.damaged += 1
        self._damage.setdefault(segment.base_offset, []).append((segment.size, position))
        segment.step_over(position, offset)
        return offset

    def _reindex(self, base_offset: int) -> None:
        if self._reindex_from is None or base_offset < self._reindex_from:
            self._reindex_from = base_offset

    def _check_transactions(self, segments: list[Segment]) -> None:
        if not any(segment.transactions.count for segment in segments):
            return
        doubtful = first_doubtful(Segments(segments), compacted=self._config.cleanup_compact)
        if doubtful is not None:
            log.error(
                "%s does not say what the log says; it is made again. Check the disk",
                doubtful.transactions.path,
            )
            self._reindex(doubtful.base_offset)

    def _attach_indexes(self, segment: Segment) -> None:
        """Use the index files of a segment at rest if they can be right; else make them again."""
        offsets, times = segment.offsets.file, segment.times.file
        if not segment.transactions.attach(segment.base_offset):
            log.warning("%s is damaged and is made again", segment.transactions.path)
            self._reindex(segment.base_offset)
        attached = offsets.attach() and times.attach()
        if attached and (not offsets.count or offsets.entry(offsets.count - 1)[1] < segment.size):
            return
        log.warning("%s: index files are missing or damaged and are made again", segment.path)
        limit = segment.size
        next_offset = segment.base_offset
        segment.reset()
        while True:
            try:
                for position, header in headers(segment.file, segment.size, limit):
                    _check_reach(segment, position, header.last_offset)
                    segment.note(((header.last_offset, header.size, header.max_timestamp),))
                    next_offset = header.last_offset + 1
                    if segment.write_due:
                        segment.write_indexes()
            except BadBatch as error:
                resume = next_whole_batch(
                    segment.file, error.position, limit, next_offset, _offsets_within(segment)
                )
                if resume is not None:
                    next_offset = self._keep_damage(segment, error, next_offset, resume)
                    continue
                log.error("%s: offsets behind the damage cannot be found by index: %s", segment.path, error)
            break
        segment.size = limit
        segment.seal()
        self._unsynced.paths += segment.index_paths


def _check_reach(segment: Segment, position: int, last_offset: int) -> None:
    """No CRC covers the base offset of a batch: one flipped bit may put it where no index reaches."""
    if not 0 <= last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX:
        raise BadBatch(
            position, f"offset {last_offset} cannot be in a segment that begins at {segment.base_offset}"
        )


def _offsets_within(segment: Segment) -> range:
    return range(segment.base_offset, segment.base_offset + RELATIVE_OFFSET_MAX + 1)


def _offsets(names: list[str], suffix: str) -> list[int]:
    """The offsets after which files with this suffix are named, in order."""
    found = (offset_in_name(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)
