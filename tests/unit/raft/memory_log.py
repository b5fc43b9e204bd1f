"""A log as the core sees it, with nothing behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.messages import Position
from ottla.raft.voters import VoterSet


@dataclass
class MemoryLog:
    voters: VoterSet
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, start offset)."""
    end_offset: int = 0
    start_offset: int = 0
    snapshot: SnapshotId | None = None
    voters_offset: int = -1
    kraft_version: int = 0
    former_voters: VoterSet = field(default_factory=VoterSet)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else 0

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshot

    def end_of_epoch(self, epoch: int) -> Position:
        for at, (known, start) in enumerate(self.epochs):
            if known > epoch:
                return Position(self.epochs[at - 1][0] if at else epoch, start)
        return Position(self.last_epoch, self.end_offset)
