"""One task of a read: fetch a range of one partition and hand it to Spark as Arrow, one fetch ahead."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import chain
from typing import Any

from ottla.client.cluster import EARLIEST, LATEST
from ottla.client.fetch import Fetched
from ottla.records.arrow import ArrowDecoder, find_spans
from ottla.spark.connection import Connection, shared_connection
from ottla.spark.ranges import OffsetRange
from ottla.spark.source_options import SourceOptions
from ottla.wire.errors import OffsetOutOfRange, UnknownTopicOrPartition

_log = logging.getLogger(__name__)
_FETCH_WAIT_MS = 500
# Until a fetch has shown how large records are. A wrong guess costs one more round trip or some idle bytes.
_RECORD_BYTES_GUESS = 256.0
_FETCH_BYTES_MIN = 64 * 1024


class DataLost(Exception):
    """Records that were to be read are no longer there; the text names them and what to do."""


def data_lost(what: str, options: SourceOptions) -> None:
    """Raises DataLost, or warns if the user would rather go on."""
    if options.fail_on_data_loss:
        raise DataLost(
            f"{what} Nothing was skipped: the query stops here. Set failOnDataLoss=false (streams "
            "applications: --fail-on-data-loss false, StreamsConfig(fail_on_data_loss=False)) to go on with "
            "what is left, or keep records longer (retention.ms, retention.bytes) than the query may stand "
            "still."
        )
    _log.warning("%s Going on with what is left, since failOnDataLoss=false.", what)


def read_ranges(wanted: Iterable[OffsetRange], options: SourceOptions) -> Iterator[Any]:
    """One after the other; the first records of all are asked for at once, so they have to be small."""
    return chain.from_iterable([read_range(each, options) for each in wanted])


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[Any]:
    """Arrow record batches. A task that ends early leaves at most one fetch unused."""
    connection = shared_connection(options.bootstrap_servers, options.client_properties)
    first = connection.start(_fetch(connection, wanted, wanted.start, _RECORD_BYTES_GUESS, options))
    return _batches(connection, wanted, first, options)


def _batches(
    connection: Connection, wanted: OffsetRange, pending: Future[Fetched], options: SourceOptions
) -> Iterator[Any]:
    decoder = ArrowDecoder(wanted.topic, wanted.partition, include_headers=options.include_headers)
    offset = wanted.start
    waited_ms = 0
    record_bytes = _RECORD_BYTES_GUESS
    while offset < wanted.end:
        try:
            fetched = pending.result()
        except OffsetOutOfRange:
            offset = _first_left(connection, wanted, offset, options)
            if offset < wanted.end:
                pending = connection.start(_fetch(connection, wanted, offset, record_bytes, options))
            continue
        except UnknownTopicOrPartition as error:
            data_lost(f"Topic {wanted.topic} was deleted while it was read ({error}).", options)
            return
        spans = find_spans(fetched.records)
        next_offset = offset
        if spans:
            next_offset = spans[-1].header.last_offset + 1
            record_bytes = spans[-1].end / (next_offset - spans[0].header.base_offset)
        if next_offset < wanted.end:
            pending = connection.start(_fetch(connection, wanted, next_offset, record_bytes, options))
        if not spans:
            waited_ms += _FETCH_WAIT_MS
            if waited_ms >= options.data_timeout_ms:
                data_lost(
                    f"{wanted.topic}-{wanted.partition} was to be read up to offset {wanted.end}, but it "
                    f"ends at {fetched.high_watermark}: records were lost on the brokers.",
                    options,
                )
                return
        aborted = fetched.aborted if options.read_committed else ()
        yield from decoder.decode(fetched.records, spans, offset, wanted.end, aborted)
        offset = next_offset


async def _fetch(
    connection: Connection, wanted: OffsetRange, offset: int, record_bytes: float, options: SourceOptions
) -> Fetched:
    """As much as is left to read, if that can be guessed: a small micro-batch must not fetch a large one."""
    left_bytes = int((wanted.end - offset) * record_bytes * 1.1)
    return await connection.cluster.fetch(
        wanted.topic,
        wanted.partition,
        offset,
        max_wait_ms=_FETCH_WAIT_MS,
        max_bytes=min(options.fetch_bytes, left_bytes + _FETCH_BYTES_MIN),
        read_committed=options.read_committed,
    )


def _first_left(connection: Connection, wanted: OffsetRange, offset: int, options: SourceOptions) -> int:
    """Where to go on after offsets that are gone."""
    place = wanted.topic, wanted.partition
    earliest, latest = (
        connection.run(connection.cluster.list_offsets({place: timestamp}))[place].offset
        for timestamp in (EARLIEST, LATEST)
    )
    name = f"{wanted.topic}-{wanted.partition}"
    if earliest > offset:
        last = min(earliest, wanted.end) - 1
        data_lost(
            f"Offsets {offset} to {last} of {name} are gone: its log begins at {earliest} now, since "
            "retention or a deletion was faster than the query.",
            options,
        )
        return earliest
    data_lost(
        f"Offsets {offset} to {wanted.end - 1} of {name} are gone: its log ends at {latest} now. The topic "
        "was deleted and created again, or the brokers lost records.",
        options,
    )
    return wanted.end
