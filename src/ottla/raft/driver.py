"""Carries out what the raft core decides: the metadata log, its fsyncs, elections, snapshots, and the others.

One event after the other: all effects of one are carried out, and on disk where they have to be, before the
core is told of the next. Records of a leader are appended at once and synced by a loop that takes whatever is
there: changes that arrive while one fsync runs share the next one. With one voter, synced means committed.
Where there is no room to sync them, a node that is alone cuts them off again and refuses them; any other,
whose followers may have them, gives up leading. Any other failure of a sync ends the node: nobody knows what
of them is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, assert_never

from ottla.log.log import PartitionLog
from ottla.log.types import UnexpectedOffset
from ottla.metadata.control import kraft_version_record, leader_change, voters_record
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import MetadataRecord, encode_record
from ottla.metadata.snapshot import SnapshotDamaged, image_records, snapshot_id
from ottla.raft.alarm import Alarm
from ottla.raft.changing_voters import ChangingVoters
from ottla.raft.core import RaftCore
from ottla.raft.events import (
    Answered,
    AppendFetched,
    AppendLeaderChange,
    AppendQuorumChange,
    Commit,
    Effect,
    Election,
    Event,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    QuorumChange,
    Reply,
    Requested,
    Resign,
    Send,
    SnapshotUnusable,
    Started,
    StoreSnapshotPart,
    Synced,
    SyncLog,
    Tick,
    Truncate,
    Unanswered,
    Warn,
)
from ottla.raft.log_view import BOOTSTRAP_SNAPSHOT
from ottla.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    UpgradeRequest,
    VoterChange,
    VoterChangeResponse,
)
from ottla.raft.metadata_log import BATCH_BYTES_MAX, QuorumError
from ottla.raft.own_place import OwnPlace
from ottla.raft.peers import NoAnswer, Peers
from ottla.raft.progress import Progress
from ottla.raft.quorum_state import QuorumState, load_quorum_state, save_quorum_state
from ottla.raft.replica_log import ReplicaLog
from ottla.raft.roles import Role
from ottla.raft.room import Room, lacks_room
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotPolicy, Snapshots
from ottla.raft.states import Leader, Resigned
from ottla.raft.uncommitted import READ_BYTES_MAX, Uncommitted
from ottla.raft.voters import ReplicaKey, VoterSet, record_of
from ottla.records.batch import iter_headers
from ottla.records.records import Record, encode_batch
from ottla.runtime import Runtime
from ottla.runtime.tasks import TaskScope, finished
from ottla.wire.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
    PolicyViolation,
    RequestTimedOut,
    StorageError,
    UnsupportedVersion,
)

logger = logging.getLogger(__name__)

# Whoever stops while it leads waits so long for the others to hear of it.
FAREWELL_SECONDS = 1.0
COMMITS_REMEMBERED = 100


class Leadership(NamedTuple):
    epoch: int
    leader_id: int | None
    """None while there is none, or nobody knows."""


class LeadershipListener(Protocol):
    """Whoever writes while this node leads. Both are called on the event loop and must not fail."""

    def on_leadership(self, leadership: Leadership) -> None:
        """The leader of the quorum is another, or another is not known yet.

        That this node leads is told once everything from before its epoch has been published, so that whoever
        decides sees all that was ever committed. That it leads no more is told before what was appended and
        is not committed is refused.
        """

    def on_cut(self) -> None:
        """Everything that was appended and not committed is gone again; this node still leads."""


class Appended(NamedTuple):
    last_offset: int
    committed: asyncio.Future[None]
    appended_at: float = 0.0


class QuorumDescription(NamedTuple):
    leads: bool
    """This node; else there is no telling how far the others have come."""
    leader_id: int | None
    epoch: int
    high_watermark: int
    log_end_offset: int
    voters: dict[int, Progress | None]
    observers: dict[ReplicaKey, Progress]
    voter_set: VoterSet


class RaftDriver:
    def __init__(
        self,
        runtime: Runtime,
        log: PartitionLog,
        *,
        settings: QuorumSettings,
        policy: SnapshotPolicy,
        publisher: MetadataPublisher,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        self._runtime = runtime
        self._log = log
        self.settings = settings
        self._publisher = publisher
        self._listener: LeadershipListener | None = None
        self._told: Leadership | None = None
        self.room = Room(runtime.clock, log.dir)
        self._scope = TaskScope("raft", self._fail)
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._snapshots = Snapshots(runtime, log, policy)
        self._election = self._last_election()
        self._replica = ReplicaLog(log, self._snapshots, settings)
        self._peers = Peers(runtime, settings, lambda: self._replica.voters)
        self._core = RaftCore(
            settings.me,
            self._replica,
            self._election,
            runtime.random,
            settings.timeouts,
            settings.bootstrap_ids,
            settings.endpoints,
        )
        self._own_place = OwnPlace(self._core, self._replica, joins=settings.joins)
        self.voters = ChangingVoters(self._change_voters, self._peers, settings.timeouts.request)
        self._uncommitted = Uncommitted(log, self._replica, self._snapshots, publisher)
        self.is_alone = False
        """There can be no other node in this one's cluster, until it starts again."""
        self.is_current = asyncio.Event()
        """What was committed when this node started is published: a leader has said how much that is."""
        self.initial_records: tuple[MetadataRecord, ...] = ()
        """What the cluster is to begin with, where the log does not have it yet."""
        self._stepping = asyncio.Lock()
        self._alarm = Alarm(self._ring)
        self._news = asyncio.Event()
        """Set, and replaced by another, when fetches that wait may have something to answer."""
        self._appended = asyncio.Event()
        self._waiting: deque[Appended] = deque()
        self.commit_seconds: deque[float] = deque(maxlen=COMMITS_REMEMBERED)
        """How long what was appended last had to wait to be committed."""
        self._led_epoch: int | None = None
        """The one whose first record this node has written."""
        self._unsynced: list[bytes] = []
        """Batches since the last sync."""
        self._being_rewritten: OSError | None = None
        """Why the end of the log is missing for the moment: nothing may take its place."""
        self._synced_offset = log.next_offset
        self._synced_timestamp_ms = 0
        self._snapshot_parts = bytearray()
        self._commit_task: asyncio.Task[None] | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        self._is_started = False
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

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def role(self) -> Role:
        return self._core.role

    @property
    def voted_for(self) -> int | None:
        """In this epoch."""
        return None if self._core.voted is None else self._core.voted.id

    @property
    def leadership(self) -> Leadership:
        """As the listener was told last."""
        return self._told or Leadership(self._core.epoch, None)

    @property
    def voter_set(self) -> VoterSet:
        return self._replica.voters

    @property
    def kraft_version(self) -> int:
        return self._replica.kraft_version

    def address(self, node_id: int) -> tuple[str, int] | None:
        """Where a member of the quorum listens for others."""
        is_own = node_id == self._core.me.id and bool(self.settings.endpoints)
        if is_own and self._peers.configured(node_id) is None:
            # The log may say where it was before it moved.
            own = self.settings.endpoints[0]
            return own.host or self._runtime.net.host_name(), own.port
        return self._peers.address(node_id)

    def learn_address(self, node_id: int, host: str, port: int) -> None:
        self._peers.learn(node_id, host, port)

    # Starting.

    def load(self) -> None:
        """Publish the newest snapshot, and of a node that is alone the log after it: all of that is or will
        be committed. Otherwise a leader has to say how much of it is."""
        start = 0
        snapshot = self._snapshots.load_newest()
        if snapshot is not None and snapshot_id(snapshot.image) == BOOTSTRAP_SNAPSHOT:
            # Others do not have it: only what the first leader writes of it counts.
            self.initial_records = tuple(image_records(snapshot.image))
            snapshot = snapshot._replace(image=MetadataImage())
        if snapshot is not None:
            start = snapshot.image.offset + 1
            self._uncommitted.begin_with(snapshot)
        if not self._log.start_offset <= start <= self._log.next_offset:
            raise QuorumError(
                f"{self._log.dir}: the log has offsets {self._log.start_offset} to {self._log.next_offset}, "
                f"but the newest snapshot ends at {start}; restore the missing files from a backup"
            )
        self._uncommitted.read_from(start)
        self.is_alone = self._replica.is_alone
        if self.is_alone:
            self._uncommitted.publish(self._log.next_offset)
            self.is_current.set()
        else:
            self._peers.prepare()

    async def start(self, listener: LeadershipListener) -> None:
        """A sole voter becomes leader of a new epoch. Its first record is committed with whatever is appended
        next. One of several is told of its leader when there is one."""
        self._listener = listener
        if self._log.recovery_point < self._log.next_offset:
            # A crash left records that may only be in memory; the quorum state is about to vouch for them.
            await self.room.until_there_is(self._log.flush)
        self._synced_offset = self._log.next_offset
        self._is_started = True
        await self._step(Started())
        self._commit_task = self._scope.spawn(self._commit_loop(), "commit")
        if self.settings.may_vote and not self.is_alone:
            self._scope.spawn(self._keep_place(), "own-place")

    # Events and their effects.

    def _now_ms(self) -> int:
        """Time-outs must not end early, or never, because somebody set the clock."""
        return int(self._runtime.clock.monotonic() * 1000)

    async def _step(self, event: Event) -> Response | None:
        """The reply, where the event was a request."""
        async with self._stepping:
            return await self._step_now(event)

    async def _step_now(self, event: Event) -> Response | None:
        try:
            reply = await self._carry_out(self._core.step(event, self._now_ms()))
        except Exception as error:
            # Some effects may be missing: what the core believes is no longer so.
            if self._failure is None:
                self._fail("step", error)
            raise
        due_ms = self._core.due_ms()
        self._alarm.set(None if due_ms is None else due_ms / 1000 + 0.001)
        return reply

    async def _carry_out(  # noqa: PLR0912 - one branch per effect
        self, effects: list[Effect]
    ) -> Response | None:
        reply: Response | None = None
        change: dict[str, Any] | None = None
        for effect in effects:
            match effect:
                case PersistElection():
                    self._election = effect.election
                    await self.room.until_there_is(self._save_state)
                case AppendLeaderChange():
                    await self.room.until_there_is(partial(self._append_leader_change, effect))
                case AppendQuorumChange():
                    change = self._append_quorum_change(effect.change)
                case Commit():
                    self._committed(effect.high_watermark)
                case LeaderChanged():
                    self._leader_changed(effect)
                case Send():
                    self._scope.spawn(self._ask(effect), "ask")
                case Reply(response=VoterChangeResponse(is_appended=True) as response):
                    assert change is not None
                    reply = response._replace(**change)
                case Reply():
                    reply = effect.response
                case AppendFetched():
                    await self._append_fetched(effect.records)
                case SyncLog():
                    await self._sync_or_cut()
                case Truncate():
                    await self._truncate(effect.end_offset)
                case StoreSnapshotPart():
                    if effect.position == 0:
                        self._snapshot_parts.clear()
                    self._snapshot_parts += effect.data
                case InstallSnapshot():
                    await self._install(effect)
                case Warn():
                    logger.warning("%s", effect.text)
                case _:
                    assert_never(effect)
        return reply

    def _ring(self) -> None:
        if not self._closing or isinstance(self._core.state, Resigned):
            self._scope.spawn(self._step(Tick()), "tick")

    async def _ask(self, effect: Send) -> None:
        response = await self._peers.ask(effect.node_id, effect.request)
        if isinstance(response, NoAnswer):
            is_gone = response is NoAnswer.NOBODY_LISTENS
            await self._step(Unanswered(effect.node_id, effect.request_id, is_gone))
        else:
            await self._step(Answered(effect.node_id, effect.request_id, response))

    async def _save_state(self) -> None:
        state = QuorumState(self._election, self._log.recovery_point, self._replica.kraft_version)
        await finished(
            self._runtime.offload.run(
                save_quorum_state, self._runtime.disk, self._log.dir, state, self._core.voters.ids
            )
        )

    def _leader_changed(self, effect: LeaderChanged) -> None:
        leader_id = effect.leader_id
        leads = self._core.role is Role.LEADER
        if leads and self.is_alone:
            # All that was on disk is committed and has been published.
            leader_id = self._core.me.id
        leadership = Leadership(effect.epoch, leader_id)
        if leadership != self._told:
            self._told = leadership
            if not self.is_alone:
                who = "nobody is known to lead" if leader_id is None else f"node {leader_id} leads"
                logger.info("the metadata quorum: %s epoch %d", who, effect.epoch)
            if self._listener is not None:
                self._listener.on_leadership(leadership)
        if not leads:
            self._refuse_waiting(NotController("this node does not lead the metadata quorum any more"))
        self._wake_fetches()

    # The log of a leader.

    def append(self, records: Sequence[MetadataRecord]) -> Appended:
        """One batch, all of it or nothing. `committed` is done after it has been published."""
        if self._failure is not None:
            raise NotController(f"the metadata log cannot be written: {self._failure}")
        if self._core.role is not Role.LEADER or self._led_epoch != self._core.epoch:
            raise NotController("this node does not lead the metadata quorum")
        if self._being_rewritten is not None:
            raise self.room.refusal(self._being_rewritten)
        values = [encode_record(record) for record in records]
        size_bytes = sum(len(value) for value in values)
        if size_bytes > BATCH_BYTES_MAX:
            raise PolicyViolation(
                f"the change would write {size_bytes} bytes of metadata, more than {BATCH_BYTES_MAX}; "
                "split the request"
            )
        now_ms = self._runtime.clock.now_ms()
        self._append_batch([Record(None, value, now_ms) for value in values], records)
        return self._when_committed()

    def _when_committed(self) -> Appended:
        """Of everything up to the end of the log."""
        future = asyncio.get_running_loop().create_future()
        appended = Appended(self._log.next_offset - 1, future, self._runtime.clock.monotonic())
        self._waiting.append(appended)
        return appended

    async def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        now_ms = self._runtime.clock.now_ms()
        records = [leader_change(effect.leader_id, effect.voters.ids, effect.granting_voters, now_ms)]
        if effect.written is not None:
            records += _control_records(effect.written, now_ms)
        self._append_batch(records, None)
        self._led_epoch = effect.epoch

    def _append_quorum_change(self, change: QuorumChange) -> dict[str, Any]:
        """What its answer has to say: a future for the commit, or why there is none."""
        try:
            if self._being_rewritten is not None:
                raise self.room.refusal(self._being_rewritten)
            self._append_batch(_control_records(change, self._runtime.clock.now_ms()), None)
        except StorageError as error:
            if not lacks_room(error):
                raise
            return {"error": error.code, "message": str(error), "is_appended": False}
        logger.info("the metadata quorum: its voters are to be %s", list(change.voters.ids))
        return {"committed": self._when_committed().committed}

    def _append_batch(self, records: list[Record], decoded: Sequence[MetadataRecord] | None) -> None:
        """`decoded` is what is published of it: nothing of a control batch."""
        epoch = self._core.epoch
        batch = encode_batch(
            records, base_offset=self._log.next_offset, leader_epoch=epoch, control=decoded is None
        )
        self._log.append_as_follower(memoryview(batch))
        self._uncommitted.append(batch, decoded, epoch, records[-1].timestamp_ms)
        self._unsynced.append(batch)
        self._appended.set()
        self._wake_fetches()

    async def _commit_loop(self) -> None:
        while not (self._closing and (not self._leads or self._synced_offset == self._log.next_offset)):
            await self._appended.wait()
            self._appended.clear()
            if not self._leads:
                continue
            end_offset, epoch = self._log.next_offset, self._core.epoch
            timestamp_ms = self._uncommitted.last_timestamp_ms
            batches = len(self._unsynced)
            try:
                await self._log.flush()
            except OSError as error:
                if not lacks_room(error):
                    raise
                if not self.is_alone:
                    # Followers may have what cannot be kept here: another one must go on with it.
                    logger.error("%s; another voter has to lead", self.room.refusal(error))
                    await self._step(Resign(stopping=False))
                elif self._core.high_watermark is None and not self._closing:
                    await self._write_again(error)
                else:
                    self._cut(error)
                continue
            async with self._stepping:
                # What was synced may since have been cut off, and other records be in its place.
                if self._leads and self._core.epoch == epoch:
                    del self._unsynced[:batches]
                    self._synced_offset, self._synced_timestamp_ms = end_offset, timestamp_ms
                    await self._step_now(Synced(end_offset))

    @property
    def _leads(self) -> bool:
        return self._core.role is Role.LEADER

    def _cut(self, error: OSError) -> None:
        """Memory and log go back to what was synced. What the kernel could not write it may have dropped, so
        syncing it once more would prove nothing."""
        self._cut_off(self._synced_offset)
        if self._listener is not None:
            self._listener.on_cut()
        refusal = self.room.refusal(error)
        logger.error("%s", refusal)
        self._refuse_waiting(refusal)

    def _cut_off(self, offset: int) -> None:
        self._log.truncate_to(offset)
        self._uncommitted.forget_from(offset)
        self._unsynced.clear()

    async def _write_again(self, error: OSError) -> None:
        """At a start: without the first records of its epoch a leader could not go on, so they wait."""
        batches, self._unsynced = self._unsynced, []
        self._log.truncate_to(self._synced_offset)
        self._being_rewritten = error
        while batches and not self._closing:
            await self.room.wait(error)
            try:
                while batches:
                    self._log.append_as_follower(memoryview(batches[0]))
                    self._unsynced.append(batches.pop(0))
            except StorageError as refusal:
                if not lacks_room(refusal):
                    raise
        self._being_rewritten = None
        if batches:
            self._cut(error)
        self._appended.set()

    async def _sync_or_cut(self) -> None:
        """This node leads no more. What it cannot vouch for goes."""
        try:
            await self._log.flush()
        except OSError as error:
            if not lacks_room(error):
                raise
            await self._shorten(self._synced_offset)
        self._unsynced.clear()
        self._synced_offset = self._log.next_offset

    # The log of a follower.

    async def _append_fetched(self, data: bytes) -> None:
        """What does not fit in, or for which there is no room, is fetched again."""
        before = self._log.next_offset
        try:
            self._check_epochs(data)
            self._log.append_as_follower(memoryview(data))
            if self.settings.may_vote:
                await self._log.flush()
        except (CorruptMessage, UnexpectedOffset) as error:
            logger.error("what node %s sent of the metadata log: %s", self._core.leader_id, error)
        except (OSError, StorageError) as error:
            if not lacks_room(error):
                raise
            logger.error("%s", self.room.refusal(error) if isinstance(error, OSError) else error)
            await self._shorten(before)
        if self._log.next_offset > before:
            self._uncommitted.follow(bytes(data), before)
        self._synced_offset = self._log.next_offset
        self._synced_timestamp_ms = self._uncommitted.last_timestamp_ms
        await self._step_now(Synced(self._log.next_offset))

    def _check_epochs(self, data: bytes) -> None:
        last_epoch = self._replica.last_epoch
        for _, header in iter_headers(data):
            if not last_epoch <= header.leader_epoch <= self._core.epoch:
                raise CorruptMessage(
                    f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch}, after "
                    f"{last_epoch} and in epoch {self._core.epoch}"
                )
            last_epoch = header.leader_epoch

    async def _truncate(self, offset: int) -> None:
        logger.info(
            "the metadata log ends at offset %d; its leader does not have what begins at %d (it is node %s): "
            "that was never committed and is cut off",
            self._log.next_offset,
            offset,
            self._core.leader_id,
        )
        await self._shorten(offset)
        self._synced_offset = min(self._synced_offset, self._log.next_offset)
        await self._step_now(Synced(self._log.next_offset))

    async def _shorten(self, offset: int) -> None:
        # First it is written down that what goes need not be on disk, or the next start would miss it.
        while self._log.lower_recovery_point(offset):
            await self.room.until_there_is(self._save_state)
        self._cut_off(offset)

    async def _install(self, effect: InstallSnapshot) -> None:
        data, self._snapshot_parts = bytes(self._snapshot_parts), bytearray()
        try:
            snapshot = await self._snapshots.install(effect.snapshot, data)
        except (SnapshotDamaged, OSError) as error:
            logger.error("the snapshot of the metadata from node %s: %s", self._core.leader_id, error)
            await self._step_now(SnapshotUnusable())
            return
        offset = effect.snapshot.offset
        while self._log.lower_recovery_point(0):
            await self.room.until_there_is(self._save_state)
        self._log.truncate_fully_and_start_at(offset)
        await self.room.until_there_is(self._log.flush)
        self._synced_offset, self._synced_timestamp_ms = offset, snapshot.last_timestamp_ms
        self._uncommitted.begin_with(snapshot)
        logger.info("the metadata now begins with the snapshot %s of its leader", effect.snapshot.file_name)
        await self._step_now(Synced(offset))

    # What is committed.

    def _committed(self, high_watermark: int) -> None:
        # Whoever is told of the last of it may ask.
        self.is_current.set()
        self._uncommitted.publish(high_watermark)
        self._snapshot_if_due(self._publisher.image)
        while self._waiting and self._waiting[0].last_offset < high_watermark:
            _, future, appended_at = self._waiting.popleft()
            self.commit_seconds.append(self._runtime.clock.monotonic() - appended_at)
            # Whoever asked may have gone; the records stay.
            if not future.done():
                future.set_result(None)
        self._wake_fetches()

    def _fail(self, name: str, error: BaseException) -> None:
        """What is in memory may now be ahead of the disk for ever: refuse everything and stop the node."""
        self._failure = error
        self._refuse_waiting(StorageError(f"the metadata log cannot be written: {error}"))
        self._on_failure(name, error)

    def _refuse_waiting(self, refusal: KafkaError) -> None:
        while self._waiting:
            future = self._waiting.popleft().committed
            if not future.done():
                future.set_exception(refusal)
                # Who was answered before the commit does not look: then it is no news that nobody heard.
                future.exception()

    def _snapshot_if_due(self, image: MetadataImage) -> None:
        if self._snapshots.due and self._snapshot_task is None:
            quorum = self._replica.in_force(image.offset)
            task = self._scope.spawn(
                self._snapshots.take(image, quorum, self._synced_timestamp_ms), "snapshot"
            )
            task.add_done_callback(self._snapshot_done)
            self._snapshot_task = task

    def _snapshot_done(self, _: asyncio.Task[None]) -> None:
        self._snapshot_task = None

    # What other nodes ask.

    async def answer(self, request: Request) -> Response:
        """To Vote, BeginQuorumEpoch and EndQuorumEpoch. NotController while this node starts or stops."""
        if not self._is_started:
            # The core does not know yet which part it has: it could take itself for the leader it was.
            raise NotController("this node is starting")
        if self._closing or self._failure is not None:
            raise NotController("this node is stopping")
        # Whoever asks may go away; what follows from the question must be carried out all the same.
        step: asyncio.Task[Response] = self._scope.spawn(self._step(Requested(request)), "request")
        return await asyncio.shield(step)

    async def _change_voters(self, request: VoterChange) -> VoterChangeResponse:
        if self.is_alone and not isinstance(request, UpgradeRequest):
            raise UnsupportedVersion(
                f"node {self._core.me.id} was started on its own; give it a listener of "
                "controller.listener.names, let kraft.version be 1, and start it again"
            )
        response = await self.answer(request)
        assert isinstance(response, VoterChangeResponse)
        return response

    async def upgrade(self, kraft_version: int, *, validate_only: bool = False) -> None:
        """From now on the log has the voters. Raises what the client is to be told."""
        response = await self.voters.upgrade(UpgradeRequest(kraft_version, validate_only))
        if response.error is ErrorCode.invalid_update_version:
            raise InvalidUpdateVersion(response.message or "")
        if response.error is not ErrorCode.none:
            raise RequestTimedOut(response.message or response.error.name)

    async def _keep_place(self) -> None:
        """Among the voters, as the leader knows them."""
        while not self._closing:
            await asyncio.sleep(self.settings.timeouts.fetch / 1000)
            request, leader_id = self._own_place.request(), self._core.leader_id
            if request is not None and leader_id is not None:
                response = await self._peers.ask(leader_id, request)
                if isinstance(response, VoterChangeResponse):
                    self._own_place.answered(request, response)

    async def fetch(self, request: FetchRequest, wait_ms: int, bytes_max: int) -> FetchResponse:
        """With records, or when there is another news for who asks, or when the time is up."""
        deadline_s = self._runtime.clock.monotonic() + wait_ms / 1000
        while True:
            news = self._news
            response = await self.answer(request)
            assert isinstance(response, FetchResponse)
            if not response.is_valid:
                return response
            records = self._read(request.offset, bytes_max)
            if records:
                return response._replace(records=records)
            known = -1 if request.high_watermark is None else request.high_watermark
            newest = -1 if response.high_watermark is None else response.high_watermark
            left_s = deadline_s - self._runtime.clock.monotonic()
            if newest > known or left_s <= 0 or self._closing:
                return response
            request = request._replace(has_waited=True)
            try:
                async with asyncio.timeout(left_s):
                    await news.wait()
            except TimeoutError:
                continue

    def _read(self, offset: int, bytes_max: int) -> bytes:
        # A copy: the log may be cut off while the answer is on its way.
        return bytes(self._log.read(offset, min(bytes_max, READ_BYTES_MAX), upto=self._log.next_offset))

    async def fetch_snapshot(self, request: FetchSnapshotRequest, bytes_max: int) -> FetchSnapshotResponse:
        response = await self.answer(request)
        assert isinstance(response, FetchSnapshotResponse)
        if not response.is_valid:
            return response
        part = self._snapshots.read(request.snapshot, request.position, min(bytes_max, READ_BYTES_MAX))
        if part is None:
            return response._replace(error=ErrorCode.snapshot_not_found, snapshot=None)
        size, data = part
        if not data:
            return response._replace(error=ErrorCode.position_out_of_range, snapshot=None)
        return response._replace(size=size, data=data)

    def _wake_fetches(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def describe(self) -> QuorumDescription:
        core = self._core
        state = core.state
        voters: dict[int, Progress | None] = dict.fromkeys(core.voters.ids)
        observers: dict[ReplicaKey, Progress] = {}
        if isinstance(state, Leader):
            voters = {
                voter_id: self._in_wall_time(known) for voter_id, known in state.followers.voters.items()
            }
            observers = {
                replica: wall
                for replica, known in state.followers.observers.items()
                if (wall := self._in_wall_time(known)) is not None
            }
        return QuorumDescription(
            self._leads,
            core.leader_id,
            core.epoch,
            core.high_watermark or 0,
            self._log.next_offset,
            voters,
            observers,
            core.voters,
        )

    def _in_wall_time(self, progress: Progress | None) -> Progress | None:
        if progress is None:
            return None
        ahead_ms = self._runtime.clock.now_ms() - self._now_ms()
        caught_up_at_ms = progress.caught_up_at_ms
        return progress._replace(
            acknowledged_at_ms=progress.acknowledged_at_ms + ahead_ms,
            caught_up_at_ms=caught_up_at_ms + ahead_ms if caught_up_at_ms >= 0 else caught_up_at_ms,
        )

    # Stopping.

    async def close(self) -> None:
        """Commit what was appended, finish a snapshot that is being written, and let go of the log."""
        if not self.is_alone and self._failure is None and self._commit_task is not None:
            await self._say_farewell()
        self._closing = True
        self._appended.set()
        self._wake_fetches()
        if self._commit_task is not None:
            await asyncio.wait([self._commit_task])
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])
        self._alarm.set(None)
        await self._scope.close()
        self._peers.close()
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

    async def _say_farewell(self) -> None:
        """A leader that stops tells who is to follow it, so that nobody has to wait for it in vain."""
        await self._step(Resign())
        deadline_s = self._runtime.clock.monotonic() + FAREWELL_SECONDS
        while (
            isinstance(self._core.state, Resigned)
            and self._core.state.untold
            and self._runtime.clock.monotonic() < deadline_s
        ):
            news = self._news
            try:
                async with asyncio.timeout(FAREWELL_SECONDS / 20):
                    await news.wait()
            except TimeoutError:
                continue


def _control_records(change: QuorumChange, now_ms: int) -> list[Record]:
    """The version first, which says how to read what follows."""
    records = []
    if change.kraft_version is not None:
        records.append(kraft_version_record(change.kraft_version, now_ms))
    return [*records, voters_record(record_of(change.voters), now_ms)]
