"""What consumers write into the classic protocol, against kio's reading of Kafka's schemas."""

from __future__ import annotations

import contextlib
import io
import struct
from importlib import import_module

import pytest
from group_driver import subscription, topics
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from ottla.coordinator.groups.embedded import (
    MalformedProtocol,
    encode_assignment,
    parse_assignment,
    parse_subscription,
    subscribed_topics,
)


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions(version: int) -> None:
    data = subscription("a", "b", version=version, owned={"a": [0, 2]})
    parsed = parse_subscription(data)
    assert parsed.topics == ("a", "b")
    assert parsed.owned == ({"a": (0, 2)} if version else {})
    assert subscribed_topics(data) == ("a", "b")


def test_a_rack_is_read() -> None:
    module = import_module("kio.schema.consumer_protocol_subscription.v3.data")
    buffer = io.BytesIO(b"\0\3")
    buffer.seek(2)
    entity = module.ConsumerProtocolSubscription(
        topics=("a",), user_data=b"mine", owned_partitions=(), generation_id=7, rack_id="r1"
    )
    entity_writer(type(entity))(buffer, entity)
    assert parse_subscription(buffer.getvalue()).rack_id == "r1"


def test_versions_to_come_are_read_as_the_newest_known() -> None:
    data = b"\0\x63" + subscription("a", version=3)[2:] + b"more"
    assert parse_subscription(data).topics == ("a",)


@pytest.mark.parametrize("version", range(4))
def test_assignments_are_written_as_kafka_reads_them(version: int) -> None:
    view = topics(a=3, b=1)
    data = encode_assignment(
        version, {view.topics["a"].id: frozenset({2, 0}), view.topics["b"].id: frozenset({0})}, view
    )
    module = import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    assert struct.unpack_from(">h", data) == (version,)
    entity, _ = entity_reader(module.ConsumerProtocolAssignment)(data, 2)
    assert [(item.topic, item.partitions) for item in entity.assigned_partitions] == [
        ("a", (0, 2)),
        ("b", (0,)),
    ]
    assert entity.user_data is None
    assert parse_assignment(data) == ({"a": (0, 2), "b": (0,)}, b"")


def test_topics_that_are_gone_are_not_assigned() -> None:
    view = topics(a=1)
    gone = view.without_topic("a")
    data = encode_assignment(0, {view.topics["a"].id: frozenset({0})}, gone)
    assert parse_assignment(data) == ({}, b"")


@given(st.binary(max_size=60))
def test_any_bytes_are_understood_or_refused(data: bytes) -> None:
    for parse in (parse_subscription, parse_assignment, subscribed_topics):
        with contextlib.suppress(MalformedProtocol):
            parse(data)


def test_a_lying_count_is_refused_at_once() -> None:
    with pytest.raises(MalformedProtocol, match="claims"):
        parse_subscription(b"\0\0\x7f\xff\xff\xff")
