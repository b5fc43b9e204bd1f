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
from ottla.raft.voters import VoterSet, voters_in
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
        self.voters_offset = -1
        self.former_voters = VoterSet()
        self.kraft_version = 0

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
    def is_alone(self) -> bool:
        """Nobody else can be in the quorum, or follow it: nobody was named, and nobody could come in."""
        return self._settings.is_sole and (self.kraft_version == 0 or not self._settings.endpoints)

    def in_force(self, offset: int) -> list[Record]:
        """Control records that a snapshot up to this offset has to have, in the order of their types."""
        latest: dict[int, Record] = {}
        for control in self._controls:
            if control.offset <= offset:
                latest[control.kind] = control.record
        return [record for _, record in sorted(latest.items())]

    def follow(self, records: Iterable[Record], offset: int | None = None) -> None:
        """Control records at the end of the log; those of a snapshot are all as of its offset."""
        found = [
            _Control(record.offset if offset is None else offset, kind, record)
            for record in records
            if (kind := control_type(record)) in LASTING
        ]
        self._controls += found
        if found or offset is not None:
            self._find_voters()

    def begin_with(self, records: Iterable[Record], offset: int) -> None:
        """Those of a snapshot, instead of all there were."""
        self._controls.clear()
        self.follow(records, offset)

    def forget_from(self, offset: int) -> None:
        """The log was cut off there."""
        kept = [control for control in self._controls if control.offset < offset]
        if len(kept) < len(self._controls):
            self._controls = kept
            self._find_voters()

    def _find_voters(self) -> None:
        versions = self._of(ControlType.KRAFT_VERSION)
        self.kraft_version = read_kraft_version(versions[-1].record) if versions else 0
        named = self._of(ControlType.KRAFT_VOTERS)
        former = [voters_in(read_voters(control.record)) for control in named[-2:]]
        voters = former.pop() if former else VoterSet() if self.kraft_version > 0 else self._settings.voters
        self.former_voters = former.pop() if former else VoterSet()
        self.voters_offset = named[-1].offset if named else -1
        if self.is_alone:
            voters = self._alone(voters)
        if voters != self.voters:
            self.voters = voters

    def _of(self, kind: ControlType) -> list[_Control]:
        return [control for control in self._controls if control.kind == kind]

    def _alone(self, voters: VoterSet) -> VoterSet:
        me = self._settings.me
        if voters.ids != (me.id,):
            raise QuorumError(
                f"{self._log.dir}: the quorum's voters are {list(voters.ids)}, but node {me.id} is "
                "configured as the only voter; name the others in controller.quorum.bootstrap.servers, and "
                "in listeners the one of controller.listener.names"
            )
        # The directory may have been copied to another disk; nobody else has a say in that.
        return voters.having(voters.voters[0]._replace(key=me))
