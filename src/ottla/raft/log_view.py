"""What the core sees of the log, and whether a follower's log agrees with a leader's."""

from __future__ import annotations

from typing import Protocol

from ottla.metadata.snapshot import SnapshotId
from ottla.raft.messages import Position
from ottla.raft.voters import VoterSet

# What a cluster began with. It is not replicated: the first leader writes its contents into the log.
BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)


class LogView(Protocol):
    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Of the last record, in the log or in the snapshot it goes on from; 0 where there is none."""

    def end_of_epoch(self, epoch: int) -> Position:
        """The largest epoch up to this one, and where its records end."""

    @property
    def earliest_snapshot(self) -> SnapshotId | None: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None: ...

    @property
    def voters(self) -> VoterSet:
        """The newest the log has, committed or not; those of the configuration where it has none."""

    @property
    def former_voters(self) -> VoterSet:
        """Those before, in force again if what changed them is cut off. Empty where that cannot be."""

    @property
    def voters_offset(self) -> int:
        """Where the log names them; negative for those of the configuration, or of a cluster's beginning."""

    @property
    def kraft_version(self) -> int:
        """The newest the log has. From 1 on the voters are those of the log, and may be changed."""


def log_end(log: LogView) -> Position:
    """Ordered by how up-to-date a log is."""
    return Position(log.last_epoch, log.end_offset)


def compare(log: LogView, offset: int, last_epoch: int) -> Position | SnapshotId | None:
    """A follower asks for what comes after a record of an epoch: None where the log has that very record.

    Otherwise where the two diverge, or the snapshot to begin with.
    """
    latest = log.latest_snapshot
    if offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
        # Quicker than all the records that the snapshot sums up.
        return latest
    if offset == 0 and log.start_offset == 0:
        return None
    earliest = log.earliest_snapshot
    if (
        earliest is not None
        and latest is not None
        and (
            offset < log.start_offset
            or (offset == log.start_offset and last_epoch != earliest.epoch)
            or last_epoch < earliest.epoch
        )
    ):
        return latest
    end = log.end_of_epoch(last_epoch)
    return end if end.epoch != last_epoch or end.offset < offset else None


def truncation(log: LogView, diverging: Position) -> int:
    """Where a follower cuts its log off, being told where it diverges from the leader's."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    own = log.end_of_epoch(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
