"""The metadata log as the core sees it: where epochs end, which snapshots there are, who may vote."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.log.log import PartitionLog
from ottla.metadata.control import LASTING, ControlType, control_type, read_kraft_version, read_voters
from ottla.metadata.snapshot import SnapshotId
from ottla.raft.messages import Position
from ottla.raft.metadata_log import QuorumError
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import Snapshots
from ottla.raft.voters import Voter, VoterSet, voters_in
from ottla.records.records import Record


class _Control(NamedTuple):
    offset: int
    kind: int
    record: Record


class ReplicaLog:
    """A `LogView`."""

    def __init__(self, log: PartitionLog, snapshots: Snapshots, settings: QuorumSettings) -> None:
        self._log = log
        self._snapshots = snapshots
        self._settings = settings
        self._controls: list[_Control] = []
        """Of the quorum itself, in the order of the log, committed or not."""
        self.voters = settings.voters

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.next_offset

    @property
    def last_epoch(self) -> int:
        if self._log.latest_epoch >= 0:
            return self._log.latest_epoch
        latest = self._snapshots.newest()
        return 0 if latest is None else latest.epoch

    def end_of_epoch(self, epoch: int) -> Position:
        found, end_offset = self._log.end_offset_for_epoch(epoch)
        if end_offset < 0:
            return Position(self.last_epoch, self.end_offset)
        earliest = self._snapshots.oldest()
        if earliest is not None and found == epoch and end_offset == earliest.offset:
            # Before the log begins there is only the snapshot, whose last record may be of an earlier epoch.
            return Position(earliest.epoch, earliest.offset)
        return Position(found, end_offset)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return self._snapshots.oldest()

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self._snapshots.newest()

    # What the log says of the quorum itself.

    @property
    def kraft_version(self) -> int:
        records = [control.record for control in self._controls if control.kind == ControlType.KRAFT_VERSION]
        return read_kraft_version(records[-1]) if records else 0

    def in_force(self, offset: int) -> list[Record]:
        """Control records that a snapshot up to this offset has to have, in the order of their types."""
        latest: dict[int, Record] = {}
        for control in self._controls:
            if control.offset <= offset:
                latest[control.kind] = control.record
        return [record for _, record in sorted(latest.items())]

    def follow(self, records: Iterable[Record], offset: int | None = None) -> None:
        """Control records at the end of the log; of a snapshot, all as of its offset."""
        changed = False
        for record in records:
            kind = control_type(record)
            if kind in LASTING:
                self._controls.append(_Control(record.offset if offset is None else offset, kind, record))
                changed = changed or kind == ControlType.KRAFT_VOTERS
        if changed:
            self._find_voters()

    def forget_from(self, offset: int) -> None:
        """The log was cut off there."""
        kept = [control for control in self._controls if control.offset < offset]
        if len(kept) < len(self._controls):
            self._controls = kept
            self._find_voters()

    def _find_voters(self) -> None:
        records = [control.record for control in self._controls if control.kind == ControlType.KRAFT_VOTERS]
        voters = voters_in(read_voters(records[-1])) if records else self._settings.voters
        me = self._settings.me
        if voters.ids == (me.id,):
            # The directory may have been copied to another disk; nobody else has a say in that.
            voters = VoterSet([Voter(me, voters.voters[0].listeners)])
        elif self._settings.is_sole:
            raise QuorumError(
                f"{self._log.dir}: the quorum's voters are {list(voters.ids)}, but node {me.id} is "
                "configured as the only voter; name the others in controller.quorum.bootstrap.servers"
            )
        self.voters = voters
