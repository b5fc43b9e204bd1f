"""The hand-written Produce and Fetch codecs against kio's, in every version, and against garbage."""

from __future__ import annotations

import contextlib
import io
import struct
import uuid
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_entity_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.log.types import AppendResult, appended
from ottla.wire import fetch, produce
from ottla.wire.current_leader import CurrentLeader, NodeEndpoint
from ottla.wire.fetch import FetchedPartition
from ottla.wire.frame import MalformedFrame
from ottla.wire.produce import PartitionResult

PRODUCE, FETCH = 0, 1


def written(entity: Any) -> memoryview:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(buffer.getvalue())


def topic_fields(name: str, version: int, first_with_ids: int, attribute: str) -> dict[str, Any]:
    if version >= first_with_ids:
        return {"topic_id": uuid.uuid5(uuid.NAMESPACE_DNS, name)}
    return {attribute: name}


def topic_key(name: str, version: int, first_with_ids: int) -> bytes:
    return uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes if version >= first_with_ids else name.encode()


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=200)
produce_topics = st.lists(
    st.tuples(names, st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=300)), max_size=4)),
    max_size=3,
)


@pytest.mark.parametrize("version", range(3, 14))
@given(
    topics=produce_topics,
    acks=st.sampled_from([-1, 0, 1]),
    transactional_id=st.none() | names,
    timeout_ms=st.integers(0, 1 << 30),
)
@settings(max_examples=25, deadline=None)
def test_produce_requests_parse_as_kio_writes_them(version, topics, acks, transactional_id, timeout_ms):
    module = load_entity_module("produce", version, EntityType.request)
    request = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            module.TopicProduceData(
                **topic_fields(name, version, 13, "name"),
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=records) for index, records in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    frame = written(request)
    parsed = produce.parse(frame, 0, version)
    assert (parsed.transactional_id, parsed.acks, parsed.timeout_ms) == (transactional_id, acks, timeout_ms)
    assert [(t.topic, [(i, bytes(r)) for i, r in t.partitions]) for t in parsed.topics] == [
        (topic_key(name, version, 13), partitions) for name, partitions in topics
    ]
    for cut in range(0, len(frame), max(1, len(frame) // 20)):
        with pytest.raises(MalformedFrame):
            produce.parse(frame[:cut], 0, version)


@pytest.mark.parametrize("version", range(3, 14))
@given(
    topics=st.lists(
        st.tuples(
            names,
            st.lists(
                st.builds(
                    PartitionResult,
                    st.integers(0, 1000),
                    st.sampled_from([0, 2, 3, 10, 87]),
                    st.integers(-1, 1 << 60),
                    st.integers(-1, 4_000_000_000_000),
                    st.integers(-1, 1 << 60),
                    st.none() | st.text(max_size=200),
                    st.lists(st.tuples(st.integers(0, 1 << 30), st.text(max_size=200)), max_size=200),
                ),
                max_size=4,
            ),
        ),
        max_size=3,
    )
)
@settings(max_examples=25, deadline=None)
def test_produce_responses_read_as_kio_reads_them(version, topics):
    body = produce.encode(version, [(topic_key(n, version, 13), rows) for n, rows in topics])
    response, size = entity_reader(load_response_schema(PRODUCE, version))(body, 0)
    assert size == len(body)
    assert len(response.responses) == len(topics)
    for topic, (name, rows) in zip(response.responses, topics, strict=True):
        if version >= 13:
            assert topic.topic_id == uuid.uuid5(uuid.NAMESPACE_DNS, name)
        else:
            assert topic.name == name
        for got, row in zip(topic.partition_responses, rows, strict=True):
            assert got.index == row.partition
            assert got.error_code == ErrorCode(row.error_code)
            assert got.base_offset == row.base_offset
            if version >= 5:
                assert got.log_start_offset == row.log_start_offset
            if version >= 8:
                assert got.error_message == row.error_message
                errors = [(error.batch_index, error.batch_index_error_message) for error in got.record_errors]
                # What is wrong with single records comes with a summary.
                assert errors == ([] if row.error_message is None else list(row.record_errors))


fetch_topics = st.lists(
    st.tuples(
        names,
        st.lists(
            st.tuples(
                st.integers(0, 1000), st.integers(-1, 50), st.integers(0, 1 << 60), st.integers(0, 1 << 30)
            ),
            max_size=4,
        ),
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", range(4, 19))
@given(
    topics=fetch_topics,
    forgotten=st.lists(st.tuples(names, st.lists(st.integers(0, 1000), max_size=4)), max_size=2),
    session=st.tuples(st.integers(0, 1 << 30), st.integers(-1, 1 << 30)),
    committed=st.booleans(),
    rack=names,
)
@settings(max_examples=25, deadline=None)
def test_fetch_requests_parse_as_kio_writes_them(version, topics, forgotten, session, committed, rack):
    module = load_entity_module("fetch", version, EntityType.request)
    fields: dict[str, Any] = {}
    if version >= 7:
        fields |= {
            "session_id": session[0],
            "session_epoch": session[1],
            "forgotten_topics_data": tuple(
                module.ForgottenTopic(**topic_fields(name, version, 13, "topic"), partitions=tuple(indexes))
                for name, indexes in forgotten
            ),
        }
    if version >= 11:
        fields["rack_id"] = rack
    request = module.FetchRequest(
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        **({"replica_id": -1} if version < 15 else {}),
        topics=tuple(
            module.FetchTopic(
                **topic_fields(name, version, 13, "topic"),
                partitions=tuple(
                    module.FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=max_bytes,
                        **({"current_leader_epoch": epoch} if version >= 9 else {}),
                    )
                    for index, epoch, offset, max_bytes in partitions
                ),
            )
            for name, partitions in topics
        ),
        **fields,
    )
    frame = written(request)
    parsed = fetch.parse(frame, 0, version)
    assert parsed.replica_id == -1
    assert (parsed.max_wait_ms, parsed.min_bytes, parsed.max_bytes) == (500, 1, 1 << 20)
    assert parsed.read_committed == committed
    assert parsed.rack == (rack if version >= 11 else "")
    assert [(t, [tuple(p[:4]) for p in ps]) for t, ps in parsed.topics] == [
        (
            topic_key(name, version, 13),
            [(i, epoch if version >= 9 else -1, offset, size) for i, epoch, offset, size in partitions],
        )
        for name, partitions in topics
    ]
    if version >= 7:
        assert (parsed.session_id, parsed.session_epoch) == session
        assert parsed.forgotten == [(topic_key(name, version, 13), indexes) for name, indexes in forgotten]


@pytest.mark.parametrize("version", range(4, 19))
@given(
    topics=st.lists(
        st.tuples(
            names,
            st.lists(
                st.builds(
                    FetchedPartition,
                    st.integers(0, 1000),
                    st.sampled_from([0, 1, 3, 6, 100]),
                    st.integers(-1, 1 << 60),
                    st.integers(-1, 1 << 60),
                    st.integers(-1, 1 << 60),
                    st.binary(max_size=400),
                    st.none()
                    | st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)), max_size=4),
                    diverging=st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 40)),
                    preferred=st.integers(-1, 1 << 20),
                ),
                max_size=4,
            ),
        ),
        max_size=3,
    ),
    session_id=st.integers(0, 1 << 30),
)
@settings(max_examples=25, deadline=None)
def test_fetch_responses_read_as_kio_reads_them(version, topics, session_id):
    keyed = [(topic_key(n, version, 13), rows) for n, rows in topics]
    body = b"".join(bytes(b) for b in fetch.encode(version, session_id, keyed))
    response, size = entity_reader(load_response_schema(FETCH, version))(body, 0)
    assert size == len(body)
    if version >= 7:
        assert response.session_id == session_id
    for topic, (name, rows) in zip(response.responses, topics, strict=True):
        if version >= 13:
            assert topic.topic_id == uuid.uuid5(uuid.NAMESPACE_DNS, name)
        else:
            assert topic.topic == name
        for got, row in zip(topic.partitions, rows, strict=True):
            assert got.partition_index == row.partition
            assert got.error_code == ErrorCode(row.error_code)
            assert got.high_watermark == row.high_watermark
            assert got.last_stable_offset == row.last_stable_offset
            if version >= 5:
                assert got.log_start_offset == row.log_start_offset
            assert bytes(got.records or b"") == row.records
            aborted = got.aborted_transactions
            if aborted is not None:
                aborted = [(transaction.producer_id, transaction.first_offset) for transaction in aborted]
            assert aborted == row.aborted
            if version >= 11:
                assert got.preferred_read_replica == row.preferred
            if version >= 12 and row.diverging is not None:
                assert (got.diverging_epoch.epoch, got.diverging_epoch.end_offset) == row.diverging


