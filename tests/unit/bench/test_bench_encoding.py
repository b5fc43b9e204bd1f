"""The generator's bytes are what kio and Ottla's own readers take them for."""

from __future__ import annotations

import io
import struct

from bench import encoding
from bench.replay import batch_ends, records_in_answer

from ottla.records.batch import HEADER_BYTES, crc_matches, read_header
from ottla.wire import messages as _hides_heavy_imports  # noqa: F401

from kio.schema.fetch.v11 import request as fetch_request  # isort: skip
from kio.schema.produce.v8 import request as produce_request  # isort: skip
from kio.serial import entity_reader  # isort: skip

REQUEST_HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len(encoding.CLIENT_ID)


def body(frame: bytes) -> bytes:
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return frame[REQUEST_HEADER_BYTES:]


def test_record_batch_has_a_true_header() -> None:
    batch = encoding.record_batch([b"a" * 300, b"b"], timestamp_ms=1234)
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, header.crc)
    assert (header.magic, header.last_offset_delta, header.record_count) == (2, 1, 2)
    assert (header.base_timestamp, header.max_timestamp, header.producer_id) == (1234, 1234, -1)


def test_produce_frame_reads_as_produce() -> None:
    batch = encoding.record_batch([b"value"], timestamp_ms=0)
    frame = encoding.produce_frame("topic", 3, batch, acks=-1)
    request, _ = entity_reader(produce_request.ProduceRequest)(body(frame), 0)
    assert request.acks == -1
    assert [topic.name for topic in request.topic_data] == ["topic"]
    (partition,) = request.topic_data[0].partition_data
    assert (partition.index, partition.records) == (3, batch)


def test_fetch_frame_says_where_its_offset_is() -> None:
    frame, offset_at = encoding.fetch_frame("topic", 2, 7, wait_ms=500, partition_bytes_max=99)
    struct.pack_into(">q", frame, offset_at, 1 << 40)
    request, _ = entity_reader(fetch_request.FetchRequest)(body(bytes(frame)), 0)
    (partition,) = request.topics[0].partitions
    assert (partition.partition, partition.fetch_offset, partition.partition_max_bytes) == (2, 1 << 40, 99)
    assert (request.session_epoch, request.forgotten_topics_data) == (-1, ())


def test_answer_walk_stops_at_a_partial_batch() -> None:
    whole = bytearray(encoding.record_batch([b"x"] * 5, timestamp_ms=0))
    struct.pack_into(">q", whole, 0, 100)
    records = bytes(whole) + bytes(whole)[: HEADER_BYTES + 1]
    answer = io.BytesIO()
    answer.write(struct.pack(">iihi", 0, 0, 0, 0))
    answer.write(struct.pack(">i", 1) + encoding.string("topic") + struct.pack(">i", 1))
    answer.write(struct.pack(">ihqqqii", 0, 0, 105, 105, 0, 0, -1))
    answer.write(struct.pack(">i", len(records)) + records)
    view = memoryview(answer.getvalue())
    assert batch_ends(view, *records_in_answer(view, "topic")) == [105]
