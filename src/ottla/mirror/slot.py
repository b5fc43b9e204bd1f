"""One slot of a flow: a share of the partitions, mirrored by one transactional producer.

Each transaction has the records of some partitions and, in the offset topic, how far they go. Whatever goes
wrong, the transaction is aborted and the next one begins where the last that was committed ended, so that
nothing is lost or repeated. A process that takes a slot over shuts out the one before with its first request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.client.admin.topics import Partition
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.errors import ClusterUnreachable, error_for
from ottla.client.metadata import NO_LEADER
from ottla.client.peer import PeerLost
from ottla.client.transaction import Transactions
from ottla.mirror.batches import merge_small
from ottla.mirror.fetching import Chunk, Fetcher
from ottla.mirror.formats import OffsetSync, SourcePosition
from ottla.mirror.offset_syncs import Run
from ottla.mirror.positions import Positions
from ottla.mirror.sending import PartitionRefused, TransactionSender
from ottla.records.compression import CorruptRecords
from ottla.records.producer import ProducerIdentity
from ottla.wire.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_TRANSACTION_BYTES_MAX: Final = 32 * 1024 * 1024
# With nothing more to come at once, a transaction ends.
_LINGER_S: Final = 0.01
_IDLE_S: Final = 0.2
_AGAIN_S: Final = 0.5
_AGAIN_S_MAX: Final = 15.0
# Positions that moved past markers alone are written down when nothing else was for so long.
_SKIPPED_S: Final = 5.0
_SET_ASIDE_S: Final = 30.0
_LEADERLESS_S: Final = 5.0
# A topic that the target lacks is made at once, and one that is new is soon known to all brokers.
_MISSING_S: Final = 2.0
_FENCED: Final = frozenset(
    (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch, ErrorCode.transactional_id_not_found)
)


@dataclass(slots=True)
class Mirrored:
    """What this process has done, for whoever shows it."""

    records: int = 0
    bytes: int = 0
    transactions: int = 0
    aborted: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition of the source that is to be mirrored."""

    topic_id: str | None
    target: Partition


