"""Everything a client could ask too much of has a limit, and reaching it harms that client alone."""

from __future__ import annotations

import datetime
import logging
import struct
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from raw_client import RawConnection, api_versions, private_memory_bytes, request_frame

import ottla.testing
from ottla.testing import BrokerProcess

FETCH = 1
METADATA = 3
INCREMENTAL_ALTER_CONFIGS = 44
BROKER = 4
MIB = 1024 * 1024


def wait_until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "still not so after the time-out"
        time.sleep(0.01)


def create_topic(bootstrap_servers: str, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(20)


def fetch_frame(topic: str, offset: int, *, max_wait_ms: int = 0, max_bytes: int = MIB) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait=datetime.timedelta(milliseconds=max_wait_ms),
        min_bytes=1,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    return request_frame(FETCH, 12, request)


def metadata_frame(*, topics: int) -> bytes:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name="x" * 249) for _ in range(topics)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return request_frame(METADATA, 12, request)


def test_request_larger_than_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        ottla.testing.broker(set={"socket.request.max.bytes": 1000}) as broker,
        RawConnection(broker.bootstrap_servers) as other,
    ):
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.send(struct.pack(">i", 1001))
            assert connection.was_closed()
        assert METADATA in api_versions(other)
    (line,) = [
        record.getMessage() for record in caplog.records if "closing connection" in record.getMessage()
    ]
    assert "1001" in line
    assert "more than the 1000 it may have (socket.request.max.bytes" in line


def test_request_exactly_as_large_as_allowed() -> None:
    frame = metadata_frame(topics=3)
    allowed = len(frame) - 4
    with (
        ottla.testing.broker(set={"socket.request.max.bytes": allowed}) as broker,
        RawConnection(broker.bootstrap_servers) as connection,
    ):
        connection.send(frame)
        assert connection.receive()


def test_connections_of_one_address(caplog: pytest.LogCaptureFixture) -> None:
    with ottla.testing.broker(set={"max.connections.per.ip": 2}) as broker:
        first, second = (RawConnection(broker.bootstrap_servers) for _ in range(2))
        assert api_versions(first)
        assert api_versions(second)
        with RawConnection(broker.bootstrap_servers) as third:
            assert third.was_closed()
        assert "max.connections.per.ip=2" in caplog.text
        first.close()

        def admitted() -> bool:
            with RawConnection(broker.bootstrap_servers) as again:
                try:
                    return bool(api_versions(again))
                except ConnectionError:
                    return False

        wait_until(admitted)
        assert api_versions(second)
        second.close()


def test_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    with ottla.testing.broker(set={"max.connections": 1}) as broker:
        with RawConnection(broker.bootstrap_servers) as only:
            assert api_versions(only)
            with RawConnection(broker.bootstrap_servers) as second:
                assert second.was_closed()
            assert api_versions(only)
        assert "max.connections=1" in caplog.text


def alter_cluster_default(connection: RawConnection, key: str, value: str | None) -> None:
    operation = 1 if value is None else 0
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=(config,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (answer,) = connection.call(INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code == ErrorCode.none, answer.error_message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.connections", "1"),
        ("max.connections.per.ip", "1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:1"),
    ],
)
def test_limits_of_connections_change_while_the_broker_runs(key: str, value: str) -> None:
    with (
        ottla.testing.broker() as broker,
        RawConnection(broker.bootstrap_servers) as earlier,
    ):
        assert api_versions(earlier)
        alter_cluster_default(earlier, key, value)
        with RawConnection(broker.bootstrap_servers) as later:
            assert later.was_closed()
        assert api_versions(earlier), "those that are open stay"
        alter_cluster_default(earlier, key, None)
        with RawConnection(broker.bootstrap_servers) as later:
            assert api_versions(later)


def test_idle_connection() -> None:
    idle_ms = 300
    with ottla.testing.broker(set={"connections.max.idle.ms": idle_ms}) as broker:
        create_topic(broker.bootstrap_servers, "quiet")
        with (
            RawConnection(broker.bootstrap_servers) as idle,
            RawConnection(broker.bootstrap_servers) as busy,
            RawConnection(broker.bootstrap_servers) as waiting,
        ):
            waiting.send(fetch_frame("quiet", 0, max_wait_ms=4 * idle_ms))
            start = time.monotonic()
            idle.socket.settimeout(idle_ms / 1000 / 4)
            while time.monotonic() - start < 10:
                assert api_versions(busy)
                try:
                    assert idle.was_closed()
                    break
                except TimeoutError:
                    continue
            elapsed_ms = (time.monotonic() - start) * 1000
            assert idle_ms * 0.9 < elapsed_ms < idle_ms * 3
            assert waiting.receive()


