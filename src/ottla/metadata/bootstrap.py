"""What a new cluster begins with: records that `kafka-storage format` leaves beside the data."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.metadata.features import new_cluster_records
from ottla.metadata.records import FeatureLevelRecord, MetadataRecord
from ottla.metadata.snapshot import parse_records, snapshot_content
from ottla.runtime.disk import Disk

FILE_NAME = "bootstrap.checkpoint"


def write_bootstrap(disk: Disk, directory: str, records: Sequence[MetadataRecord], now_ms: int) -> None:
    """Besides the levels of features, which stand first."""
    content = snapshot_content(
        [*new_cluster_records(), *records], epoch=0, last_timestamp_ms=now_ms, now_ms=now_ms
    )
    disk.replace_file(f"{directory}/{FILE_NAME}", content, private=True)


def read_bootstrap(disk: Disk, directory: str) -> list[MetadataRecord]:
    """But for features: a new cluster has those of this version. Raises SnapshotDamaged."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return []
    records, _, _ = parse_records(disk.read_file(path), path)
    return [record for record in records if not isinstance(record, FeatureLevelRecord)]
