"""A shard at work: loaded from its log, its records appended, its replies released, its deadlines kept.

Commands of one turn of the event loop share one append. Replies wait for it, and so do replies without
records of their own: they may rest on what has not been committed yet. If an append fails, memory is ahead of
the log; everybody waiting is told to try again and the shard is loaded anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.coordinator.journal import Instant, Outcome, Ticket
from ottla.coordinator.offsets_topic import OffsetsLog, read_batches
from ottla.coordinator.records import Key, UnknownRecord, Value, decode, encode
from ottla.coordinator.shard import GroupShard
from ottla.coordinator.topics import TopicsView
from ottla.records.records import Record, encode_batch
from ottla.runtime.clock import Clock
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaError,
    NotCoordinator,
)

log = logging.getLogger(__name__)

_LOAD_BYTES = 64 * 1024
"""Read and replayed in one turn of the event loop: some milliseconds."""
_RECORD_OVERHEAD_BYTES = 32
_RETRY_SECONDS = 1.0
_LATER_TIMER_MS = 1

_NOT_AVAILABLE = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_enough_replicas,
    ErrorCode.request_timed_out,
)
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)

Command = Callable[[GroupShard, Ticket, Instant], Outcome]


class HostedShard:
    def __init__(
        self,
        partition: int,
        offsets_log: OffsetsLog,
        new_shard: Callable[[], GroupShard],
        topics: Callable[[], TopicsView],
        clock: Clock,
        tasks: TaskScope,
        codec: int = 0,
    ) -> None:
        self.partition = partition
        self._log = offsets_log
        self._new_shard = new_shard
        self._topics = topics
        self._clock = clock
        self._tasks = tasks
        self._codec = codec
        self._shard: GroupShard | None = None
        self._is_closed = False
        self._records: list[tuple[Key, Value | None]] = []
        self._replies: list[tuple[Ticket, Any]] = []
        self._is_append_due = False
        self._commits: asyncio.Queue[tuple[Awaitable[None], list[tuple[Ticket, Any]]]] | None = None
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    # --- life

    def start(self) -> None:
        self._tasks.spawn(self._load(), f"load-{self.partition}")

    async def _load(self) -> None:
        while not self._is_closed:
            try:
                shard = await self._replayed()
            except (KafkaError, OSError) as error:
                log.error("cannot load groups from partition %d: %s; trying again", self.partition, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if shard is not None:
                self._shard = shard
                self._take(shard.loaded(self._topics(), self._now()))
            return

    async def _replayed(self) -> GroupShard | None:
        shard = self._new_shard()
        offset = self._log.start_offset(self.partition)
        count = 0
        while data := self._log.read(self.partition, offset, _LOAD_BYTES):
            for offset, records in read_batches(data):  # noqa: B007 - the last one is where to read on
                count += len(records)
                for record in records:
                    self._replay(shard, record)
            await asyncio.sleep(0)
            if self._is_closed:
                return None
        if count:
            log.info(
                "partition %d: %d groups from %d records", self.partition, len(shard.groups.by_id), count
            )
        return shard

    def _replay(self, shard: GroupShard, record: Record) -> None:
        try:
            key, value = decode(record.key, record.value)
        except UnknownRecord as error:
            log.warning("partition %d, offset %d is skipped: %s", self.partition, record.offset, error)
            return
        shard.replay(key, value)

    def close(self, error: KafkaError | None = None) -> None:
        """Another broker coordinates these groups now, or this one stops."""
        self._is_closed = True
        self._drop(
            error or NotCoordinator("this broker no longer coordinates the group; find its coordinator")
        )

    def _drop(self, error: KafkaError) -> None:
        self._shard = None
        self._records, self._replies = [], []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    # --- commands

    def submit(self, command: Command) -> asyncio.Future[Any]:
        """Done when the reply may be sent: at once, after a commit, or after a rebalance."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._shard is None:
            message = f"groups of partition {self.partition} are being loaded; retry"
            future.set_exception(CoordinatorLoadInProgress(message))
            return future
        self._waiting[future] = None
        shard = self._shard
        self._run(lambda now: command(shard, future, now))
        return future

    def notify(self, command: Callable[[GroupShard, Instant], Outcome]) -> None:
        """What nobody waits for: changed topics."""
        if (shard := self._shard) is not None:
            self._run(lambda now: command(shard, now))

    def _run(self, command: Callable[[Instant], Outcome]) -> None:
        try:
            outcome = command(self._now())
        except Exception as error:
            # A broken invariant. What is in the log is still right; start again from there.
            log.exception("partition %d: a command failed", self.partition)
            self._failed(error)
        else:
            self._take(outcome)

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _take(self, outcome: Outcome) -> None:
        records, replies = outcome
        if records:
            self._records += records
            if not self._is_append_due:
                self._is_append_due = True
                asyncio.get_running_loop().call_soon(self._append)
        if records or self._is_append_due or self._commits is not None:
            self._replies += replies
            if not self._is_append_due and replies:
                self._is_append_due = True
                asyncio.get_running_loop().call_soon(self._append)
        else:
            self._release(replies)
        self._arm()

    def _release(self, replies: list[tuple[Ticket, Any]]) -> None:
        for future, reply in replies:
            self._waiting.pop(future, None)
            if future.done():
                continue  # the client has gone
            if isinstance(reply, KafkaError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

    # --- the log

    def _append(self) -> None:
        self._is_append_due = False
        if self._shard is None:
            return
        records, self._records = self._records, []
        replies, self._replies = self._replies, []
        try:
            pending = self._log.append(self.partition, self._batches(records)) if records else None
        except Exception as error:
            self._failed(error)
            return
        if pending is None and self._commits is None:
            self._release(replies)
            return
        if self._commits is None:
            self._commits = asyncio.Queue()
            self._tasks.spawn(self._await_commits(self._commits), f"commit-{self.partition}")
        self._commits.put_nowait((pending or _committed(), replies))

    def _batches(self, records: list[tuple[Key, Value | None]]) -> bytes:
        now_ms = self._clock.now_ms()
        size_max = self._log.batch_bytes_max(self.partition) // 2
        batches: list[bytes] = []
        batch: list[Record] = []
        size = 0
        for key, value in records:
            key_bytes, value_bytes = encode(key, value)
            length = len(key_bytes) + len(value_bytes or b"") + _RECORD_OVERHEAD_BYTES
            if batch and size + length > size_max:
                batches.append(encode_batch(batch, codec=self._codec))
                batch, size = [], 0
            batch.append(Record(key_bytes, value_bytes, now_ms))
            size += length
        batches.append(encode_batch(batch, codec=self._codec))
        return b"".join(batches)

    async def _await_commits(
        self, commits: asyncio.Queue[tuple[Awaitable[None], list[tuple[Ticket, Any]]]]
    ) -> None:
        """In order, until nothing is under way; then replies go straight out again."""
        while not commits.empty():
            pending, replies = commits.get_nowait()
            try:
                await pending
            except KafkaError as error:
                self._failed(error)
                replies = []
            self._release(replies)
        self._commits = None

    def _failed(self, error: Exception) -> None:
        log.error("partition %d: groups cannot be stored (%s); loading them again", self.partition, error)
        self._drop(_told(error))
        if not self._is_closed:
            self.start()

    # --- deadlines

    def _arm(self) -> None:
        """One timer for the earliest deadline; heartbeats only move deadlines out and leave it alone."""
        deadline_ms = None if self._shard is None else self._shard.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = deadline_ms - int(self._clock.monotonic() * 1000) + _LATER_TIMER_MS
        self._timer = asyncio.get_running_loop().call_later(max(delay_ms, 0) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if (shard := self._shard) is not None:
            self._run(shard.tick)


async def _committed() -> None:
    pass


def _told(error: Exception) -> KafkaError:
    """What clients understand of an append that failed."""
    if isinstance(error, KafkaError):
        if error.code in _NOT_AVAILABLE:
            return CoordinatorNotAvailable(f"the group cannot be stored now: {error}; retry")
        if error.code in _TOO_LARGE:
            return KafkaError(
                f"the group is too large to be stored: {error}; raise max.message.bytes of the topic"
            )
    return NotCoordinator(f"the group cannot be stored here: {error}; find its coordinator again")
