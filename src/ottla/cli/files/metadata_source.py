"""The metadata of a cluster as its files hold it: a snapshot, a segment of the log, or a whole directory.

Files are only read, so that the directory of a running broker can be looked at, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from ottla.cli.framework.errors import ToolError
from ottla.log.types import METADATA_PARTITION
from ottla.metadata.carried import carried_records
from ottla.metadata.cluster_records import BrokerRegistrationChangeRecord
from ottla.metadata.control import ControlType, control_type, read_snapshot_timestamp
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import Quotas
from ottla.metadata.records import (
    MetadataRecord,
    MetadataRecordError,
    RecordType,
    RegisterBrokerRecord,
    decode_record,
)
from ottla.metadata.transactions import MetadataTransactions
from ottla.records.batch import BatchHeader, crc_matches, iter_headers
from ottla.records.compression import CorruptRecords
from ottla.records.records import Record, iter_records

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """Everything that records of a metadata log add up to."""

    image: MetadataImage
    last_timestamp_ms: int
    cordoned: dict[int, tuple[UUID, ...]] = field(default_factory=dict)
    """Log directories that take no more partitions, by broker."""

    @property
    def rules(self) -> dict[UUID, Any]:
        return {record.id: record for record in self.image.acls.records()}

    @property
    def credentials(self) -> dict[tuple[int, str], Any]:
        """By mechanism and user."""
        found = self._carried(RecordType.USER_SCRAM_CREDENTIAL)
        return {(record.mechanism, record.name): record for record in found}

    @property
    def quotas(self) -> Quotas:
        return self.image.quotas

    @property
    def tokens(self) -> dict[str, Any]:
        return {record.token_id: record for record in self._carried(RecordType.DELEGATION_TOKEN)}

    def _carried(self, kind: RecordType) -> Iterator[Any]:
        return carried_records(self.image.carried, kind)


class MetadataSource:
    """Reads again when its files have changed since."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[tuple[str, int, int], ...] = ()
        self._metadata: ClusterMetadata | None = None

    def current(self) -> ClusterMetadata:
        try:
            files = _files(self._path)
            seen = tuple((path, stat.st_size, stat.st_mtime_ns) for path in files for stat in [os.stat(path)])
            if self._metadata is None or seen != self._seen:
                self._metadata, self._seen = _replayed(files), seen
        except OSError as error:
            raise ToolError(f"{error.filename}: {error.strerror}") from None
        except MetadataRecordError as error:
            raise ToolError(f"{self._path}: {error}") from None
        return self._metadata


class _Place(NamedTuple):
    """Where in the log a record stood."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1


def _files(path: str) -> list[str]:
    """The newest snapshot of a directory and the segments after it; a file stands for itself."""
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    directory = path
    if os.path.isdir(f"{path}/{METADATA_PARTITION}"):
        directory = f"{path}/{METADATA_PARTITION}"
    names = sorted(os.listdir(directory))
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    bases = [int(match[1]) for match in map(_SEGMENT.fullmatch, names) if match]
    if not snapshots and not bases:
        raise ToolError(f"{path}: holds no metadata of a cluster; give a directory of log.dirs")
    start = int(snapshots[-1].partition("-")[0]) if snapshots else 0
    # The segment that the snapshot ends in begins before it.
    first = max((base for base in bases if base <= start), default=start)
    segments = [f"{directory}/{base:020d}.log" for base in bases if base >= first]
    return [*(f"{directory}/{name}" for name in snapshots[-1:]), *segments]


def _replayed(files: list[str]) -> ClusterMetadata:
    records: list[MetadataRecord] = []
    place = _Place()
    for path in files:
        name = os.path.basename(path)
        snapshot = _SNAPSHOT.fullmatch(name)
        segment = _SEGMENT.fullmatch(name)
        if segment and int(segment[1]) > 0 and len(files) == 1:
            raise ToolError(f"{path}: begins in the middle of the log; give its directory instead")
        after = place.offset
        for header, record in _records(path):
            if header.is_control:
                if snapshot and control_type(record) == ControlType.SNAPSHOT_HEADER:
                    place = place._replace(timestamp_ms=read_snapshot_timestamp(record))
            elif snapshot or record.offset > after:
                records.append(decode_record(record.value or b""))
            if not snapshot and record.offset > after:
                place = _Place(record.offset, header.leader_epoch, record.timestamp_ms)
        if snapshot:
            place = place._replace(offset=int(snapshot[1]) - 1, epoch=int(snapshot[2]))
    return _metadata(MetadataTransactions().counting(records), place)


def _records(path: str) -> Iterator[tuple[BatchHeader, Record]]:
    """Up to where the file ends or is damaged: the end of a live log may be half written."""
    with open(path, "rb") as file:
        data = file.read()
    for at, header in iter_headers(data):
        batch = data[at : at + header.size]
        if not crc_matches(batch, header.crc):
            return
        try:
            for record in iter_records(batch):
                yield header, record
        except CorruptRecords:
            return


def _metadata(records: list[MetadataRecord], place: _Place) -> ClusterMetadata:
    image = MetadataImage().apply_all(records, place.offset, place.epoch)
    cordoned: dict[int, tuple[UUID, ...]] = {}
    for record in records:
        if (
            isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord)
            and record.cordoned_log_dirs is not None
        ):
            cordoned[record.broker_id] = record.cordoned_log_dirs
    # A snapshot of an empty cluster has no epoch of its own.
    return ClusterMetadata(replace(image, epoch=place.epoch), place.timestamp_ms, cordoned)
