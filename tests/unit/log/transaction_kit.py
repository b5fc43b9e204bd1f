"""Producers writing to a log, inside transactions and outside, and the coordinator that ends these."""

from __future__ import annotations

from log_kit import NOW_MS, batch

from ottla.log.log import PartitionLog
from ottla.log.pending_verification import ONGOING
from ottla.log.types import AppendResult
from ottla.records.batch import iter_headers
from ottla.records.markers import Marker, encode_marker, read_marker
from ottla.records.records import iter_records

PRODUCER_ID = 7


def send(
    log: PartitionLog,
    sequence: int,
    records: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = PRODUCER_ID,
    transactional: bool = False,
    value: bytes = b"v",
) -> AppendResult:
    """As the produce handler does it, with a coordinator that agrees to everything."""
    data = batch(
        *[value] * records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    transaction = None
    if transactional:
        transaction = (
            log.producers.begin_verification(producer_id, sequence, epoch, NOW_MS, implicit_add=False)
            or ONGOING
        )
    return log.append(memoryview(data), leader_epoch=0, transaction=transaction)


def end(
    log: PartitionLog,
    *,
    producer_id: int = PRODUCER_ID,
    epoch: int = 0,
    coordinator_epoch: int = 3,
    committed: bool = True,
    version: int = 0,
) -> AppendResult:
    marker = encode_marker(Marker(producer_id, epoch, coordinator_epoch, committed), NOW_MS)
    return log.append(memoryview(marker), leader_epoch=0, trusted=True, transaction_version=version)


def stable_offset(log: PartitionLog) -> int:
    """As a partition with one replica has it."""
    unstable = log.producers.first_unstable_offset
    return log.next_offset if unstable is None else max(unstable, log.start_offset)


def read_committed(
    log: PartitionLog, offset: int, max_bytes: int = 1 << 20
) -> list[tuple[int, bytes | None]]:
    """(offset, value) of what a consumer shows of one answer, which skips records as the clients do."""
    data = memoryview(log.read(offset, max_bytes, upto=stable_offset(log)))
    waiting = sorted((first, producer_id) for producer_id, first in log.aborted_in(offset, data))
    aborting: set[int] = set()
    found = []
    for at, header in iter_headers(data):
        one = data[at : at + header.size]
        while waiting and waiting[0][0] <= header.last_offset:
            aborting.add(waiting.pop(0)[1])
        if header.is_control:
            marker = read_marker(one)
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found += [
                (record.offset, record.value) for record in iter_records(one) if record.offset >= offset
            ]
    return found


def read_all_committed(log: PartitionLog, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    offset, found = log.start_offset, []
    while offset < stable_offset(log):
        data = log.read(offset, max_bytes, upto=stable_offset(log))
        found += read_committed(log, offset, max_bytes)
        last = [header.last_offset for _, header in iter_headers(data)]
        if not last:
            break
        offset = last[-1] + 1
    return found
