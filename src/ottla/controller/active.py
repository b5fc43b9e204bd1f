"""The active controller, the single writer: runs commands against the newest state, persists, then answers.

There is one while this node leads the quorum, made anew each time that it gains leadership. A command sees
everything accepted before it, committed or not, so two requests for the same topic in flight conflict as they
should. Everybody else sees the published image, which only moves when records are committed. A command for a
long list lets others have their turns between its items, and further commands like it wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.controller.command import RECORDS_MAX, Deciding, Result
from ottla.controller.features import one_isr_min
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    new_cluster_records,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.raft.driver import Appended, RaftDriver
from ottla.runtime.turns import run_in_turns
from ottla.wire.errors import KafkaError, NotController, RequestTimedOut

log = logging.getLogger(__name__)

T = TypeVar("T")


class ActiveController:
    def __init__(
        self,
        quorum: RaftDriver,
        publisher: MetadataPublisher,
        bootstrap: Callable[[], Sequence[MetadataRecord]] = tuple,
        isr_min: int = 1,
    ) -> None:
        """Everything committed before this node led has been published.

        `bootstrap` are the records that a new cluster begins with, besides its features; `isr_min` is the
        configured min.insync.replicas.
        """
        self._isr_min = isr_min
        self._bootstrap = bootstrap
        self._quorum = quorum
        self._publisher = publisher
        self._newest = publisher.image
        self._initial = self._missing_records()
        self._deciding = asyncio.Lock()
        self._cuts = 0
        """How often what was not committed yet had to be taken back."""
        self._resigned = False
        self._accepted: Appended | None = None
        """The last that was."""

    def _missing_records(self) -> list[MetadataRecord]:
        """What the log must say before anything else; written with the first command, in most cases a
        broker's registration."""
        missing: list[MetadataRecord] = []
        if self._publisher.in_transaction:
            from ottla.metadata.foreign_records import AbortTransactionRecord

            missing.append(AbortTransactionRecord(reason="Controller failover"))
        if METADATA_VERSION not in self.newest.features:
            missing += self._quorum.initial_records or new_cluster_records()
            missing += self._bootstrap()
            if any(_keeps_eligible_replicas(record) for record in missing):
                missing += one_isr_min(self.newest, self._isr_min)
        return missing

    def begin(self) -> None:
        """Write what the log must say before anything else, so that commands see it. Without it, a sole
        broker's registration takes it along, which saves a sync."""
        if self._initial:
            try:
                written = self._append([]).committed
            except KafkaError as refusal:
                log.warning("the first records of a leader are written with its first command: %s", refusal)
            else:
                # Nobody waits for it: what is lost with the leadership, the next leader writes.
                written.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def newest(self) -> MetadataImage:
        """With everything accepted, though it may not be committed yet."""
        # Two images that say the same would share less and less as they go on.
        if self._newest.offset <= self._publisher.image.offset:
            self._newest = self._publisher.image
        return self._newest

    @property
    def next_offset(self) -> int:
        """Of the first record of the next command."""
        return self._quorum.next_offset + len(self._initial)

    def resign(self) -> None:
        """This node leads no more: whoever still waits for a turn is told to ask the one who does."""
        self._resigned = True

    def cut(self) -> None:
        """What was accepted and not committed is gone again."""
        self._newest = self._publisher.image
        self._initial = self._missing_records()
        self._cuts += 1

    async def decide(
        self,
        command: Callable[[MetadataImage], Deciding[T]],
        *,
        validate_only: bool = False,
        in_parts: bool = False,
        only_once: bool = False,
    ) -> T:
        """`in_parts`: the records need not count together, so that there may be more than fit a batch.

        NotController says that the next leader may be asked, though records that were not committed under
        this one may be under that. With `only_once` that is told as RequestTimedOut: what takes something
        away might take it from whoever has made it again since.
        """
        while True:
            appended: Appended | None = None
            cuts = self._cuts
            # What a command for topics or configs has looked at must not change before its records are in.
            async with self._deciding:
                result = await run_in_turns(command(self.newest))
                self._check_leads()
                if cuts != self._cuts:
                    continue
                records = () if validate_only else result.records
                part_size = RECORDS_MAX if in_parts else max(len(records), 1)
                for first in range(0, len(records), part_size):
                    appended = self._append(records[first : first + part_size])
            if appended is not None:
                await _until_committed(appended, only_once)
                return result.response
            # An answer without records rests on those of others all the same.
            await self._wait_accepted()
            if cuts == self._cuts:
                return result.response

    async def write(self, result: Result[T], *, validate_only: bool = False, only_once: bool = False) -> T:
        """What a command that needs no turns made of `newest`, just now. `only_once` as for `decide`."""
        if result.records and not validate_only:
            await _until_committed(self._append(result.records), only_once)
        return result.response

    async def write_in_parts(self, result: Result[T]) -> T:
        """In several batches if need be: a crash may leave the first of them and not the others."""
        for first in range(0, len(result.records), RECORDS_MAX):
            await self._append(result.records[first : first + RECORDS_MAX]).committed
        return result.response

    async def _wait_accepted(self) -> None:
        accepted = self._accepted
        if accepted is not None and not accepted.committed.done():
            # Not awaited itself: whoever gives up waiting must not cancel it for the others.
            await asyncio.wait([accepted.committed])
            self._check_leads()

    def _check_leads(self) -> None:
        # A refusal is an answer too: what it rests on may have changed under another leader.
        if self._resigned:
            raise NotController("this node does not lead the metadata quorum any more")

    def _append(self, records: Sequence[MetadataRecord]) -> Appended:
        self._check_leads()
        records = [*self._initial, *records]
        # Applied before it is written: a record that does not fit must not reach the log.
        last_offset = self._quorum.next_offset + len(records) - 1
        newest = self.newest.apply_all(records, last_offset, self._quorum.epoch)
        appended = self._quorum.append(records)
        self._newest = newest
        self._initial = []
        self._accepted = appended
        return appended


async def _until_committed(appended: Appended, only_once: bool) -> None:
    try:
        await appended.committed
    except NotController as lost:
        if not only_once:
            raise
        raise RequestTimedOut(
            f"The change was written, but not committed while this node led: {lost}. "
            "The next leader may commit it; describe it to find out"
        ) from lost


def _keeps_eligible_replicas(record: MetadataRecord) -> bool:
    return (
        isinstance(record, FeatureLevelRecord)
        and record.name == ELIGIBLE_LEADER_REPLICAS_VERSION
        and record.feature_level > 0
    )
