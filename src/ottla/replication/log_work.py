"""Logs are made and put away here: off the commit of metadata, and off the event loop.

The commit notes what is to be done. It is done in the order noted, a few at a time, so that a topic deleted
and made anew finds its place free, and so that ten thousand partitions hold up nobody. What fails is tried
again, and takes nothing but that partition offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.config import LogConfig
from ottla.log.directory import LogDir
from ottla.log.log import PartitionLog
from ottla.log.manager import LogManager
from ottla.log.types import TopicPartition
from ottla.runtime import Offload
from ottla.runtime.tasks import finished
from ottla.wire.errors import StorageError

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
# A thread that makes logs takes turns with the event loop.
_AT_ONCE_MAX = 16
_SAID_AGAIN_TRIES = 60


class Creation:
    """A log that the broker should have."""

    __slots__ = ("config", "partition", "place", "topic_id", "tries")

    def __init__(self, partition: TopicPartition, topic_id: UUID, config: LogConfig) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.place: LogDir | None = None
        """Where it was tried. What came of that may still be there, and must not be in two places."""
        self.tries = 0


class Removal:
    """A log that is closed, whose files have to make room for others of the same name."""

    __slots__ = ("log", "stray_because", "target", "tries")

    def __init__(self, closed: PartitionLog, target: str, stray_because: str | None) -> None:
        self.log = closed
        self.target = target
        self.stray_because = stray_because
        """Why metadata does not know the log, which is kept then."""
        self.tries = 0


class _Made(NamedTuple):
    creation: Creation
    directory: LogDir
    outcome: PartitionLog | Exception


Work: TypeAlias = Creation | Removal


class LogWork:
    def __init__(
        self,
        logs: LogManager,
        offload: Offload,
        on_made: Callable[[Creation, PartitionLog], None],
        on_failed: Callable[[Creation, str], None],
        why_lost: Callable[[TopicPartition], str | None] = lambda partition: None,
    ) -> None:
        """`why_lost` says of a log that is not here why it must not begin empty, if so."""
        self._logs = logs
        self._offload = offload
        self._on_made = on_made
        self._on_failed = on_failed
        self._why_lost = why_lost
        self._queue: deque[Work] = deque()
        self._failed: list[Work] = []
        self._wanted: dict[TopicPartition, Creation] = {}
        """Logs that are not there yet."""
        self._untried: dict[str, int] = {}
        """By topic, how many of these nobody has tried to make."""
        self._noted = asyncio.Event()
        self._progress = asyncio.Event()

    # What is to be done.

    def create(self, partition: TopicPartition, topic_id: UUID, config: LogConfig) -> None:
        creation = self._wanted[partition] = Creation(partition, topic_id, config)
        self._untried[partition.topic] = self._untried.get(partition.topic, 0) + 1
        self._note(creation)

    def is_wanted(self, partition: TopicPartition) -> bool:
        return partition in self._wanted

    def configure(self, partition: TopicPartition, config: LogConfig) -> None:
        if partition in self._wanted:
            self._wanted[partition].config = config

    def forget(self, partition: TopicPartition) -> None:
        """Its topic is gone before the log was there."""
        creation = self._wanted.pop(partition, None)
        if creation is not None and not creation.tries:
            self._tried(creation)

    def put_away(self, partition: TopicPartition, stray_because: str | None = None) -> None:
        """Close the log now, and have its files removed; or kept under another name, if it is a stray."""
        closed = self._logs.close_log(partition)
        target = self._logs.name_out_of_use(closed, stray=stray_because is not None)
        self._note(Removal(closed, target, stray_because))

    async def wait_tried(self, topics: Iterable[str]) -> None:
        """Until each of their logs is there, or could not be made at once."""
        names = list(topics)
        while any(name in self._untried for name in names):
            await self._progress.wait()

    def _note(self, work: Work) -> None:
        self._queue.append(work)
        self._noted.set()

    # Doing it.

    async def run(self) -> None:
        while True:
            await self.catch_up()
            try:
                async with asyncio.timeout(RETRY_SECONDS if self._failed else None):
                    await self._noted.wait()
            except TimeoutError:
                # Before anything newer: what is in the way of that may be among it.
                self._queue.extendleft(reversed(self._failed))
                self._failed.clear()

    async def catch_up(self) -> None:
        """Do what is noted; what fails waits for another time."""
        self._noted.clear()
        while self._queue:
            works: list[Work] = []
            while self._queue and len(works) < _AT_ONCE_MAX:
                works.append(self._queue.popleft())
            await self._do(works)

    async def _do(self, works: Sequence[Work]) -> None:
        steps: list[Removal | tuple[Creation, LogDir]] = []
        works = [work for work in works if isinstance(work, Removal) or self._may_begin_empty(work)]
        creations = [work for work in works if isinstance(work, Creation)]
        try:
            await self._logs.write_down_as_gone([creation.partition for creation in creations])
        except StorageError as error:
            works = [work for work in works if isinstance(work, Removal)]
            for creation in creations:
                if self._wanted.get(creation.partition) is creation:
                    self._creation_failed(creation, error.message, _look_at("the data directories"))
        for work in works:
            if isinstance(work, Removal):
                # A thread that syncs would otherwise write into whatever comes in the place.
                await work.log.wait_flushed()
                steps.append(work)
            elif self._wanted.get(work.partition) is work:
                try:
                    work.place = self._logs.dir_for(work.partition, work.place)
                    steps.append((work, work.place))
                except StorageError as error:
                    self._creation_failed(work, error.message, _look_at("the data directories"))
        # Not left behind when cancelled: files that were made must not be made again beside them.
        for done in await finished(self._offload.run(self._carry_out, steps)):
            if isinstance(done, _Made):
                self._settle(done)
            else:
                self._settle_removal(*done)
        self._progress.set()
        self._progress.clear()

    def _may_begin_empty(self, creation: Creation) -> bool:
        partition = creation.partition
        if self._wanted.get(partition) is not creation or self._logs.has_unopened(partition):
            return True
        reason = self._why_lost(partition)
        if reason is not None:
            self._creation_failed(
                creation,
                reason,
                "Bring it back and restart the broker, or bring back another replica; one that lacks records "
                "is elected by kafka-leader-election --election-type unclean",
            )
        return reason is None

    def _carry_out(
        self, steps: Sequence[Removal | tuple[Creation, LogDir]]
    ) -> list[_Made | tuple[Removal, OSError | None]]:
        """In another thread."""
        done: list[_Made | tuple[Removal, OSError | None]] = []
        for step in steps:
            if isinstance(step, Removal):
                try:
                    self._logs.move_away(step.log, step.target)
                except OSError as error:
                    done.append((step, error))
                else:
                    done.append((step, None))
                continue
            creation, directory = step
            try:
                made = self._logs.make(directory, creation.partition, creation.topic_id, creation.config)
            # Files that are there already, and damaged, can raise anything.
            except Exception as error:
                done.append(_Made(creation, directory, error))
            else:
                done.append(_Made(creation, directory, made))
        return done

    def _settle(self, done: _Made) -> None:
        creation, directory, outcome = done
        directory.coming -= 1
        is_wanted = self._wanted.get(creation.partition) is creation
        if isinstance(outcome, Exception):
            doing = f"making or opening the log of {creation.partition}"
            reason = f"{outcome!r}"
            if isinstance(outcome, OSError):
                directory.refused(outcome, doing)
                reason = outcome.strerror or str(outcome)
            if is_wanted:
                self._creation_failed(creation, f"{reason} while {doing}", _look_at(directory.path))
            return
        if directory.failure is not None:
            outcome.release()
            if is_wanted:
                self._creation_failed(creation, directory.failure, _look_at(directory.path))
            return
        self._logs.add(directory, outcome)
        if not is_wanted:
            # Deleted while it was being made.
            self.put_away(creation.partition)
            return
        del self._wanted[creation.partition]
        if creation.tries:
            log.warning("%s: its log is there now, after %d tries", creation.partition, creation.tries + 1)
        self._tried(creation)
        outcome.update_config(creation.config)
        self._on_made(creation, outcome)

    def _creation_failed(self, creation: Creation, reason: str, remedy: str) -> None:
        if creation.tries % _SAID_AGAIN_TRIES == 0:
            log.error(
                "%s is offline: %s. %s; it is tried again every %d seconds",
                creation.partition,
                reason,
                remedy,
                RETRY_SECONDS,
            )
        self._tried(creation)
        creation.tries += 1
        self._failed.append(creation)
        self._on_failed(creation, reason)

    def _tried(self, creation: Creation) -> None:
        topic = creation.partition.topic
        if not creation.tries and topic in self._untried:
            self._untried[topic] -= 1
            if not self._untried[topic]:
                del self._untried[topic]
                self._progress.set()
                self._progress.clear()

    def _settle_removal(self, removal: Removal, error: OSError | None) -> None:
        partition = removal.log.topic_partition
        if error is None:
            if removal.stray_because is None:
                self._logs.remove_later(removal.log, removal.target)
            else:
                log.warning(
                    "%s: %s; its log is set aside as %s and not used",
                    partition,
                    removal.stray_because,
                    removal.target,
                )
        elif not isinstance(error, FileNotFoundError):
            if removal.tries % _SAID_AGAIN_TRIES == 0:
                log.error(
                    "%s: %s cannot be renamed to %s: %s; it is tried again every %d seconds",
                    partition,
                    removal.log.dir,
                    removal.target,
                    error,
                    RETRY_SECONDS,
                )
            removal.tries += 1
            self._failed.append(removal)


def _look_at(path: str) -> str:
    return f"Look at {path}: make room, or remove what is in the way"