def test_a_client_that_does_not_read() -> None:
    """Its answers fill what the socket and the broker hold for it, then its requests are left unread."""
    with BrokerProcess() as broker:
        create_topic(broker.bootstrap_servers, "large", **{"max.message.bytes": str(4 * MIB)})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 4 * MIB})
        # Many records of a size that is copied rather than mapped, so that answers take private memory.
        for _ in range(400):
            producer.produce("large", bytes(50_000))
            producer.poll(0)
        assert producer.flush(20) == 0
        with (
            RawConnection(broker.bootstrap_servers) as slow,
            RawConnection(broker.bootstrap_servers) as other,
        ):
            for offset in range(0, 400, 50):
                other.send(fetch_frame("large", offset))
                assert len(other.receive()) > 50_000
            before = private_memory_bytes(broker.pid)
            requests = 4000
            slow.socket.settimeout(2)
            sent = 0
            frames = [fetch_frame("large", number % 400, max_bytes=60_000) for number in range(requests)]
            try:
                for frame in frames:
                    slow.send(frame)
                    sent += 1
            except TimeoutError:
                pass
            start = time.monotonic()
            for _ in range(20):
                assert api_versions(other)
            assert time.monotonic() - start < 2
            growth = private_memory_bytes(broker.pid) - before
            assert growth < 64 * MIB, f"{growth / MIB:.0f} MiB for {sent} requests whose answers nobody reads"
            slow.socket.settimeout(20)
            for _ in range(sent):
                assert len(slow.receive()) > 50_000


def test_half_sent_requests_do_not_fill_memory() -> None:
    """Memory is promised before a body is read; who comes too late waits until others are through."""
    limit = 8 * MIB
    connections = 40
    with BrokerProcess({"queued.max.request.bytes": limit, "socket.request.max.bytes": limit}) as broker:
        frame = metadata_frame(topics=2 * MIB // len(metadata_frame(topics=1)))
        before = private_memory_bytes(broker.pid)
        half_open = [RawConnection(broker.bootstrap_servers) for _ in range(connections)]
        for connection in half_open:
            connection.socket.setblocking(False)
        left = {connection: memoryview(frame)[:-1] for connection in half_open}
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            send_some(left)
        growth = private_memory_bytes(broker.pid) - before
        # What had arrived before the broker saw the length is held as well, up to 256 KiB a connection.
        assert growth < 3 * limit, f"{growth / MIB:.0f} MiB with a limit of {limit / MIB:.0f}"
        with RawConnection(broker.bootstrap_servers) as other:
            assert api_versions(other)
        left = {connection: memoryview(bytes(rest) + frame[-1:]) for connection, rest in left.items()}
        deadline = time.monotonic() + 20
        while any(left.values()):
            assert time.monotonic() < deadline, "some requests are never read"
            send_some(left)
        for connection in half_open:
            connection.socket.settimeout(20)
            assert connection.receive()
            connection.close()


def test_announcing_a_large_request_takes_no_memory() -> None:
    with BrokerProcess() as broker:
        before = private_memory_bytes(broker.pid)
        connections = [RawConnection(broker.bootstrap_servers) for _ in range(4)]
        for connection in connections:
            connection.send(struct.pack(">i", 100 * MIB) + bytes(1000))
        with RawConnection(broker.bootstrap_servers) as other:
            assert api_versions(other)
        growth = private_memory_bytes(broker.pid) - before
        for connection in connections:
            connection.close()
        assert growth < 16 * MIB, f"{growth / MIB:.0f} MiB for 4 KiB received"


def test_memory_kept_for_later_is_given_to_who_needs_it_now() -> None:
    """A connection keeps its buffer for the next large request, but not while another has to wait for it."""
    limit = 8 * MIB
    topics_per_mib = MIB // len(metadata_frame(topics=1))
    with (
        ottla.testing.broker(
            set={"queued.max.request.bytes": limit, "socket.request.max.bytes": limit}
        ) as broker,
        RawConnection(broker.bootstrap_servers) as first,
        RawConnection(broker.bootstrap_servers, timeout_s=10) as second,
    ):
        for connection, size_mib in ((first, 3), (second, 6), (first, 6)):
            connection.send(metadata_frame(topics=size_mib * topics_per_mib))
            assert connection.receive()


def send_some(left: dict[RawConnection, memoryview]) -> None:
    for connection, rest in left.items():
        try:
            left[connection] = rest[connection.socket.send(rest) :] if rest else rest
        except BlockingIOError:
            continue
