"""Walks over the records of a topic, a fetch at a time: from anywhere to anywhere, or on and on as they come.
Memory is that of one fetch and of what is wanted, however long the topic is.

Batches are taken apart in threads; pages are made meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from ottla.client.admin.topics import Partition
from ottla.client.cluster import EARLIEST, ClusterClient
from ottla.client.fetch import Fetched
from ottla.console.records.expression import Seen
from ottla.console.records.matching import Matcher
from ottla.console.records.outcomes import Followed, Outcome, Told, outcomes_ahead
from ottla.console.records.shown import Pair, Shown, show, show_name
from ottla.records.batch import NO_PRODUCER_ID, iter_headers
from ottla.records.compression import CODEC_NAMES, CorruptRecords
from ottla.records.records import iter_records
from ottla.wire.errors import OffsetOutOfRange

FETCH_BYTES = 1 << 20
_WAIT_MS = 1000
TEXT_MAX = 64 * 1024
"""Of a key, value or header; a page that is sent more is no longer read by anybody."""
HEADERS_MAX = 200


class Reading(NamedTuple):
    """How to read: what is needed to make something of bytes, and to leave out what is not wanted."""

    topic: str
    decode: Pair
    matches: Matcher | None = None
    read_committed: bool = True
    is_cut: bool = True
    """For somebody who looks, not for a file."""


class Piece(NamedTuple):
    """What one fetch gave."""

    found: list[dict[str, Any]]
    next_offset: int
    looked_at: int
    end_offset: int


async def read_piece(
    client: ClusterClient,
    reading: Reading,
    partition: int,
    offset: int,
    stop: int,
    *,
    max_wait_ms: int = 0,
    found_max: int | None = None,
) -> Piece:
    """From `offset` on and before `stop`. Where the beginning is gone by now, from where it is. It ends where
    `found_max` were found: a fetch may bring thousands where fifty are wanted."""
    try:
        # First as who reads committed records alone: only they are told what was aborted.
        fetched = await _fetched(client, reading.topic, partition, offset, max_wait_ms, read_committed=True)
        is_stable = reading.read_committed or len(fetched.records) > 0
        if not is_stable:
            fetched = await _fetched(client, reading.topic, partition, offset, 0, read_committed=False)
    except OffsetOutOfRange:
        starts = await client.list_offsets({(reading.topic, partition): EARLIEST})
        start = starts[reading.topic, partition].offset
        if start <= offset:
            return Piece([], stop, 0, offset)
        return Piece([], min(start, stop), 0, start)
    end = fetched.last_stable_offset if reading.read_committed else fetched.high_watermark
    if not fetched.records:
        return Piece([], max(offset, min(stop, end)), 0, end)
    outcomes = Told(fetched.aborted) if is_stable else Followed(fetched.records)
    found, next_offset, looked_at = await asyncio.to_thread(
        _taken_apart, fetched.records, outcomes, reading, partition, offset, stop, found_max
    )
    # Each record of a batch has the facts of the batch.
    undecided = [each["batch"] for each in found if each["batch"].get("transaction", "") is None]
    if undecided:
        ahead = await outcomes_ahead(
            client,
            Partition(reading.topic, partition),
            _end_of(fetched.records),
            fetched.high_watermark,
            {facts["producerId"] for facts in undecided},
        )
        for facts in undecided:
            facts["transaction"] = ahead[facts["producerId"]]
    return Piece(found, next_offset, looked_at, end)


async def _fetched(
    client: ClusterClient,
    topic: str,
    partition: int,
    offset: int,
    max_wait_ms: int,
    *,
    read_committed: bool,
) -> Fetched:
    return await client.fetch(
        topic,
        partition,
        offset,
        max_wait_ms=max_wait_ms,
        max_bytes=FETCH_BYTES,
        read_committed=read_committed,
    )


def _end_of(records: memoryview) -> int:
    return max(header.last_offset + 1 for _, header in iter_headers(records))


def _taken_apart(
    records: memoryview,
    outcomes: Told | Followed,
    reading: Reading,
    partition: int,
    offset: int,
    stop: int,
    found_max: int | None,
) -> tuple[list[dict[str, Any]], int, int]:
    found: list[dict[str, Any]] = []
    looked_at, next_offset = 0, offset
    for at, header in iter_headers(records):
        batch = records[at : at + header.size]
        outcome = outcomes.of(header) if header.is_transactional else None
        if header.is_control:
            outcomes.marker(batch, header.producer_id)
        elif header.last_offset >= offset and not (reading.read_committed and outcome == "aborted"):
            facts = _batch_facts(header, outcome)
            try:
                for record in iter_records(batch):
                    if offset <= record.offset < stop:
                        looked_at += 1
                        one = _shown(reading, partition, record, facts)
                        if one is not None:
                            found.append(one)
                            if len(found) == found_max:
                                return found, record.offset + 1, looked_at
            except CorruptRecords as error:
                found.append(_damaged(partition, header.base_offset, str(error), facts))
        next_offset = max(next_offset, min(header.last_offset + 1, stop))
        if next_offset >= stop:
            break
    return found, next_offset, looked_at


def _batch_facts(header: Any, outcome: Outcome | None) -> dict[str, Any]:
    facts = {
        "baseOffset": header.base_offset,
        "records": header.record_count,
        "bytes": header.size,
        "compression": _codec(header.codec),
        "leaderEpoch": header.leader_epoch,
    }
    if header.producer_id != NO_PRODUCER_ID:
        facts["producerId"] = header.producer_id
        facts["producerEpoch"] = header.producer_epoch
        facts["transactional"] = header.is_transactional
    if header.is_transactional:
        facts["transaction"] = outcome
    return facts


def _codec(number: int) -> str:
    return CODEC_NAMES[number] if number < len(CODEC_NAMES) else str(number)


def _shown(reading: Reading, partition: int, record: Any, facts: dict[str, Any]) -> dict[str, Any] | None:
    key, value = reading.decode(record.key, record.value)
    headers = [(show_name(name), show(data)) for name, data in record.headers]
    key_bytes = -1 if record.key is None else len(record.key)
    value_bytes = -1 if record.value is None else len(record.value)
    if reading.matches is not None:
        place = (partition, record.offset, record.timestamp_ms)
        if not reading.matches(Seen(key, value, headers, *place, key_bytes, value_bytes)):
            return None
    text_max = TEXT_MAX if reading.is_cut else None
    found = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _part(key, text_max),
        "value": _part(value, text_max),
        "headers": [
            {"name": name[:text_max], **_part(shown, text_max)}
            for name, shown in headers[: HEADERS_MAX if reading.is_cut else None]
        ],
        "keyBytes": key_bytes,
        "valueBytes": value_bytes,
        "batch": facts,
    }
    if len(found["headers"]) < len(headers):
        found["headersCut"] = len(headers)
    return found


def _damaged(partition: int, offset: int, why: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": -1,
        "key": {"as": "null", "text": None},
        "value": {"as": "damaged", "text": f"this batch cannot be read: {why}"},
        "headers": [],
        "keyBytes": -1,
        "valueBytes": -1,
        "batch": facts,
    }


def _part(shown: Shown, text_max: int | None) -> dict[str, Any]:
    text = shown.text
    if text is not None and text_max is not None and len(text) > text_max:
        return {"as": shown.as_, "text": text[:text_max], "cut": len(text)}
    return {"as": shown.as_, "text": text}


class Step(NamedTuple):
    """Records, and how far the walk has come."""

    found: list[dict[str, Any]]
    positions: Mapping[int, int]
    looked_at: int
    """In all."""
    left: int
    """Offsets that lie ahead."""


async def walk(
    client: ClusterClient,
    reading: Reading,
    starts: Mapping[int, int],
    stops: Mapping[int, int],
    *,
    found_max: int | None = None,
) -> AsyncIterator[Step]:
    """One fetch from each partition in turn, until all are at their stops. A step finds at most
    `found_max`."""
    positions = dict(starts)
    looked_at = 0
    while behind := [number for number in positions if positions[number] < stops[number]]:
        for number in behind:
            piece = await read_piece(
                client, reading, number, positions[number], stops[number], found_max=found_max
            )
            if piece.next_offset <= positions[number]:
                # Nothing comes: what lies ahead is of an open transaction, or gone.
                piece = piece._replace(next_offset=stops[number])
            positions[number] = piece.next_offset
            looked_at += piece.looked_at
            left = sum(stops[each] - positions[each] for each in positions)
            yield Step(piece.found, dict(positions), looked_at, left)


async def follow(
    client: ClusterClient, reading: Reading, starts: Mapping[int, int], *, behind_max: int = 2000
) -> AsyncIterator[Step]:
    """As they come, for ever. Where more come than anybody can look at, it skips to the newest: `left` is how
    many that were since the last step."""
    positions = dict(starts)
    looked_at = 0
    while True:
        places = {(reading.topic, number): offset for number, offset in positions.items()}
        await client.wait_for_records(places, max_wait_ms=_WAIT_MS, read_committed=reading.read_committed)
        for number, offset in list(positions.items()):
            piece = await read_piece(client, reading, number, offset, 1 << 62)
            skipped = 0
            positions[number] = piece.next_offset
            if piece.end_offset - piece.next_offset > behind_max:
                positions[number] = piece.end_offset - behind_max // 10
                skipped = positions[number] - piece.next_offset
            looked_at += piece.looked_at
            yield Step(piece.found, dict(positions), looked_at, skipped)


class Budget:
    """How long a page may take to be made."""

    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return max(self._until_s - time.monotonic(), 0.0)

    @property
    def is_spent(self) -> bool:
        return self.left_s == 0
