"""Carries out what the raft core decides: the metadata log, its fsyncs, elections and snapshots.

Records are appended at once and committed by a loop that syncs whatever is there: changes that arrive while
one fsync runs share the next one. With one voter, synced means committed. Where there is no room to sync
them, they are cut off again and refused; any other failure of a sync ends the node, because nobody knows what
of them is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, assert_never

from ottla.log.log import PartitionLog
from ottla.metadata.control import LASTING, ControlType, control_type, leader_change, read_voter_ids
from ottla.metadata.image import MetadataImage
from ottla.raft.core import (
    Acknowledged,
    AppendLeaderChange,
    Commit,
    Election,
    ElectionDue,
    Event,
    PersistElection,
    Progress,
    RaftCore,
)
from ottla.raft.metadata_log import BATCH_BYTES_MAX, QuorumError
from ottla.raft.quorum_state import QuorumState, load_quorum_state, save_quorum_state
from ottla.raft.room import Room, lacks_room
from ottla.raft.snapshots import SnapshotPolicy, Snapshots
from ottla.records.batch import crc_matches, iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import NotController, PolicyViolation, StorageError

logger = logging.getLogger(__name__)

READ_BYTES_MAX = 8 * 1024 * 1024


class LogBatch(NamedTuple):
    last_offset: int
    epoch: int
    values: list[bytes]


class Loaded(NamedTuple):
    """What is on disk: an image, and the batches of records after it."""

    image: MetadataImage
    batches: list[LogBatch]


class Appended(NamedTuple):
    last_offset: int
    committed: asyncio.Future[None]


class QuorumDescription(NamedTuple):
    leader_id: int | None
    epoch: int
    high_watermark: int
    log_end_offset: int
    voters: dict[int, Progress | None]


class RaftDriver:
    def __init__(
        self,
        runtime: Runtime,
        log: PartitionLog,
        *,
        node_id: int,
        policy: SnapshotPolicy,
        on_commit: Callable[[int], None],
        on_cut: Callable[[], None],
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """`on_cut` is called when everything that was appended and not committed is gone again."""
        self._runtime = runtime
        self._log = log
        self._on_commit = on_commit
        self._on_cut = on_cut
        self.room = Room(runtime.clock, log.dir)
        self._scope = TaskScope("raft", self._fail)
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._snapshots = Snapshots(runtime, log, policy)
        self._election = self._last_election()
        self._core = RaftCore(node_id, (node_id,), self._election)
        self._quorum: dict[int, Record] = {}
        """Control records in force, by type; there are none where the voters are in the configuration."""
        self._appended = asyncio.Event()
        self._waiting: deque[Appended] = deque()
        self._unsynced: list[bytes] = []
        """Batches since the last sync."""
        self._being_rewritten: OSError | None = None
        """Why the end of the log is missing for the moment: nothing may take its place."""
        self._synced_offset = log.next_offset
        self._last_timestamp_ms = 0
        self._synced_timestamp_ms = 0
        self._commit_task: asyncio.Task[None] | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        self._closing = False

    def _last_election(self) -> Election:
        """The file may be gone or behind; log and snapshots prove epochs too."""
        state = load_quorum_state(self._runtime.disk, self._log.dir) or QuorumState()
        newest = self._snapshots.newest()
        epoch = max(0 if newest is None else newest.epoch, self._log.latest_epoch)
        return state.election if state.election.epoch >= epoch else Election(epoch)

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    def load(self) -> Loaded:
        """The newest snapshot and the log after it. With one voter, all of it is or will be committed."""
        image = MetadataImage()
        snapshot = self._snapshots.load_newest()
        if snapshot is not None:
            image = snapshot.image
            self._last_timestamp_ms = snapshot.last_timestamp_ms
            self._follow_control(snapshot.quorum)
        start = image.offset + 1
        if not self._log.start_offset <= start <= self._log.next_offset:
            raise QuorumError(
                f"{self._log.dir}: the log has offsets {self._log.start_offset} to {self._log.next_offset}, "
                f"but the newest snapshot ends at {start}; restore the missing files from a backup"
            )
        return Loaded(image, self._read_batches(start))

    def _read_batches(self, offset: int) -> list[LogBatch]:
        batches = []
        end = self._log.next_offset
        while offset < end:
            data = bytes(self._log.read(offset, READ_BYTES_MAX, upto=end))
            start = offset
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
                    self._follow_control(records)
                values = [] if header.is_control else [record.value or b"" for record in records]
                batches.append(LogBatch(header.last_offset, header.leader_epoch, values))
                offset = header.last_offset + 1
                self._last_timestamp_ms = header.max_timestamp
                self._snapshots.count_appended(header.size)
            if offset == start:
                raise QuorumError(
                    f"{self._log.dir}: there is no batch with offset {offset}, the log ends at {end}; "
                    "restore the log from a backup"
                )
        return batches

    def _follow_control(self, records: Iterable[Record]) -> None:
        for record in records:
            kind = control_type(record)
            if kind == ControlType.KRAFT_VOTERS:
                self._check_voters(read_voter_ids(record))
            if kind in LASTING:
                self._quorum[kind] = record

    def _check_voters(self, voter_ids: tuple[int, ...]) -> None:
        if voter_ids != self._core.voters:
            raise QuorumError(
                f"{self._log.dir}: the quorum's voters are {list(voter_ids)}; this version runs node "
                f"{self._core.node_id} as the only voter"
            )

    async def start(self) -> None:
        """Become leader of a new epoch. Its first record is committed with whatever is appended next."""
        if self._log.recovery_point < self._log.next_offset:
            # A crash left records that may only be in memory; the quorum state is about to vouch for them.
            await self.room.until_there_is(self._log.flush)
        await self._step(ElectionDue(self._log.next_offset))
        self._commit_task = self._scope.spawn(self._commit_loop(), "commit")

    def append(self, values: Sequence[bytes]) -> Appended:
        """One batch, all of it or nothing. `committed` is done after `on_commit` has been called for it."""
        if self._failure is not None:
            raise NotController(f"the metadata log cannot be written: {self._failure}")
        if self._being_rewritten is not None:
            raise self.room.refusal(self._being_rewritten)
        size_bytes = sum(len(value) for value in values)
        if size_bytes > BATCH_BYTES_MAX:
            raise PolicyViolation(
                f"the change would write {size_bytes} bytes of metadata, more than {BATCH_BYTES_MAX}; "
                "split the request"
            )
        now_ms = self._runtime.clock.now_ms()
        self._append_batch([Record(None, value, now_ms) for value in values], control=False)
        future = asyncio.get_running_loop().create_future()
        appended = Appended(self._log.next_offset - 1, future)
        self._waiting.append(appended)
        return appended

    def _append_batch(self, records: list[Record], *, control: bool) -> None:
        batch = encode_batch(
            records, base_offset=self._log.next_offset, leader_epoch=self._core.epoch, control=control
        )
        self._log.append_batches(memoryview(batch))
        self._unsynced.append(batch)
        self._last_timestamp_ms = records[-1].timestamp_ms
        self._snapshots.count_appended(len(batch))
        self._appended.set()

    async def _commit_loop(self) -> None:
        while not (self._closing and self._synced_offset == self._log.next_offset):
            await self._appended.wait()
            self._appended.clear()
            end_offset, timestamp_ms = self._log.next_offset, self._last_timestamp_ms
            batches = len(self._unsynced)
            try:
                await self._log.flush()
            except OSError as error:
                if not lacks_room(error):
                    raise
                if self._core.high_watermark is None and not self._closing:
                    await self._write_again(error)
                else:
                    self._cut(error)
                continue
            del self._unsynced[:batches]
            self._synced_offset, self._synced_timestamp_ms = end_offset, timestamp_ms
            await self._step(Acknowledged(self._core.node_id, end_offset))

    def _cut(self, error: OSError) -> None:
        """Memory and log go back to what was synced. What the kernel could not write it may have dropped, so
        syncing it once more would prove nothing."""
        self._log.truncate_to(self._synced_offset)
        self._unsynced.clear()
        self._on_cut()
        refusal = self.room.refusal(error)
        logger.error("%s", refusal)
        self._refuse_waiting(refusal)

    async def _write_again(self, error: OSError) -> None:
        """At a start: without the first records of its epoch a leader could not go on, so they wait."""
        batches, self._unsynced = self._unsynced, []
        self._log.truncate_to(self._synced_offset)
        self._being_rewritten = error
        while batches and not self._closing:
            await self.room.wait(error)
            try:
                while batches:
                    self._log.append_batches(memoryview(batches[0]))
                    self._unsynced.append(batches.pop(0))
            except StorageError as refusal:
                if not lacks_room(refusal):
                    raise
        self._being_rewritten = None
        if batches:
            self._cut(error)
        self._appended.set()

    async def _step(self, event: Event) -> None:
        for effect in self._core.step(event, self._runtime.clock.now_ms()):
            match effect:
                case PersistElection():
                    self._election = effect.election
                    await self.room.until_there_is(self._save_state)
                case AppendLeaderChange():
                    await self.room.until_there_is(partial(self._append_leader_change, effect))
                case Commit():
                    self._committed(effect.high_watermark)
                case _:
                    assert_never(effect)

    async def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        now_ms = self._runtime.clock.now_ms()
        record = leader_change(effect.leader_id, effect.voters, effect.granting_voters, now_ms)
        self._append_batch([record], control=True)

    async def _save_state(self) -> None:
        state = QuorumState(self._election, self._log.recovery_point)
        await self._runtime.offload.run(
            save_quorum_state, self._runtime.disk, self._log.dir, state, self._core.voters
        )

    def _committed(self, high_watermark: int) -> None:
        self._on_commit(high_watermark)
        while self._waiting and self._waiting[0].last_offset < high_watermark:
            future = self._waiting.popleft().committed
            # Whoever asked may have gone; the records stay.
            if not future.done():
                future.set_result(None)

    def _fail(self, name: str, error: BaseException) -> None:
        """What is in memory may now be ahead of the disk for ever: refuse everything and stop the node."""
        self._failure = error
        self._refuse_waiting(StorageError(f"the metadata log cannot be written: {error}"))
        self._on_failure(name, error)

    def _refuse_waiting(self, refusal: StorageError) -> None:
        while self._waiting:
            future = self._waiting.popleft().committed
            if not future.done():
                future.set_exception(refusal)

    def snapshot_if_due(self, image: MetadataImage) -> None:
        """`image` is committed and the newest there is."""
        if self._snapshots.due and self._snapshot_task is None:
            quorum = [record for _, record in sorted(self._quorum.items())]
            task = self._scope.spawn(
                self._snapshots.take(image, quorum, self._synced_timestamp_ms), "snapshot"
            )
            task.add_done_callback(self._snapshot_done)
            self._snapshot_task = task

    def _snapshot_done(self, _: asyncio.Task[None]) -> None:
        self._snapshot_task = None

    def describe(self) -> QuorumDescription:
        core = self._core
        return QuorumDescription(
            core.leader_id,
            core.epoch,
            core.high_watermark or 0,
            self._log.next_offset,
            {voter: core.progress.get(voter) for voter in core.voters},
        )

    async def close(self) -> None:
        """Commit what was appended, finish a snapshot that is being written, and let go of the log."""
        self._closing = True
        self._appended.set()
        if self._commit_task is not None:
            await asyncio.wait([self._commit_task])
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])
        await self._scope.close()
        if self._failure is not None:
            self._log.release()
            return
        try:
            await self._runtime.offload.run(self._log.close)
            await self._save_state()
        except OSError as error:
            # All that was answered is synced; the next start finds out the rest.
            logger.error("%s: not closed in good order: %s", self._log.dir, error)
            self._log.release()