def test_a_follower_names_itself_in_a_tagged_field():
    module = load_entity_module("fetch", 15, EntityType.request)
    request = load_request_schema(FETCH, 15)(
        max_wait=timedelta(0),
        min_bytes=1,
        topics=(),
        forgotten_topics_data=(),
        replica_state=module.ReplicaState(replica_id=7, replica_epoch=3),
    )
    assert fetch.parse(written(request), 0, 15).replica_id == 7


@pytest.mark.parametrize("codec, versions", [(produce, range(3, 14)), (fetch, range(4, 19))])
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_garbage_is_refused_or_parsed_but_never_breaks_the_parser(codec, versions, data):
    version = data.draw(st.sampled_from(list(versions)))
    frame = data.draw(st.binary(max_size=200))
    with contextlib.suppress(MalformedFrame):
        codec.parse(memoryview(frame), 0, version)


def test_lying_counts_do_not_cost_time():
    """A count of two thousand million ends at the end of the frame, not after two thousand million rounds."""
    head = struct.pack(">hhii", -1, 1, 1000, 0x7FFFFFFF)
    with pytest.raises(MalformedFrame):
        produce.parse(memoryview(head + b"\0\1a" + struct.pack(">i", 0x7FFFFFFF) + b"\0" * 64), 0, 7)


