"""The files of a partition as lines of text, in the words of Apache Kafka's dump tool."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from ottla.log.index import OFFSET_ENTRY, TIME_ENTRY
from ottla.log.snapshots import CorruptSnapshot, decode_producers
from ottla.metadata.control import ControlType, control_type
from ottla.metadata.record_json import compact, entity
from ottla.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, crc_matches, iter_headers
from ottla.records.compression import CODEC_NAMES, CorruptRecords
from ottla.records.records import Record, iter_records

# Version, producer id, first and last offset of the transaction, last stable offset.
_ABORTED = struct.Struct(">hqqqq")
_END_MARKER = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1

Decode: TypeAlias = Callable[[Record], tuple[str | None, str | None]]


class Complaint(NamedTuple):
    """What is wrong with a file, for standard error."""

    title: str
    lines: list[str]


class LogDump:
    """Lines of a segment or a snapshot; what is wrong with it is known once all lines were taken."""

    def __init__(
        self, path: str, *, deep: bool, decode: Decode | None, with_metadata: bool, bytes_max: int
    ) -> None:
        self._path = path
        self._deep = deep
        self._decode = decode
        self._with_metadata = with_metadata
        self._bytes_max = bytes_max
        self._gaps: list[str] = []

    def lines(self) -> Iterator[str]:
        name = os.path.basename(self._path)
        if name.endswith(".log"):
            yield f"Log starting offset: {int(name.partition('.')[0])}"
        elif name == "bootstrap.checkpoint":
            yield "KRaft bootstrap snapshot"
        else:
            offset, _, epoch = name.partition(".")[0].partition("-")
            yield f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"
        with open(self._path, "rb") as file:
            data = file.read() if self._bytes_max < 0 else file.read(self._bytes_max)
        end = 0
        last_offset = -1
        for at, header in iter_headers(data):
            batch = data[at : at + header.size]
            end = at + header.size
            is_valid = crc_matches(batch, header.crc)
            yield _batch_line(header, at, is_valid=is_valid)
            if not self._deep:
                continue
            try:
                for position, record in enumerate(iter_records(batch)):
                    if record.offset != last_offset + 1:
                        self._gaps.append(f"  {last_offset} is followed by {record.offset}")
                    last_offset = record.offset
                    yield self._record_line(header, record, position)
            except CorruptRecords as error:
                yield f"| the records of this batch cannot be read: {error}"
        if end < len(data) and self._bytes_max < 0:
            yield f"Found {len(data) - end} invalid bytes at the end of {name}"

    def complaints(self) -> list[Complaint]:
        path = os.path.abspath(self._path)
        return [Complaint(f"Non-consecutive offsets in {path}", self._gaps)] if self._gaps else []

    def _record_line(self, header: BatchHeader, record: Record, position: int) -> str:
        line = ""
        if self._with_metadata:
            sequence = header.base_sequence + position if header.base_sequence >= 0 else -1
            names = ",".join(name for name, _ in record.headers)
            line = (
                f"| offset: {record.offset} {_timestamp_type(header)}: {record.timestamp_ms} "
                f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
                f"sequence: {sequence} headerKeys: [{names}]"
            )
            if header.is_control:
                line += _control(record)
        if self._decode is not None and not header.is_control:
            key, payload = self._decode(record)
            prefix = " " if self._with_metadata else "| "
            if key is not None:
                line += f"{prefix}key: {key}"
                prefix = " "
            if payload is not None:
                line += f"{prefix}payload: {payload}"
        return line


def offset_index_lines(path: str, *, quiet: bool, complaints: list[Complaint]) -> Iterator[str]:
    base, log = _beside(path)
    entries = _entries(path, OFFSET_ENTRY)
    if not entries:
        yield f"{path} is empty."
        return
    mismatches: list[str] = []
    for slot, (relative, position) in enumerate(entries):
        if relative == 0 and slot > 0:
            break
        offset = base + relative
        found = next((header.last_offset for _, header in iter_headers(log[position:])), -1)
        if found != offset:
            mismatches.append(f"  Index offset: {offset}, log offset: {found}")
        if not quiet:
            yield f"offset: {offset} position: {position}"
    if mismatches:
        complaints.append(Complaint(f"Mismatches in :{os.path.abspath(path)}", mismatches))


def time_index_lines(path: str, *, quiet: bool, complaints: list[Complaint]) -> Iterator[str]:
    base, log = _beside(path)
    maximum_at = {header.last_offset: header.max_timestamp for _, header in iter_headers(log)}
    previous = -1
    lost: list[str] = []
    wrong: list[str] = []
    disordered: list[str] = []
    for slot, (timestamp, relative) in enumerate(_entries(path, TIME_ENTRY)):
        offset = base + relative
        if relative == 0 and slot > 0:
            break
        if offset not in maximum_at:
            later = min((end for end in maximum_at if end > offset), default=-1)
            lost.append(f"Indexed offset: {offset}, found log offset: {later}")
        else:
            if maximum_at[offset] != timestamp:
                wrong.append(f"  Index timestamp: {timestamp}, log timestamp: {maximum_at[offset]}")
            if previous >= timestamp:
                disordered.append(f"  Index timestamp: {timestamp}, Previously indexed timestamp: {previous}")
        if not quiet:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp
    name = os.path.abspath(path)
    for title, lines in (
        (f"Found timestamp mismatch in :{name}", wrong),
        (f"Found out of order timestamp in :{name}", disordered),
        (f"The following indexed offsets are not found in :{name}", lost),
    ):
        if lines:
            complaints.append(Complaint(title, lines))


def producer_snapshot_lines(path: str, complaints: list[Complaint]) -> Iterator[str]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        producers = decode_producers(data)
    except CorruptSnapshot as error:
        complaints.append(Complaint(f"{path} cannot be read: {error}", []))
        return
    for producer in producers:
        first = producer.transaction_first_offset
        transaction = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} currentTxnFirstOffset: {transaction} "
            f"lastTimestamp: {producer.last_timestamp}"
        )
        if producer.batches:
            batch = producer.batches[0]
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.last_offset - batch.first_offset} "
                f"timestamp: {batch.timestamp}"
            )
        yield line


def transaction_index_lines(path: str) -> Iterator[str]:
    for version, producer_id, first, last, stable in _entries(path, _ABORTED):
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def is_sane(path: str, *, time: bool) -> bool:
    """The check that decides at start whether an index is built again."""
    from ottla.log.index import IndexFile
    from ottla.runtime.disk import PosixDisk

    return IndexFile(PosixDisk(), path, TIME_ENTRY if time else OFFSET_ENTRY).attach()


def _batch_line(header: BatchHeader, at: int, *, is_valid: bool) -> str:
    last_sequence = header.base_sequence + header.last_offset_delta if header.base_sequence >= 0 else -1
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.attributes & DELETE_HORIZON else ""
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_java(header.is_transactional)} "
        f"isControl: {_java(header.is_control)} deleteHorizonMs: {horizon or 'OptionalLong.empty'} "
        f"position: {at} {_timestamp_type(header)}: {header.max_timestamp} size: {header.size} "
        f"magic: {header.magic} compresscodec: {CODEC_NAMES[header.codec]} crc: {header.crc} "
        f"isvalid: {_java(is_valid)}"
    )


def _control(record: Record) -> str:
    kind = control_type(record)
    value = record.value or b""
    if kind in {_ABORT, _COMMIT}:
        _, epoch = _END_MARKER.unpack_from(value)
        return f" endTxnMarker: {'COMMIT' if kind == _COMMIT else 'ABORT'} coordinatorEpoch: {epoch}"
    from kio.serial import entity_reader

    match kind:
        case ControlType.LEADER_CHANGE:
            from kio.schema.leader_change_message import v0, v1

            message_type: Any = v1.LeaderChangeMessage if value[:2] == b"\0\1" else v0.LeaderChangeMessage
            label = "LeaderChange:"
        case ControlType.SNAPSHOT_HEADER:
            from kio.schema.snapshot_header_record import v0 as header

            message_type = header.SnapshotHeaderRecord

            label = "SnapshotHeader"
        case ControlType.SNAPSHOT_FOOTER:
            from kio.schema.snapshot_footer_record import v0 as footer

            message_type = footer.SnapshotFooterRecord

            label = "SnapshotFooter"
        case ControlType.KRAFT_VERSION:
            version, level = struct.unpack_from(">hh", value)
            return " KRaftVersion " + compact({"version": version, "kRaftVersion": level})
        case ControlType.KRAFT_VOTERS:
            from kio.schema.voters_record import v0 as voters

            message_type = voters.VotersRecord

            label = "KRaftVoters"
        case _:
            return f" controlType: UNKNOWN({kind})"
    message, _ = entity_reader(message_type)(value, 0)
    return f" {label} {compact(entity(message))}"


def _beside(path: str) -> tuple[int, bytes]:
    """The base offset of an index and the segment it belongs to."""
    stem = path.rpartition(".")[0]
    with open(f"{stem}.log", "rb") as file:
        return int(os.path.basename(stem)), file.read()


def _entries(path: str, layout: struct.Struct) -> list[tuple[int, ...]]:
    with open(path, "rb") as file:
        data = file.read()
    return list(layout.iter_unpack(data[: len(data) - len(data) % layout.size]))


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java(value: bool) -> str:
    return "true" if value else "false"
