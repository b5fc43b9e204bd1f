"""Snapshots of the metadata log: an image as records, in Apache Kafka's checkpoint format.

A file is named after the first offset it does not contain and the epoch of the last record it does contain,
and holds record batches: a control batch with the header, the records, a control batch with the footer. One
without a footer was not finished; but files are put in place whole, so that would be damage, not a crash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.metadata.carried import carried_records
from ottla.metadata.control import (
    LASTING,
    ControlType,
    control_type,
    read_snapshot_timestamp,
    snapshot_footer,
    snapshot_header,
)
from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.quotas import quota_records
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RecordType,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from ottla.records.batch import crc_matches, iter_headers
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime.disk import Disk

BATCH_BYTES_MAX = 1024 * 1024

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# Files of the log's directory that were never finished, or that were to be removed: ours and Apache Kafka's.
_LEFTOVER = re.compile(r"\d{20}.*\.(tmp|part|deleted)")


class SnapshotDamaged(Exception):
    """The text names the file and what is wrong with it."""


class SnapshotId(NamedTuple):
    """Ordered as the log is."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    image: MetadataImage
    last_timestamp_ms: int
    """When the last record in it was appended to the log."""
    quorum: tuple[Record, ...]
    """Control records of what was agreed on about the quorum (`control.LASTING`), in the order of types."""


def snapshot_id(image: MetadataImage) -> SnapshotId:
    return SnapshotId(image.offset + 1, image.epoch)


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Oldest first."""
    matches = (_NAME.fullmatch(name) for name in disk.list_dir(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def remove_leftovers(disk: Disk, directory: str) -> None:
    for name in disk.list_dir(directory):
        if _LEFTOVER.fullmatch(name):
            disk.remove(f"{directory}/{name}")


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Records that rebuild the image, in Kafka's order and the same for equal images."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for _, broker in sorted(image.brokers.items()):
        yield RegisterBrokerRecord(
            broker_id=broker.id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=broker.endpoints,
            features=broker.features,
            rack=broker.rack,
            fenced=broker.fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=broker.directories,
        )
    for _, controller in sorted(image.controllers.items()):
        yield controller
    for _, topic in sorted(image.topics.items()):
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in enumerate(topic.partitions):
            yield partition.to_record(topic.id, index)
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from quota_records(image.quotas)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.records()
    for kind in (RecordType.USER_SCRAM_CREDENTIAL, RecordType.DELEGATION_TOKEN):
        yield from carried_records(image.carried, kind)


def write_snapshot(
    disk: Disk,
    directory: str,
    image: MetadataImage,
    quorum: Sequence[Record] = (),
    *,
    last_timestamp_ms: int,
    now_ms: int,
) -> SnapshotId:
    """Blocks until the file is in place and on the medium; meant for another thread.

    `quorum` are the control records in force: Apache Kafka finds its voters in the newest snapshot.
    """
    identity = snapshot_id(image)
    content = snapshot_content(
        image_records(image),
        quorum,
        epoch=identity.epoch,
        last_timestamp_ms=last_timestamp_ms,
        now_ms=now_ms,
    )
    disk.replace_file(f"{directory}/{identity.file_name}", content)
    return identity


def snapshot_content(
    records: Iterable[MetadataRecord],
    quorum: Sequence[Record] = (),
    *,
    epoch: int,
    last_timestamp_ms: int,
    now_ms: int,
) -> bytes:
    controls = [snapshot_header(last_timestamp_ms, now_ms)]
    controls += (Record(record.key, record.value, now_ms) for record in quorum)
    parts = [encode_batch(controls, leader_epoch=epoch, control=True)]
    next_offset = len(controls)
    pending: list[Record] = []
    pending_bytes = 0
    for record in records:
        value = encode_record(record)
        if pending and pending_bytes + len(value) > BATCH_BYTES_MAX:
            parts.append(encode_batch(pending, base_offset=next_offset, leader_epoch=epoch))
            next_offset += len(pending)
            pending, pending_bytes = [], 0
        pending.append(Record(None, value, now_ms))
        pending_bytes += len(value)
    if pending:
        parts.append(encode_batch(pending, base_offset=next_offset, leader_epoch=epoch))
        next_offset += len(pending)
    footer = snapshot_footer(now_ms)
    parts.append(encode_batch([footer], base_offset=next_offset, leader_epoch=epoch, control=True))
    return b"".join(parts)


def read_snapshot(disk: Disk, directory: str, identity: SnapshotId) -> Snapshot:
    path = f"{directory}/{identity.file_name}"
    return parse_snapshot(disk.read_file(path), path, identity)


def parse_snapshot(data: bytes, path: str, identity: SnapshotId) -> Snapshot:
    """Raises SnapshotDamaged. `path` is for its text."""
    records, last_timestamp_ms, quorum = parse_records(data, path)
    image = MetadataImage().apply_all(records, identity.offset - 1, identity.epoch)
    return Snapshot(image, last_timestamp_ms, quorum)


def parse_records(data: bytes, path: str) -> tuple[list[MetadataRecord], int, tuple[Record, ...]]:
    """As `parse_snapshot`: the records, when the last of them was appended, those of the quorum."""
    records: list[MetadataRecord] = []
    last_timestamp_ms: int | None = None
    quorum: dict[int, Record] = {}
    finished = False
    end = 0
    for at, header in iter_headers(data):
        batch = data[at : at + header.size]
        end = at + header.size
        if not crc_matches(batch, header.crc):
            raise SnapshotDamaged(f"{path}: the batch at byte {at} does not match its checksum")
        for record in iter_records(batch):
            if not header.is_control:
                records.append(decode_record(record.value or b""))
                continue
            match control_type(record):
                case ControlType.SNAPSHOT_HEADER:
                    last_timestamp_ms = read_snapshot_timestamp(record)
                case ControlType.SNAPSHOT_FOOTER:
                    finished = True
                case kind if kind in LASTING:
                    quorum[kind] = record
    if last_timestamp_ms is None or not finished or end != len(data):
        raise SnapshotDamaged(f"{path}: incomplete after {end} of {len(data)} bytes")
    return records, last_timestamp_ms, tuple(record for _, record in sorted(quorum.items()))