class KnownLeaders:
    """Whatever it is asked for."""

    def find(self, listener: str, topic: bytes, partition: int, *, by_id: bool) -> CurrentLeader | None:
        assert listener == "OUTSIDE"
        assert by_id == (len(topic) == 16)
        if partition == 0:
            return CurrentLeader(7, 3, NodeEndpoint(7, "seven", 9097, "north"))
        if partition == 1:
            return CurrentLeader(8, 4, NodeEndpoint(8, "eight", 9098, None))
        return CurrentLeader(-1, 5, None)


LED_ELSEWHERE = {0: (7, 3), 1: (8, 4), 2: (-1, 5)}
ENDPOINTS = {(7, "seven", 9097, "north"), (8, "eight", 9098, None)}


def endpoints(response: Any) -> set[tuple[int, str, int, str | None]]:
    return {(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints}


@pytest.mark.parametrize("version", range(9, 14))
def test_produce_answers_tell_who_leads(version):
    rows = [PartitionResult(index, 6, error_message="elsewhere") for index in range(3)]
    rows.append(PartitionResult(3, 87, error_message="refused"))
    body = produce.encode(version, [(topic_key("topic", version, 13), rows)], 0, KnownLeaders(), "OUTSIDE")
    response, size = entity_reader(load_response_schema(PRODUCE, version))(body, 0)
    assert size == len(body)
    if version >= 10:
        leaders = [row.current_leader for row in response.responses[0].partition_responses]
        expected = [*LED_ELSEWHERE.values(), (-1, -1)]
        assert [(leader.leader_id, leader.leader_epoch) for leader in leaders] == expected
        assert endpoints(response) == ENDPOINTS


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_answers_tell_who_leads(version):
    rows = [FetchedPartition(index, 74 if index else 6, -1, -1, -1, b"") for index in range(3)]
    rows.append(FetchedPartition(3, 1, -1, -1, -1, b""))
    keyed = [(topic_key("topic", version, 13), rows)]
    body = b"".join(fetch.encode(version, 0, keyed, 0, 0, KnownLeaders(), "OUTSIDE"))
    response, size = entity_reader(load_response_schema(FETCH, version))(body, 0)
    assert size == len(body)
    if version >= 12:
        leaders = [row.current_leader for row in response.responses[0].partitions]
        expected = [*LED_ELSEWHERE.values(), (-1, -1)] if version >= 16 else [(-1, -1)] * 4
        assert [(leader.leader_id, leader.leader_epoch) for leader in leaders] == expected
    if version >= 16:
        assert endpoints(response) == ENDPOINTS


def test_what_is_made_without_a_constructor_is_as_if_made_by_it() -> None:
    assert fetch.fetched(1, 2, 3, 4, b"5", []) == fetch.FetchedPartition(1, 0, 2, 3, 4, b"5", [])
    assert produce.appended(1, 2, 3, 4) == produce.PartitionResult(1, 0, 2, 3, 4)
    assert appended(1, 2, 3, 4) == AppendResult(1, 2, 3, 4, duplicate=False)
