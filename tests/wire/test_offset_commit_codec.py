"""The hand-written OffsetCommit codec against kio's, in every version."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.wire import offset_commit
from ottla.wire.frame import MalformedFrame

VERSIONS = range(2, 11)
TOPIC_ID = uuid.UUID(int=7)


def encoded(entity: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def request(version: int) -> Any:
    import sys

    request_type = load_request_schema(8, version)
    module: Any = sys.modules[request_type.__module__]
    partition: dict[str, Any] = {"partition_index": 3, "committed_offset": 2**40, "committed_metadata": "né"}
    if version >= 6:
        partition["committed_leader_epoch"] = 5
    empty = {**partition, "partition_index": 4, "committed_metadata": None}
    topic = {"topic_id": TOPIC_ID} if version >= 10 else {"name": "orders"}
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": 9,
        "member_id": "m",
        "topics": (
            module.OffsetCommitRequestTopic(
                **topic,
                partitions=(
                    module.OffsetCommitRequestPartition(**partition),
                    module.OffsetCommitRequestPartition(**empty),
                ),
            ),
        ),
    }
    if version < 5:
        fields["retention_time"] = datetime.timedelta(milliseconds=1234)
    if version >= 7:
        fields["group_instance_id"] = "i"
    return request_type(**fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests(version: int) -> None:
    parsed = offset_commit.parse(memoryview(b"head" + encoded(request(version))), 4, version)
    epoch = 5 if version >= 6 else -1
    assert parsed == offset_commit.OffsetCommitRequest(
        group_id="g",
        generation=9,
        member_id="m",
        instance_id="i" if version >= 7 else None,
        retention_ms=1234 if version < 5 else -1,
        topics=[
            offset_commit.CommittedTopic(
                "" if version >= 10 else "orders",
                TOPIC_ID if version >= 10 else None,
                [
                    offset_commit.CommittedPartition(3, 2**40, epoch, "né"),
                    offset_commit.CommittedPartition(4, 2**40, epoch, None),
                ],
            )
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_responses(version: int) -> None:
    data = offset_commit.encode(version, [("orders", TOPIC_ID, [(0, 0), (7, 3)]), ("x" * 200, None, [])])
    response, size = entity_reader(load_response_schema(8, version))(data, 0)
    assert size == len(data)
    first, second = response.topics
    rows = [(item.partition_index, item.error_code) for item in first.partitions]
    assert rows == [(0, ErrorCode.none), (7, ErrorCode.unknown_topic_or_partition)]
    if version >= 10:
        assert (first.topic_id, second.topic_id) == (TOPIC_ID, None)
    else:
        assert (first.name, second.name) == ("orders", "x" * 200)


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_broken_requests_are_refused(version: int, data: st.DataObject) -> None:
    whole = bytearray(encoded(request(version)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    try:
        offset_commit.parse(memoryview(whole)[:cut], 0, version)
    except (MalformedFrame, IndexError, UnicodeDecodeError):
        pass
    except Exception as error:
        # struct.error is what the connection expects too; anything else is not.
        assert type(error).__module__ == "struct"
