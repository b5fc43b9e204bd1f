"""Which leader wrote which part of a log: the first offset of each leader epoch."""

from __future__ import annotations

import logging
from bisect import bisect_right

from ottla.log.checkpoints import CorruptCheckpoint, decode_lines, encode_lines
from ottla.runtime.disk import Disk

log = logging.getLogger(__name__)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Epochs and their start offsets both only grow, so what contradicts a newer entry is dropped.

    `dirty` says that the file is behind: it is brought up before the recovery point passes the change, as
    everything after the recovery point is found again by scanning.
    """

    __slots__ = ("_epochs", "_starts", "dirty", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        self.dirty = False

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        if epoch < 0 or (epoch == self.latest and start_offset >= self._starts[-1]):
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The last epoch up to the one asked for, and where it ended; (-1, -1) when that is not known."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        # Below the first entry the records are gone; who asks continues where the log now begins.
        found = self._epochs[higher - 1] if higher else epoch
        return found, self._starts[higher]

    def epoch_at(self, offset: int) -> int:
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after the end of the log."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """The epoch in which the log now begins, begins with it."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot > 0 or (slot == 0 and self._starts[0] != start_offset):
            del self._epochs[:slot], self._starts[:slot]
            self._starts[0] = start_offset
            self._changed()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.dirty = True

    def encode(self) -> bytes:
        return encode_lines(f"{epoch} {start}" for epoch, start in self.entries)


def read_leader_epochs(disk: Disk, path: str) -> LeaderEpochs:
    """A damaged file counts as empty: epochs of unscanned segments are then unknown, no more."""
    epochs = LeaderEpochs()
    if disk.exists(path):
        try:
            for epoch, start in decode_lines(path, disk.read_file(path), 2):
                epochs.assign(int(epoch), int(start))
        except CorruptCheckpoint as error:
            log.error("ignoring a damaged checkpoint: %s", error)
            return LeaderEpochs()
    epochs.dirty = False
    return epochs
