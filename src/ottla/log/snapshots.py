"""Producers' state on disk: `<offset>.snapshot` holds the producers as they were when the log ended there.

    version i16 · CRC-32C of the rest u32 · count i32 ·
    (producer id i64 · epoch i16 · last sequence i32 · last offset i64 · offset delta i32 · timestamp i64 ·
    coordinator epoch i32 · first offset of the open transaction i64)*

One is written at every roll and at close, so that a restart replays at most one segment.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable

from ottla.log.names import SNAPSHOT_SUFFIX, segment_path
from ottla.log.producers import NO_SEQUENCE, SEQUENCE_MASK, ProducerBatch, ProducerState
from ottla.records.crc import crc32c
from ottla.runtime.disk import Disk

log = logging.getLogger(__name__)

_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    pass


def encode_producers(producers: Iterable[ProducerState]) -> bytes:
    entries = []
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        entries.append(
            _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_offset,
                last.last_offset - last.first_offset if last else 0,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_first_offset,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_producers(data: bytes) -> list[ProducerState]:
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    body = data[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshot("its CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(body)} bytes do not hold {count} producers")
    return [_producer(*entry) for entry in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
    /,
) -> ProducerState:
    producer = ProducerState(producer_id)
    producer.epoch = epoch
    producer.last_timestamp = timestamp
    producer.coordinator_epoch = coordinator_epoch
    producer.transaction_first_offset = transaction_first_offset
    if last_offset >= 0:
        unnumbered = last_sequence == NO_SEQUENCE
        producer.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        producer.batches.append(
            ProducerBatch(
                producer_id,
                epoch,
                NO_SEQUENCE if unnumbered else (last_sequence - offset_delta) & SEQUENCE_MASK,
                last_sequence,
                last_offset - offset_delta,
                last_offset,
                timestamp,
                attributes=0,
            )
        )
    return producer


class SnapshotFiles:
    """The snapshots in a partition's directory."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int] = ()) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def take(self, offset: int, producers: Iterable[ProducerState], *, sync: bool) -> str:
        path = self.path(offset)
        self._disk.replace_file(path, encode_producers(producers), sync=sync)
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])
        return path

    def latest(self, upto: int) -> tuple[int, list[ProducerState]] | None:
        """The newest usable one not beyond an offset; damaged ones are removed."""
        for offset in reversed(self.offsets):
            if offset <= upto:
                try:
                    return offset, decode_producers(self._disk.read_file(self.path(offset)))
                except CorruptSnapshot as error:
                    log.warning("ignoring producer snapshot %s: %s", self.path(offset), error)
                    self.remove(offset)
        return None

    def forget(self, offset: int) -> None:
        """The file is somebody else's business now."""
        self.offsets = [other for other in self.offsets if other != offset]

    def remove(self, offset: int) -> None:
        self.forget(offset)
        self._disk.remove(self.path(offset))

    def keep_only(self, offsets: Iterable[int]) -> None:
        """Snapshots are of use where a segment begins and at the end of the log."""
        wanted = set(offsets)
        for offset in self.offsets:
            if offset not in wanted:
                self.remove(offset)