@dataclass(slots=True)
class Slot:
    """`run` it until the slot is somebody else's."""

    name: str
    source: ClusterClient
    target: ClusterClient
    transactional_id: str
    positions: Positions
    wanted: Callable[[], Mapping[Partition, Wanted]]
    """Partitions of this slot, as they are known at the moment."""
    committed: Callable[[Mapping[Partition, list[Run]], list[OffsetSync]], None]
    """Told of what is in the target for good, by the source's partitions."""
    is_still_ours: Callable[[], Awaitable[bool]]
    refresh: Callable[[], None]
    """Asks for topics to be looked at again: the target lacks one."""
    commit_interval_s: float
    starts_at_end: bool = False
    mirrored: Mirrored = field(default_factory=Mirrored)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _set_aside: dict[Partition, float] = field(default_factory=dict)
    _unmerged: set[Partition] = field(default_factory=set)
    _skipped: dict[Partition, int] = field(default_factory=dict)
    """Partitions that moved past markers alone, or that begin at their end: the last offset before."""
    _ends: dict[Partition, int] = field(default_factory=dict)
    """Where partitions ended when the mirror began, if that is where it begins and not written down yet."""
    _committed: int = 0
    _has_begun: bool = False
    _stopping: bool = False

    def stop(self) -> None:
        """After the transaction that is under way."""
        self._stopping = True

    def partitions_changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        pause_s = _AGAIN_S
        while not self._stopping:
            before = self._committed
            try:
                await self._mirror()
            except PartitionRefused as refused:
                if await self._is_taken_over(refused.error):
                    return
                self._refused(refused)
            except KafkaError as error:
                if await self._is_taken_over(error):
                    return
                _log.warning("%s: %s; starting again", self.name, error)
            except (PeerLost, ClusterUnreachable, CorruptRecords, OSError, TimeoutError) as error:
                _log.warning("%s: %s; starting again", self.name, str(error) or "no answer in time")
            pause_s = _AGAIN_S if self._committed > before else min(2 * pause_s, _AGAIN_S_MAX)
            if not self._stopping:
                await asyncio.sleep(pause_s)

    def _refused(self, refused: PartitionRefused) -> None:
        """Sets a partition aside that the target does not take, so that others can go on."""
        error = refused.error
        is_missing = error.code == ErrorCode.unknown_topic_or_partition
        if error.code == ErrorCode.message_too_large and refused.partition not in self._unmerged:
            # It may be that only what was packed together is too large.
            self._unmerged.add(refused.partition)
        elif (error.code.retriable and not is_missing) or error.code in _FENCED:
            _log.warning("%s: %s; starting again", self.name, refused)
        else:
            left_out_s = _MISSING_S if is_missing else _SET_ASIDE_S
            remedy = _REMEDIES.get(error.code, "")
            _log.error(
                "%s: the target does not take %s%s; it is left out for %d s",
                self.name, refused, remedy, left_out_s,
            )  # fmt: skip
            until = time.monotonic() + left_out_s
            self._set_aside |= {
                source: until
                for source, wanted in self.wanted().items()
                if wanted.target == refused.partition
            }
            self.refresh()

    async def _is_taken_over(self, error: KafkaError) -> bool:
        """Whether the slot is somebody else's now; one that cannot find out takes it that way."""
        if error.code not in _FENCED:
            return False
        try:
            if await self.is_still_ours():
                return False
        except (KafkaError, PeerLost, ClusterUnreachable, OSError, TimeoutError) as unknown:
            _log.warning("%s: %s", self.name, str(unknown) or "no answer in time")
        _log.info("%s: another process has taken over", self.name)
        return True

    async def _mirror(self) -> None:
        transactions = Transactions(self.target, self.transactional_id, timeout_ms=_TRANSACTION_TIMEOUT_MS)
        producer = await transactions.begin()
        fetcher = Fetcher(self.source, self.name, self.refresh)
        reading: asyncio.Task[None] | None = None
        try:
            self._skipped.clear()
            topic_ids = await self._add_new(fetcher, {})
            reading = asyncio.ensure_future(fetcher.run())
            # Where to begin is written down at once, or another process would begin elsewhere.
            due = time.monotonic()
            while not self._stopping:
                if self._changed.is_set() or self._are_back():
                    topic_ids = await self._add_new(fetcher, topic_ids)
                chunks = await fetcher.take(_IDLE_S)
                if reading.done():
                    reading.result()
                is_due = bool(self._skipped) and time.monotonic() >= due
                if is_due or any(chunk.batches for chunk in chunks):
                    await self._transact(transactions, producer, fetcher, chunks, topic_ids)
                    due = time.monotonic() + _SKIPPED_S
                    producer = await transactions.begin()
                else:
                    self._skipped |= {chunk.partition: chunk.next_offset - 1 for chunk in chunks}
        except BaseException:
            self.mirrored.aborted += 1
            raise
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _are_back(self) -> bool:
        now = time.monotonic()
        back = [partition for partition, until in self._set_aside.items() if until <= now]
        for partition in back:
            del self._set_aside[partition]
        return bool(back)

    async def _add_new(
        self, fetcher: Fetcher, known: Mapping[Partition, str | None]
    ) -> dict[Partition, str | None]:
        """Reads from partitions that have come, and no longer from those that are gone; the ids of topics."""
        self._changed.clear()
        wanted = {
            partition: each for partition, each in self.wanted().items() if partition not in self._set_aside
        }
        for partition in fetcher.partitions - wanted.keys():
            fetcher.remove(partition)
        # A topic of another id was made anew, and begins at its beginning.
        fresh = [
            each
            for each, found in wanted.items()
            if each not in fetcher.partitions or known.get(each, found.topic_id) != found.topic_id
        ]
        positions = await self.positions.read() if fresh else {}
        skips = self.starts_at_end and not self._has_begun
        readable = await self._readable(fresh, {each for each in fresh if skips and each not in positions})
        for partition in set(fresh) - set(readable):
            # Of a topic that was made anew, the one before it is not to be read on meanwhile.
            fetcher.remove(partition)
        self._skipped = {
            partition: offset
            for partition, offset in self._skipped.items()
            if partition in wanted and partition not in fresh
        }
        if readable:
            begun: dict[Partition, int] = {}
            for partition in readable:
                position, topic_id = positions.get(partition), wanted[partition].topic_id
                if position is None:
                    continue
                if position.topic_id in {None, topic_id}:
                    begun[partition] = position.offset + 1
                else:
                    self._ends.pop(partition, None)
                    _log.warning(
                        "%s: the topic of %s was made anew in the source; it is mirrored from its beginning",
                        self.name, partition,
                    )  # fmt: skip
            starts = await self._starts([each for each in readable if each not in begun], skips=skips)
            self._skipped |= {each: offset - 1 for each, offset in starts.items() if each in self._ends}
            ids = {partition.topic: _uuid(wanted[partition].topic_id) for partition in readable}
            fetcher.add(begun | starts, ids)
            self._tell_of(positions, readable)
        self._has_begun = self._has_begun or not self._skipped
        return {partition: found.topic_id for partition, found in wanted.items()}

    async def _starts(self, partitions: list[Partition], *, skips: bool) -> dict[Partition, int]:
        """Who wants to begin at the end means that of the start, also of partitions that are left out at
        first; what comes later is wanted whole."""
        if skips:
            ends = await self.source.list_offsets(
                {each: LATEST for each in partitions if each not in self._ends}
            )
            self._ends |= {Partition(*place): at.offset for place, at in ends.items()}
        begins = await self.source.list_offsets(dict.fromkeys(partitions, EARLIEST))
        return {each: self._ends.get(each, begins[each].offset) for each in partitions}

    async def _readable(self, partitions: list[Partition], at_end: set[Partition]) -> list[Partition]:
        """Without those that have gone since topics were looked at, or that not all brokers know of yet, and
        those that nobody leads at present: they would keep the others waiting, and are looked at again. Those
        `at_end` have to be led: where they end now is where they begin."""
        topics = await self.source.topics({partition.topic for partition in partitions}) if partitions else {}
        found = []
        for partition in partitions:
            topic = topics.get(partition.topic)
            info = None if topic is None else topic.partitions.get(partition.number)
            if info is None:
                self._set_aside[partition] = time.monotonic() + _MISSING_S
                self.refresh()
            elif info.leader == NO_LEADER and partition in at_end:
                raise error_for(ErrorCode.leader_not_available, None, f"where {partition} begins")
            elif info.leader == NO_LEADER:
                _log.warning(
                    "%s: %s has no leader in the source at present; looking again in %d s",
                    self.name, partition, _LEADERLESS_S,
                )  # fmt: skip
                self._set_aside[partition] = time.monotonic() + _LEADERLESS_S
            else:
                found.append(partition)
        return found

    def _tell_of(self, positions: Mapping[Partition, SourcePosition], fresh: list[Partition]) -> None:
        """Syncs that a process which was killed may have owed."""
        syncs = [
            OffsetSync(partition, position.offset, position.downstream)
            for partition in fresh
            if (position := positions.get(partition)) is not None and position.downstream is not None
        ]
        if syncs:
            self.committed({}, syncs)

    async def _transact(
        self,
        transactions: Transactions,
        producer: ProducerIdentity,
        fetcher: Fetcher,
        chunks: list[Chunk],
        topic_ids: Mapping[Partition, str | None],
    ) -> None:
        sender = TransactionSender(self.target, self.transactional_id, producer)
        ends = time.monotonic() + self.commit_interval_s
        moved = dict(self._skipped)
        targets: dict[Partition, Partition] = {}
        try:
            while chunks:
                wanted = self.wanted()
                for chunk in chunks:
                    if chunk.partition not in wanted:
                        # Should it come back, it is read again from where it was committed.
                        fetcher.remove(chunk.partition)
                chunks = [chunk for chunk in chunks if chunk.partition in wanted]
                targets |= {
                    wanted[chunk.partition].target: chunk.partition for chunk in chunks if chunk.batches
                }
                await sender.announce(targets)
                for chunk in chunks:
                    moved[chunk.partition] = chunk.next_offset - 1
                    if chunk.batches:
                        target = wanted[chunk.partition].target
                        is_merged = target not in self._unmerged
                        batches = merge_small(chunk.batches) if is_merged else chunk.batches
                        await sender.send(target, batches)
                if sender.bytes >= _TRANSACTION_BYTES_MAX or time.monotonic() >= ends:
                    break
                chunks = await fetcher.take(_LINGER_S)
            await sender.finish()
            records, size = sender.records, sender.bytes
            runs = {targets[target]: found for target, found in sender.runs.items()}
            last = {partition: found[-1] for partition, found in runs.items()}
            written = {
                partition: SourcePosition(
                    offset, topic_ids.get(partition), _downstream(last.get(partition), offset)
                )
                for partition, offset in moved.items()
            }
            await self._write_positions(sender, written)
        except BaseException:
            sender.cancel()
            raise
        await transactions.commit("", {})
        self.mirrored.records += records
        self.mirrored.bytes += size
        self._skipped.clear()
        for partition in moved:
            self._ends.pop(partition, None)
        self._has_begun = True
        self.mirrored.transactions += 1
        self._committed += 1
        syncs = []
        for partition, found in runs.items():
            first, end = found[0], found[-1]
            syncs.append(OffsetSync(partition, first.upstream, first.downstream))
            if end.upstream + end.records - 1 > first.upstream:
                syncs.append(
                    OffsetSync(partition, end.upstream + end.records - 1, end.downstream + end.records - 1)
                )
        self.committed(runs, syncs)

    async def _write_positions(
        self, sender: TransactionSender, written: Mapping[Partition, SourcePosition]
    ) -> None:
        batches = await self.positions.batches(written, time.time_ns() // 1_000_000)
        await sender.announce(batches)
        for place, batch in batches.items():
            await sender.send(place, [batch])
        await sender.finish()


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def _downstream(run: Run | None, offset: int) -> int | None:
    """What the last record is called in the target; None where markers came after it."""
    if run is None or run.upstream + run.records - 1 != offset:
        return None
    return run.downstream + run.records - 1


_REMEDIES: Final = {
    ErrorCode.message_too_large: " (raise max.message.bytes of the topic there)",
    ErrorCode.topic_authorization_failed: " (the mirror's user needs WRITE and DESCRIBE on it)",
}
