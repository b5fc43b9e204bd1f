"""One partition as one share group reads it, at its leader: what is in flight, and that it is stored.

State is read when somebody of the group first wants something. Whatever changes is written one change
behind the other; those that come meanwhile go together. Should another leader, or another state, have taken
over, this one is fenced: whoever comes next begins with what is stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from ottla.replication.partition import Partition, Role
from ottla.replication.share.in_flight import (
    Acknowledgement,
    Acquired,
    InFlight,
    LogBatch,
    StateBatch,
    Transition,
    Wanted,
)
from ottla.replication.share.persister import UNINITIALIZED, Persister, ShareKey, StateChange, StoredState
from ottla.replication.share.settings import SettingsOf
from ottla.runtime.clock import Clock
from ottla.runtime.seldom import SeldomEach
from ottla.runtime.tasks import TaskScope
from ottla.wire.errors import ErrorCode, KafkaError, NotLeaderOrFollower

log = logging.getLogger(__name__)

_SHOWN_MAX = 100
"""Of the name of a group."""

_FENCING = {
    ErrorCode.fenced_leader_epoch,
    ErrorCode.fenced_state_epoch,
    ErrorCode.not_leader_or_follower,
    ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
}


class _Write:
    __slots__ = ("batches", "done")

    def __init__(self, batches: list[StateBatch], done: asyncio.Future[None]) -> None:
        self.batches = batches
        self.done = done


class SharePartition:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        persister: Persister,
        settings_of: SettingsOf,
        clock: Clock,
        tasks: TaskScope,
        look_ups: asyncio.Semaphore,
        on_fenced: Callable[[SharePartition], None],
        complaints: SeldomEach,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.error: KafkaError | None = None
        """Why it is of no use any more."""
        self._persister = persister
        self._settings_of = settings_of
        self._clock = clock
        self._tasks = tasks
        self._look_ups = look_ups
        self._on_fenced = on_fenced
        self._complaints = complaints
        self._flight: InFlight | None = None
        """None until it is loaded."""
        self._state_epoch = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._writes: list[_Write] = []
        self._is_writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._name = f"{key.group_id[:_SHOWN_MAX]}:{partition.topic_partition}"
        tasks.spawn(self._load(), f"share-state-of-{self._name}")

    # Life.

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return (
            self.error is None
            and partition.role is Role.LEADER
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def is_idle(self) -> bool:
        """Nothing of it is still to be stored."""
        return not self._writes and not self._is_writing

    @property
    def flight(self) -> InFlight | None:
        """None while it is being loaded."""
        return self._flight

    def fence(self, error: KafkaError) -> None:
        """What is acquired here is not to be acknowledged any more."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for write in self._writes:
            _fail(write.done, error)
        self._writes.clear()
        self._on_fenced(self)
        self.wake()

    async def _load(self) -> None:
        try:
            stored = await self._persister.read(self.key, self.leader_epoch)
            start = stored.start_offset
            if start == UNINITIALIZED:
                start = await self._first_offset()
        except Exception as error:
            # Of this group alone, whatever it is.
            self._complain("its state cannot be read", error)
            self.fence(_seen_by_members(error))
            return
        if self.error is None:
            self._loaded(stored, start)

    def _complain(self, what: str, error: Exception) -> None:
        # By partition: names of groups are the clients' to choose, and each may have another.
        if self._complaints.is_due(str(self.partition.topic_partition)):
            log.warning("%s: %s: %s", self._name, what, error)

    def _loaded(self, stored: StoredState, start: int) -> None:
        self._state_epoch = stored.state_epoch
        end = self.partition.log.next_offset
        if start > end:
            # A log that was cut by an unclean election, or a state that somebody made up.
            if self._complaints.is_due(str(self.partition.topic_partition)):
                log.warning(
                    "%s: its state begins at offset %d, behind the end of the log; the group goes on at the "
                    "end, %d",
                    self._name,
                    start,
                    end,
                )
            start = end
        # Of what the log does not have nothing is known.
        batches = [batch._replace(last=min(batch.last, end - 1)) for batch in stored.batches]
        self._flight = InFlight(start, [batch for batch in batches if batch.first <= batch.last])
        self.wake()

    async def _first_offset(self) -> int:
        """Of a group that comes for the first time."""
        partition = self.partition
        settings = self._settings_of(self.key.group_id)
        if settings.begins_at == "earliest":
            return partition.log.start_offset
        if settings.begins_at == "by_duration":
            from_ms = self._clock.now_ms() - settings.begins_ms_ago
            async with self._look_ups:
                found = await partition.log.offset_for_timestamp(from_ms, partition.high_watermark)
            if found is not None:
                return found.offset
        return partition.high_watermark

    # Who waits.

    def wait(self, told: Callable[[], None]) -> None:
        """Once, when there may be something to acquire that was not there before."""
        self._waiting[told] = None

    def wait_no_more(self, told: Callable[[], None]) -> None:
        self._waiting.pop(told, None)

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for told in waiting:
            told()

    # What members do.

    def acquire(self, member: str, batches: Iterable[LogBatch], wanted: Wanted) -> list[Acquired]:
        assert self._flight is not None
        settings = self._settings_of(self.key.group_id)
        acquired = self._flight.acquire(member, batches, wanted, settings, self._lock_until())
        self._watch_locks()
        return acquired

    async def acknowledge(self, member: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Returns when it is stored; else raises KafkaError, and it is as if it had not been asked."""
        flight = self._check_loaded()
        settings = self._settings_of(self.key.group_id)
        transition = flight.acknowledge(member, acknowledgements, settings, self._lock_until())
        self._watch_locks()
        await self._store(flight, transition)

    async def release(self, member: str) -> None:
        """All that a member has, which is gone."""
        flight = self._flight
        if flight is not None and self.error is None:
            await self._store(flight, flight.release(member, self._settings_of(self.key.group_id)))

    def _check_loaded(self) -> InFlight:
        if self.error is not None:
            raise self.error
        if self._flight is None:
            raise NotLeaderOrFollower(
                f"{self._name}: this broker leads the partition only now, and reads the state of the group; "
                "acquired records of the former leader are delivered again"
            )
        return self._flight

    # Locks.

    def _lock_until(self) -> float:
        return self._clock.monotonic() + self._settings_of(self.key.group_id).lock_duration_ms / 1000

    def _watch_locks(self) -> None:
        """One timer, for the lock that expires first."""
        at = None if self._flight is None else self._flight.next_expiry
        if at is None or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay = max(0.0, at - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._expire)

    def _expire(self) -> None:
        self._timer = None
        flight = self._flight
        if flight is None or self.error is not None:
            return
        if not self.is_current:
            self.fence(NotLeaderOrFollower(f"this broker leads {self.partition.topic_partition} no more"))
            return
        batches = flight.expire(self._settings_of(self.key.group_id), self._clock.monotonic())
        if batches:
            self._write(batches).add_done_callback(_seen)
            self.wake()
        self._watch_locks()

    # Storing.

    async def _store(self, flight: InFlight, transition: Transition) -> None:
        batches = transition.batches
        if not batches:
            return
        done = self._write(batches)
        done.add_done_callback(lambda done: self._stored(flight, transition, done))
        # Whoever asked may go away: what is decided is stored all the same.
        await asyncio.shield(done)

    def _stored(self, flight: InFlight, transition: Transition, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            settings = self._settings_of(self.key.group_id)
            flight.roll_back(transition, settings, self._clock.monotonic())
        else:
            flight.commit(transition)
        if self.error is None:
            self._watch_locks()
            self.wake()

    def _write(self, batches: list[StateBatch]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.error is not None:
            _fail(done, self.error)
            return done
        self._writes.append(_Write(batches, done))
        if not self._is_writing:
            self._is_writing = True
            self._tasks.spawn(self._write_all(), f"share-state-of-{self._name}")
        return done

    async def _write_all(self) -> None:
        try:
            while self._writes:
                together, batches = self._take()
                try:
                    await self._persister.write(self.key, self._change(batches))
                except Exception as error:
                    self._not_written(together, error)
                else:
                    for write in together:
                        if not write.done.done():
                            write.done.set_result(None)
                    # Their callbacks come first: what is written next says what they made of it.
                    await asyncio.sleep(0)
        finally:
            self._is_writing = False

    def _not_written(self, together: Iterable[_Write], error: Exception) -> None:
        self._complain("its state cannot be written", error)
        told = _seen_by_members(error)
        for write in together:
            _fail(write.done, told)
        if told.code in _FENCING:
            self.fence(told)

    def _take(self) -> tuple[list[_Write], list[StateBatch]]:
        """As many as do not speak of the same offsets."""
        together: list[_Write] = []
        batches: list[StateBatch] = []
        for write in self._writes:
            merged = sorted([*batches, *write.batches])
            if any(one.last >= other.first for one, other in pairwise(merged)):
                break
            together.append(write)
            batches = merged
        if not together:
            # One that contradicts itself: the last word counts, and coordinators know which that is.
            together, batches = [self._writes[0]], self._writes[0].batches
        del self._writes[: len(together)]
        return together, batches

    def _change(self, batches: Sequence[StateBatch]) -> StateChange:
        flight = self._flight
        assert flight is not None
        return StateChange(
            self._state_epoch, self.leader_epoch, flight.start, flight.delivery_complete_count, batches
        )


def _seen_by_members(error: Exception) -> KafkaError:
    """Who writes for an old leader is none; what else a coordinator says is as it says."""
    if not isinstance(error, KafkaError):
        return KafkaError(f"the state of the share group cannot be used: {error!r}")
    if error.code in (ErrorCode.fenced_leader_epoch, ErrorCode.fenced_state_epoch):
        return NotLeaderOrFollower(str(error))
    return error


def _fail(done: asyncio.Future[None], error: KafkaError) -> None:
    if not done.done():
        done.set_exception(error)
        done.add_done_callback(_seen)


def _seen(done: asyncio.Future[None]) -> None:
    """Nobody need look at it."""
    if not done.cancelled():
        done.exception()
