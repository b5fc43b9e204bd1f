"""A shard at work: loaded from its log, its records appended, its replies released, its deadlines kept.

Commands of one turn of the event loop share one append. Replies and effects wait for it, and so do those
without records of their own: they may rest on what has not been committed yet. If an append fails, memory is
ahead of the log; everybody waiting is told to try again and the shard is loaded anew.

Groups and transactions share all of this; a `ShardKind` says what is particular to either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple

from ottla.coordinator.host.journal import Instant, Outcome, Ticket
from ottla.coordinator.host.loading import Loading
from ottla.coordinator.host.shard_kind import Command, S, ShardKind
from ottla.records.markers import Marker
from ottla.records.producer import ProducerIdentity
from ottla.records.records import Record, encode_batch
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import Seldom
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaError,
    NotCoordinator,
)

log = logging.getLogger(__name__)

_RECORD_OVERHEAD_BYTES = 32
_FIRST_RETRY_SECONDS = 0.01
"""A log that is just being created is there in no time."""
_RETRY_SECONDS_MAX = 1.28
_COMMIT_SECONDS_MAX = 5.0
"""As long as Apache Kafka's offsets.commit.timeout.ms: then whoever waits is told to ask again."""
_LATER_TIMER_MS = 1

_NOT_AVAILABLE = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_enough_replicas,
    ErrorCode.request_timed_out,
)
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


class _Held(NamedTuple):
    """Until what it rests on is committed."""

    replies: list[tuple[Ticket, Any]]
    effects: list[Any]


class _Parked(NamedTuple):
    pending: Awaitable[None] | None
    held: _Held
    patience: asyncio.TimerHandle


