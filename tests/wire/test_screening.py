"""Tagged fields that nobody here knows, at every level of a message, and known ones beside them."""

from __future__ import annotations

import io
import struct
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.api_versions.v3 import request as api_versions
from kio.schema.api_versions.v3 import response as versions
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse
from kio.schema.vote.v2.request import PartitionData, TopicData, VoteRequest
from kio.serial import entity_writer
from kio.static.primitive import i8

from ottla.client.messages import ask_codec
from ottla.handlers.throttle import NOT_THROTTLED
from ottla.wire.api import ApiKey
from ottla.wire.frame import MalformedFrame
from ottla.wire.messages import codec
from ottla.wire.screening import screened, walker
from ottla.wire.times import MOMENT_MS_MAX, PERIOD_MS_MAX, moment, period

UNKNOWN = b"\x01\x63\x03xyz"
"""One tagged field, number 99."""


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(api: ApiKey, version: int, body: bytes) -> Any:
    return codec(api, version).read(memoryview(b"header" + body), 6)


def test_an_unknown_field_at_the_top_is_skipped() -> None:
    request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    body = written(request)
    assert body.endswith(b"\0")
    found = read(ApiKey.API_VERSIONS, 3, body[:-1] + UNKNOWN)
    assert (found.client_software_name, found.client_software_version) == ("a", "b")


def test_unknown_fields_in_the_items_of_a_list_are_skipped() -> None:
    topics = tuple(MetadataRequestTopic(topic_id=None, name=name) for name in ("first", "second"))
    request = MetadataRequest(
        topics=topics, allow_auto_topic_creation=True, include_topic_authorized_operations=True
    )
    body = written(request)
    assert body.count(b"first\0") == body.count(b"second\0") == 1
    more = body.replace(b"first\0", b"first" + UNKNOWN).replace(b"second\0", b"second\x02\x00\x00\x07\x01x")
    found = read(ApiKey.METADATA, 12, more)
    assert [topic.name for topic in found.topics] == ["first", "second"]
    assert found.allow_auto_topic_creation
    assert found.include_topic_authorized_operations


def test_known_fields_beside_unknown_ones_are_kept() -> None:
    """A response of ApiVersions has tagged fields: lists, of what may have tagged fields in turn."""
    feature = versions.SupportedFeatureKey(name="metadata.version", min_version=1, max_version=20)
    response = versions.ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=(),
        throttle_time=timedelta(),
        supported_features=(feature,),
        finalized_features_epoch=7,
    )
    body = written(response)
    # The feature's own fields end with an empty list of tagged ones: one more there, and one more at the top.
    inner = written(feature)
    at = body.index(inner)
    tag, size = body[at - 3], body[at - 2]
    assert (tag, size) == (0, len(inner) + 1)
    within = inner[:-1] + UNKNOWN
    body = (
        body[: at - 4]
        + bytes([body[at - 4] + 1, 0, len(within) + 1, 2])
        + within
        + body[at + len(inner) :]
        + UNKNOWN[1:]
    )
    found = ask_codec(ApiKey.API_VERSIONS, 3).read(body, 0)
    assert found == response


def test_a_request_of_another_node_with_unknown_fields() -> None:
    partition = PartitionData(
        partition_index=0,
        replica_epoch=5,
        replica_id=2,
        replica_directory_id=UUID(int=9),
        voter_directory_id=None,
        last_offset_epoch=4,
        last_offset=100,
        pre_vote=False,
    )
    request = VoteRequest(
        cluster_id="c", voter_id=1, topics=(TopicData(topic_name="t", partitions=(partition,)),)
    )
    body = written(request)
    assert body.endswith(b"\0\0\0\0")
    walk = walker(load_request_schema(int(ApiKey.VOTE), 2))
    frame, at = screened(walk, memoryview(body[:-3] + UNKNOWN * 3), 0)
    assert bytes(frame[at:]) == body


@pytest.mark.parametrize("tail", [b"\x01\x63\x09xyz", b"\x01\x63", b"\x02\x63\x03xyz"])
def test_a_field_that_does_not_end_is_malformed(tail: bytes) -> None:
    request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="b")
    with pytest.raises((MalformedFrame, IndexError)):
        read(ApiKey.API_VERSIONS, 3, written(request)[:-1] + tail)


@pytest.mark.parametrize(("length", "is_taken"), [(0x7FFF, True), (0x8000, False)])
def test_strings_end_where_they_do_for_kafka(length: int, is_taken: bool) -> None:
    """Who may send names of megabytes has them hashed, compared and kept."""
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("x" * length,))
    if is_taken:
        assert read(ApiKey.FIND_COORDINATOR, 4, written(request)).coordinator_keys == request.coordinator_keys
    else:
        with pytest.raises(MalformedFrame, match="a string of 32768 bytes, and 32767 is the limit"):
            read(ApiKey.FIND_COORDINATOR, 4, written(request))


@pytest.mark.parametrize("ms, seen_ms", [(2**63 - 1, PERIOD_MS_MAX), (-(2**63), -PERIOD_MS_MAX), (-1, -1)])
def test_periods_for_ever_last_as_long_as_can_be_said(ms: int, seen_ms: int) -> None:
    found = read(ApiKey.RENEW_DELEGATION_TOKEN, 2, b"\x02x" + struct.pack(">q", ms) + b"\0")
    assert found.hmac == b"x"
    assert found.renew_period // timedelta(milliseconds=1) == seen_ms


def test_answers_that_speak_of_ever_are_read_and_written() -> None:
    session_for_ever = b"\0\0\0\1" + struct.pack(">q", 2**63 - 1) + b"\0"
    answer = ask_codec(ApiKey.SASL_AUTHENTICATE, 2).read(session_for_ever, 0)
    assert answer.session_lifetime == period(2**63 - 1)
    renewed = RenewDelegationTokenResponse(
        error_code=ErrorCode.none, expiry_timestamp=moment(2**63 - 1), throttle_time=NOT_THROTTLED
    )
    written_ms = codec(ApiKey.RENEW_DELEGATION_TOKEN, 2).write(renewed)[2:10]
    assert written_ms == struct.pack(">q", MOMENT_MS_MAX)
