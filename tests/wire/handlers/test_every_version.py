"""Every version of every API is read, answered, and the answer can be read, on a live broker.

Requests are built by Hypothesis from kio's field declarations of exactly that version, so the handlers also
meet names, ids and numbers that make no sense; whatever they think of them, they must answer.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import socket
import struct
import sys
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.serial import entity_reader, entity_writer

from ottla.handlers.registry import REGISTRY, Api
from ottla.testing.in_process import InProcessBroker
from ottla.wire.api import ApiKey
from ottla.wire.errors import ErrorCode

HAND_PACKED = (ApiKey.PRODUCE, ApiKey.FETCH)
TOPICS = ("words", "numbers")
NAMES = st.sampled_from([*TOPICS, *TOPICS, "absent", "", ".", "no spaces", "1", "__cluster_metadata"])

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "uint16": st.sampled_from([0, 1, 9092, 2**16 - 1]),
    "int8": st.sampled_from([-1, 0, 1, 2, 4, 8, 16, 32, 127]),
    "int16": st.sampled_from([-1, 0, 1, 3, 2**15 - 1]),
    "int32": st.sampled_from([-2, -1, 0, 1, 2, 2**31 - 1]),
    "int64": st.sampled_from([-6, -5, -4, -3, -2, -1, 0, 1, 2**62]),
    "float64": st.sampled_from([0.0, 0.5, -1.0, 1e300]),
    "bool": st.booleans(),
    "string": NAMES,
    "bytes": st.binary(max_size=20),
    "uuid": st.one_of(st.none(), st.uuids()),
    "timedelta_i64": st.sampled_from([datetime.timedelta(0), datetime.timedelta(seconds=1)]),
    "timedelta_i32": st.sampled_from([datetime.timedelta(0), datetime.timedelta(seconds=1)]),
}


@cache
def requests(entity_type: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(entity_type, vars(sys.modules[entity_type.__module__]))
    return st.builds(
        entity_type,
        **{
            field.name: values(hints[field.name], field.metadata.get("kafka_type", ""))
            for field in dataclasses.fields(entity_type)
        },
    )


def values(hint: Any, kafka_type: str) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return st.lists(values(arguments[0], kafka_type), max_size=2).map(tuple)
    if origin in (types.UnionType, typing.Union) and kafka_type != "uuid":
        present = next(argument for argument in arguments if argument is not type(None))
        return st.one_of(st.none(), values(present, kafka_type))
    return requests(hint) if dataclasses.is_dataclass(hint) else PRIMITIVES[kafka_type]


def versions() -> list[Any]:
    return [
        pytest.param(api, version, id=f"{api.key.name.lower()}-{version}")
        for api in REGISTRY.values()
        if api.key not in HAND_PACKED
        for version in range(api.min_version, api.max_version + 1)
    ]


@pytest.fixture(scope="module")
def connection() -> Iterator[socket.socket]:
    with InProcessBroker() as broker, socket.create_connection((broker.host, broker.port), 30) as connected:
        yield connected


@pytest.fixture(autouse=True)
def topics(connection: socket.socket) -> None:
    """There is something to answer about, whatever earlier requests deleted."""
    wanted = tuple(MetadataRequestTopic(topic_id=None, name=name) for name in TOPICS)
    exchange(
        connection,
        ApiKey.METADATA,
        13,
        MetadataRequest(topics=wanted, include_topic_authorized_operations=False),
    )


def exchange(connection: socket.socket, api_key: int, version: int, request: Any) -> memoryview:
    """Send a request as its own version writes it; the reply without its size."""
    buffer = io.BytesIO()
    header = type(request).__header_schema__(
        request_api_key=api_key, request_api_version=version, correlation_id=version, client_id="test"
    )
    entity_writer(type(header))(buffer, header)
    entity_writer(type(request))(buffer, request)
    frame = buffer.getvalue()
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", receive(connection, 4))
    return memoryview(receive(connection, size))


def receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        assert chunk, "the broker closed the connection"
        received += chunk
    return bytes(received)


@pytest.mark.parametrize("api, version", versions())
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_round_trip(connection: socket.socket, api: Api, version: int, data: st.DataObject) -> None:
    request = data.draw(requests(load_request_schema(api.key, version)))
    reply = exchange(connection, api.key, version, request)

    response_type = load_response_schema(api.key, version)
    header, header_size = entity_reader(response_type.__header_schema__)(reply, 0)
    assert header.correlation_id == version
    response, body_size = entity_reader(response_type)(reply, header_size)
    assert header_size + body_size == len(reply)
    assert isinstance(response, response_type)


def test_an_error_about_the_longest_name_there_can_be_still_fits(connection: socket.socket) -> None:
    """Version 4 has strings of at most 32,767 bytes, and the message quotes the name."""
    request_type = load_request_schema(ApiKey.CREATE_TOPICS, 4)
    topic_type = sys.modules[request_type.__module__].CreatableTopic
    topic = topic_type(name="x" * 32_767, num_partitions=1, replication_factor=1, assignments=(), configs=())
    reply = exchange(connection, ApiKey.CREATE_TOPICS, 4, request_type(topics=(topic,)))
    response_type = load_response_schema(ApiKey.CREATE_TOPICS, 4)
    response, _ = entity_reader(response_type)(reply, 4)
    assert response.topics[0].error_code is ErrorCode.invalid_topic_exception
    assert "the length of" in response.topics[0].error_message