class HostedShard(Generic[S]):
    def __init__(self, partition: int, kind: ShardKind[S], clock: Clock, tasks: TaskScope) -> None:
        self.partition = partition
        self._kind = kind
        self._log = kind.log
        self._clock = clock
        self._tasks = tasks
        self._shard: S | None = None
        self._is_closed = False
        self._is_loading = False
        self._load_task: asyncio.Task[None] | None = None
        self._load_error: Exception | None = None
        self._failures = 0
        """In a row, of storing what was decided."""
        self._says_load_error = Seldom(clock)
        self._says_failure = Seldom(clock)
        self._records: list[tuple[Any, Any]] = []
        self._held = _Held([], [])
        self._is_append_due = False
        self._commits: asyncio.Queue[_Parked] | None = None
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    @property
    def shard(self) -> S | None:
        """To look at; None until it is loaded."""
        return self._shard

    # --- life

    def start(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self._load_task = self._tasks.spawn(self._load(), f"load-{self._kind.noun}-{self.partition}")

    async def wait_loaded(self, timeout_seconds: float) -> None:
        if self._load_task is not None:
            await asyncio.wait([self._load_task], timeout=timeout_seconds)

    async def _load(self) -> None:
        """Until it succeeds: what is in the way may be a log that is still being created, or a disk that
        somebody is about to mend."""
        delay_seconds = _FIRST_RETRY_SECONDS
        # The first client of a new broker is waiting for it: no time to lose between two tries.
        await self._log.wait_made()
        if self._failures > 1:
            await asyncio.sleep(min(self._failures * _FIRST_RETRY_SECONDS, _RETRY_SECONDS_MAX))
        while not self._is_closed:
            try:
                shard = await Loading(self._kind, self.partition).run(lambda: not self._is_closed)
                outcome = None if shard is None else self._kind.loaded(shard, self._now())
                pending = None if shard is None else self._log.wait_committed(self.partition)
            except Exception as error:
                if delay_seconds >= _RETRY_SECONDS_MAX:
                    self._cannot_load(error)
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(delay_seconds * 2, _RETRY_SECONDS_MAX)
                continue
            self._is_loading = False
            self._load_error = None
            if shard is not None and outcome is not None:
                self._shard = shard
                if pending is not None:
                    self._park(pending, _Held([], []))
                self._take(outcome)
            return

    def _cannot_load(self, error: Exception) -> None:
        self._load_error = error
        if self._says_load_error.is_due():
            is_known = isinstance(error, KafkaError | OSError)
            log.error(
                "%s-%d: its %s cannot be loaded (%s) and are not served; others are. Trying again every %d s",
                self._kind.topic,
                self.partition,
                self._kind.noun,
                error if is_known else repr(error),
                _RETRY_SECONDS_MAX,
                exc_info=None if is_known else error,
            )

    def close(self, error: KafkaError | None = None) -> None:
        """Another broker coordinates this partition now, or this one stops."""
        self._is_closed = True
        self._drop(
            error
            or NotCoordinator(f"this broker no longer coordinates these {self._kind.noun}; find who does")
        )

    def _drop(self, error: KafkaError) -> None:
        self._shard = None
        self._records, self._held, self._commits = [], _Held([], []), None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    # --- commands

    def submit(self, command: Command[S]) -> asyncio.Future[Any]:
        """Done when the reply may be sent: at once, after a commit, or after a rebalance."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._shard is None:
            future.set_exception(self._loading())
            return future
        self._waiting[future] = None
        shard = self._shard
        self._run(lambda now: command(shard, future, now))
        return future

    def submit_transactional(self, producer: ProducerIdentity, command: Command[S]) -> asyncio.Future[Any]:
        """As `submit`, with all records of the command inside the producer's transaction.

        The log refuses a producer that has been replaced; it is asked before the command changes anything.
        """
        self._append()
        if self._shard is not None:
            try:
                self._log.check_producer(self.partition, producer)
            except KafkaError as error:
                return _refused(error)
        future = self.submit(command)
        self._append(producer)
        return future

    def end_transaction(self, marker: Marker, transaction_version: int = 0) -> asyncio.Future[None]:
        """Append the marker, then let the shard know. A marker the log refuses changes nothing."""
        self._append()
        if self._shard is None:
            return _refused(self._loading())
        try:
            pending = self._log.append_marker(self.partition, marker, transaction_version)
        except KafkaError as error:
            return _refused(error)
        except OSError as error:
            return _refused(_told(error, self._kind.noun))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        self._park(pending, _Held([(future, None)], []))
        shard = self._shard

        def end(now: Instant) -> Outcome:
            shard.replay_marker(marker.producer_id, committed=marker.committed)
            return Outcome([], [])

        self._run(end)
        return future

    def _loading(self) -> KafkaError:
        if self._load_error is not None:
            return NotCoordinator(
                f"{self._kind.noun} of {self._kind.topic}-{self.partition} cannot be loaded: "
                f"{self._load_error}; find the coordinator again"
            )
        return CoordinatorLoadInProgress(
            f"{self._kind.noun} of partition {self.partition} are being loaded; retry"
        )

    def notify(self, command: Callable[[S, Instant], Outcome]) -> None:
        """What nobody waits for: changed topics."""
        if (shard := self._shard) is not None:
            self._run(lambda now: command(shard, now))

    def _run(self, command: Callable[[Instant], Outcome]) -> None:
        try:
            outcome = command(self._now())
        except Exception as error:
            # A broken invariant. What is in the log is still right; start again from there.
            log.exception("%s-%d: a command failed", self._kind.topic, self.partition)
            self._failed(error)
        else:
            self._take(outcome)

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _take(self, outcome: Outcome) -> None:
        records, replies, effects = outcome
        if records:
            self._records += records
            if not self._is_append_due:
                self._is_append_due = True
                asyncio.get_running_loop().call_soon(self._append)
        if records or self._is_append_due or self._commits is not None:
            self._held.replies.extend(replies)
            self._held.effects.extend(effects)
            if not self._is_append_due and (replies or effects):
                self._is_append_due = True
                asyncio.get_running_loop().call_soon(self._append)
        else:
            self._release(outcome)
        self._arm()

    def _release(self, held: _Held | Outcome) -> None:
        """Effects first: whoever gets a reply may come again at once, and finds them done."""
        for effect in held.effects:
            self._kind.act(self.partition, effect)
        for future, reply in held.replies:
            self._waiting.pop(future, None)
            if future.done():
                continue  # the client has gone
            if isinstance(reply, KafkaError):
                # A traceback would hold on to the future, and to what was asked, until cycles are looked for.
                future.set_exception(reply.with_traceback(None))
            else:
                future.set_result(reply)

    # --- the log

    def _append(self, producer: ProducerIdentity | None = None) -> None:
        self._is_append_due = False
        if self._shard is None:
            return
        records, self._records = self._records, []
        held, self._held = self._held, _Held([], [])
        try:
            pending = self._log.append(self.partition, self._batches(records, producer)) if records else None
        except Exception as error:
            self._failed(error)
            return
        if records and pending is None:
            self._failures = 0
        self._park(pending, held)

    def _park(self, pending: Awaitable[None] | None, held: _Held) -> None:
        """Until what was appended is committed, and everything before it."""
        if pending is None and self._commits is None:
            self._release(held)
            return
        if self._commits is None:
            self._commits = asyncio.Queue()
            self._tasks.spawn(
                self._await_commits(self._commits), f"commit-{self._kind.noun}-{self.partition}"
            )
        patience = asyncio.get_running_loop().call_later(_COMMIT_SECONDS_MAX, self._too_late, held)
        self._commits.put_nowait(_Parked(pending, held, patience))

    def _batches(self, records: list[tuple[Any, Any]], producer: ProducerIdentity | None) -> bytes:
        now_ms = self._clock.now_ms()
        size_max = self._log.batch_bytes_max(self.partition) // 2
        batches: list[bytes] = []
        batch: list[Record] = []
        size = 0
        for key, value in records:
            key_bytes, value_bytes = self._kind.encode(key, value)
            length = len(key_bytes) + len(value_bytes or b"") + _RECORD_OVERHEAD_BYTES
            if batch and size + length > size_max:
                batches.append(self._batch(batch, producer))
                batch, size = [], 0
            batch.append(Record(key_bytes, value_bytes, now_ms))
            size += length
        batches.append(self._batch(batch, producer))
        return b"".join(batches)

    def _batch(self, records: list[Record], producer: ProducerIdentity | None) -> bytes:
        if producer is None:
            return encode_batch(records, codec=self._kind.codec)
        return encode_batch(
            records,
            codec=self._kind.codec,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transactional=True,
        )

    async def _await_commits(self, commits: asyncio.Queue[_Parked]) -> None:
        """In order, until nothing is under way; then replies go straight out again.

        If the shard is dropped meanwhile, nothing follows from what it had decided: it may be lost.
        """
        while not commits.empty():
            pending, held, patience = commits.get_nowait()
            try:
                if pending is not None:
                    await pending
            except Exception as error:
                if self._commits is commits:
                    self._failed(error)
            else:
                if self._commits is commits:
                    self._failures = 0
                    self._release(held)
            finally:
                patience.cancel()
        if self._commits is commits:
            self._commits = None

    def _too_late(self, held: _Held) -> None:
        """Too few replicas have it yet. It stays decided, and its effects follow when they have."""
        replies = held.replies.copy()
        held.replies.clear()
        error = CoordinatorNotAvailable(f"{self._kind.noun} are not replicated yet; retry")
        self._release(_Held([(future, error) for future, _ in replies], []))

    def _failed(self, error: Exception) -> None:
        """Memory is ahead of the log: whoever waits tries again, once the shard is what the log says."""
        self._failures += 1
        if self._says_failure.is_due():
            log.error(
                "%s-%d: %s cannot be stored (%s); loading them again",
                self._kind.topic,
                self.partition,
                self._kind.noun,
                error,
            )
        self._drop(_told(error, self._kind.noun))
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


def _refused(error: KafkaError) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error.with_traceback(None))
    return future


def _told(error: Exception, noun: str) -> KafkaError:
    """What clients understand of an append that failed."""
    if isinstance(error, KafkaError):
        if error.code in _NOT_AVAILABLE:
            return CoordinatorNotAvailable(f"{noun} cannot be stored now: {error}; retry")
        if error.code in _TOO_LARGE:
            return KafkaError(
                f"what is kept of one of the {noun} is too large to be stored: {error}; raise "
                "max.message.bytes of the topic"
            )
    return NotCoordinator(f"{noun} cannot be stored here: {error}; find the coordinator again")
