"""End-transaction markers: the control batches that say how a producer's transaction on a partition ended.

key    version i16 · type i16 (0 abort, 1 commit)
value  version i16 · coordinator epoch i32
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.records.batch import read_header
from ottla.records.records import Record, encode_batch, iter_records
from ottla.runtime.disk import ReadableBuffer

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT = 0
_COMMIT = 1


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


def encode_marker(marker: Marker, timestamp_ms: int) -> bytes:
    """A whole batch, to be numbered by the log."""
    record = Record(
        _KEY.pack(0, _COMMIT if marker.committed else _ABORT),
        _VALUE.pack(0, marker.coordinator_epoch),
        timestamp_ms,
    )
    return encode_batch(
        [record],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: ReadableBuffer) -> Marker | None:
    """Of one control batch; None for one of another kind, or one that compaction has emptied."""
    header = read_header(batch)
    for record in iter_records(batch):
        key, value = record.key, record.value
        if key is None or len(key) < _KEY.size or value is None or len(value) < _VALUE.size:
            return None
        kind = _KEY.unpack_from(key)[1]
        if kind not in (_ABORT, _COMMIT):
            return None
        return Marker(
            header.producer_id, header.producer_epoch, _VALUE.unpack_from(value)[1], kind == _COMMIT
        )
    return None
