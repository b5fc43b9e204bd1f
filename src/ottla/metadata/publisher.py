"""The newest committed state of the cluster, and whoever wants to hear of its changes.

Committed batches become the next image, and subscribers are told what changed. It is the same on a leader of
the quorum, a follower and an observer: none of them sees a record before a majority has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from ottla.metadata.change import MetadataChange, between
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import check_supported
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import MetadataRecord
from ottla.metadata.transactions import MetadataTransactions

log = logging.getLogger(__name__)

Subscriber: TypeAlias = Callable[[MetadataChange], None]


class CommittedBatch(NamedTuple):
    last_offset: int
    epoch: int
    """Of the leader that wrote it."""
    records: Sequence[MetadataRecord]
    """None of a control batch, which is the quorum's own affair; it only moves the offset on."""


class MetadataPublisher:
    def __init__(self) -> None:
        self.image = MetadataImage()
        """As of the last commit."""
        self._transactions = MetadataTransactions()
        self._subscribers: list[Subscriber] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._loading = True

    @property
    def in_transaction(self) -> bool:
        """Records are committed which only count once the leader that wrote them says so, or a later one."""
        return self._transactions.is_open

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell of every change from now on, inside the commit: it must not fail, and touches memory alone."""
        self._subscribers.append(subscriber)

    async def wait_offset(self, offset: int) -> None:
        """Until everything up to this offset is in the image."""
        await self.wait_image(lambda image: image.offset >= offset)

    async def wait_image(self, is_so: Callable[[MetadataImage], bool]) -> None:
        while not is_so(self.image):
            moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(moved)
            await moved

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """`batches` follow what is in the image.

        Raises MetadataRecordError for what does not fit, or asks for features that are not there.
        """
        if self._subscribers:
            for batch in batches:
                self._publish([batch])
        elif batches:
            # Nobody wants to hear of the steps.
            self._publish(batches)

    def on_snapshot(self, image: MetadataImage) -> None:
        """It replaces everything: the log before its end is not to be had."""
        self._transactions = MetadataTransactions()
        self._tell(between(self.image, image))

    def loaded(self) -> None:
        """All that was on disk has been told: what it adds up to must be something this version can follow.

        What it went through on the way, such as a version that was upgraded since, is history.
        """
        self._loading = False
        check_supported(self.image.features)

    def _publish(self, batches: Sequence[CommittedBatch]) -> None:
        image = self.image
        delta = MetadataDelta(image)
        offset, epoch = image.offset, image.epoch
        for batch in batches:
            base_offset = batch.last_offset - len(batch.records) + 1
            for record in self._transactions.counting(batch.records, base_offset):
                delta.apply(record)
            # An image that is ahead of what counts would make a snapshot that lacks what is pending.
            whole_upto = self._transactions.whole_upto(batch.last_offset)
            if whole_upto > offset:
                offset, epoch = whole_upto, batch.epoch
        self._tell(delta.build(offset, epoch))

    def _tell(self, change: MetadataChange) -> None:
        if not self._loading and change.after.features is not change.before.features:
            check_supported(change.after.features)
        self.image = change.after
        for subscriber in self._subscribers:
            subscriber(change)
        waiting, self._waiting = self._waiting, []
        for moved in waiting:
            if not moved.done():
                moved.set_result(None)
