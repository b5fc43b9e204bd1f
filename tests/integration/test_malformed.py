"""A hundred thousand malformed frames: each ends its own connection and harms nobody else."""

from __future__ import annotations

import itertools
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.index import load_request_schema
from random_requests import random_request
from raw_client import (
    API_VERSIONS,
    RESET_ON_CLOSE,
    RawConnection,
    api_versions,
    framed,
    header,
    private_memory_bytes,
)

from ottla.testing import BrokerProcess

FRAMES = 100_000
AT_ONCE = 100
PAUSE_S = 0.005
SEED = 20_260
MEMORY_GROWTH_BYTES_MAX = 32 * 1024 * 1024
METADATA = 3
DELETE_TOPICS = 20
NEWEST_API_KEY = 92
# Produce is advertised from version 0 for the sake of old clients, and accepted from 3 (KAFKA-18659).
FIRST_ACCEPTED = {0: 3}
CLOSING = "closing connection from"

Apis = dict[int, range]
Maker = Callable[[random.Random, Apis], bytes]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


@pytest.fixture(scope="module")
def apis(broker: BrokerProcess) -> Apis:
    with RawConnection(broker.bootstrap_servers) as connection:
        return api_versions(connection)


def impossible_length(dice: random.Random, apis: Apis) -> bytes:
    length = dice.choice((-1, -(2**31), 0, 7, 2**31 - 1, 100 * 1024 * 1024 + 1, -dice.randint(1, 2**31)))
    return struct.pack(">i", length) + dice.randbytes(20)


def unknown_api(dice: random.Random, apis: Apis) -> bytes:
    unknown = [key for key in (*range(NEWEST_API_KEY + 1), -1, 2**15 - 1, -(2**15), 1000) if key not in apis]
    return framed(struct.pack(">hhih", dice.choice(unknown), 0, 1, -1) + dice.randbytes(10))


def unsupported_version(dice: random.Random, apis: Apis) -> bytes:
    key = dice.choice([key for key in apis if key != API_VERSIONS])
    version = dice.choice((apis[key].stop, -1, 2**15 - 1, -(2**15), apis[key].stop + dice.randint(0, 99)))
    return framed(struct.pack(">hhih", key, version, 1, -1) + dice.randbytes(30))


def noise(dice: random.Random, apis: Apis) -> bytes:
    return dice.randbytes(dice.randint(1, 300))


def garbage_body(dice: random.Random, apis: Apis) -> bytes:
    key = dice.choice(list(apis))
    version = max(dice.choice(apis[key]), FIRST_ACCEPTED.get(key, 0))
    return framed(header(key, version) + dice.randbytes(dice.randint(0, 120)))


def truncated(dice: random.Random, apis: Apis) -> bytes:
    whole = any_request(dice, apis)
    return whole[: dice.randint(1, len(whole) - 1)]


def shorter_than_its_contents(dice: random.Random, apis: Apis) -> bytes:
    whole = any_request(dice, apis)
    return framed(whole[4 : dice.randint(5, len(whole))])


def flipped(dice: random.Random, apis: Apis) -> bytes:
    frame = bytearray(any_request(dice, apis))
    for _ in range(dice.randint(1, 4)):
        frame[dice.randrange(8, len(frame))] = dice.randrange(256)
    return bytes(frame)


def any_request(dice: random.Random, apis: Apis) -> bytes:
    return dice.choice(valid_requests(tuple(apis.items())))


@cache
def valid_requests(apis: tuple[tuple[int, range], ...]) -> list[bytes]:
    dice = random.Random(SEED)
    return [
        random_request(key, version, dice)
        for key, versions in apis
        for version in versions[FIRST_ACCEPTED.get(key, 0) :]
        for _ in range(10)
    ]


# After these the broker must close by itself; after the others it may also answer, or wait for more.
CLOSED_BY_BROKER = (impossible_length, unknown_api, unsupported_version)
UNCERTAIN = (noise, garbage_body, truncated, shorter_than_its_contents, flipped)


def deliver(
    address: tuple[str, int], frames: list[bytes], *, half_close: bool, from_host: str | None = None
) -> int:
    """Each frame on a connection of its own, all open at once. How many the broker closed without a word."""
    sockets = []
    for frame in frames:
        connection = socket.create_connection(address, 20, from_host and (from_host, 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        connection.sendall(frame)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        sockets.append(connection)
    silent = 0
    for connection in sockets:
        try:
            silent += not connection.recv(1)
        except ConnectionResetError:
            silent += 1
        connection.close()
    return silent


class HealthyClient(threading.Thread):
    """Produces one record after the other while the broker is under fire; none may fail."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(name="healthy-client")
        self._settings = {"bootstrap.servers": bootstrap_servers}
        self._asked_to_stop = threading.Event()
        self.failures: list[object] = []
        self.acknowledged: list[int] = []

    def run(self) -> None:
        def failed(error: object) -> None:
            self.failures.append(error)

        def delivered(error: object, message: object) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged.append(message.offset())  # type: ignore[attr-defined]

        producer = Producer({**self._settings, "error_cb": failed, "message.send.max.retries": 0})
        for number in itertools.count():
            if self._asked_to_stop.wait(PAUSE_S):
                break
            producer.produce("healthy", b"%d" % number, on_delivery=delivered)
            producer.flush(20)

    def finish(self) -> None:
        self._asked_to_stop.set()
        self.join()

    def read_back(self) -> list[bytes]:
        consumer = Consumer({**self._settings, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition("healthy", 0, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + 20
        while len(values) < len(self.acknowledged) and time.monotonic() < deadline:
            values += [message.value() for message in consumer.consume(10_000, timeout=0.5)]
        consumer.close()
        return values


@pytest.mark.parametrize("number, maker", list(enumerate(CLOSED_BY_BROKER, 2)))
def test_one_clear_line_for_all_connections_of_one_host(
    number: int, maker: Maker, broker: BrokerProcess, apis: Apis
) -> None:
    dice = random.Random(SEED)
    host, port = broker.bootstrap_servers.split(":")
    before = len(broker.log)
    frames = [maker(dice, apis) for _ in range(AT_ONCE)]
    from_host = f"127.0.0.{number}"
    assert deliver((host, int(port)), frames, half_close=False, from_host=from_host) == AT_ONCE
    (line,) = broker.log[before:].splitlines()
    assert f"{CLOSING} {from_host}" in line


@pytest.mark.parametrize(
    "number, count", list(enumerate([b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x07", b"\x00"], 10))
)
def test_an_array_that_cannot_be(number: int, count: bytes, broker: BrokerProcess) -> None:
    """Thirty billion items, or null where an array must be: refused before anybody makes room for it."""
    before = len(broker.log)
    with RawConnection(broker.bootstrap_servers, from_host=f"127.0.0.{number}") as connection:
        connection.send(framed(header(DELETE_TOPICS, 6) + count + bytes(5)))
        assert connection.was_closed()
    with RawConnection(broker.bootstrap_servers) as connection:
        assert METADATA in api_versions(connection)
    (line,) = broker.log[before:].splitlines()
    assert CLOSING in line


def test_an_old_broker_version_is_told_what_there_is(broker: BrokerProcess) -> None:
    """ApiVersions is how clients find out, so an unknown version of it is answered, not punished."""
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send(framed(struct.pack(">hhih", API_VERSIONS, 99, 7, -1)))
        answer = connection.receive()
        correlation_id, error = struct.unpack_from(">ih", answer)
        assert (correlation_id, error) == (7, 35)
        assert METADATA in api_versions(connection)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_hundred_thousand_malformed_frames(
    broker: BrokerProcess, apis: Apis, capsys: pytest.CaptureFixture[str]
) -> None:
    dice = random.Random(SEED)
    host, port = broker.bootstrap_servers.split(":")
    address = (host, int(port))
    healthy = HealthyClient(broker.bootstrap_servers)
    healthy.start()
    log_before = len(broker.log)
    memory_warm = 0
    start = time.monotonic()
    try:
        with RawConnection(broker.bootstrap_servers) as witness:
            request = load_request_schema(API_VERSIONS, 0)()
            for number, maker in zip(
                range(0, FRAMES, AT_ONCE), itertools.cycle(CLOSED_BY_BROKER + UNCERTAIN), strict=False
            ):
                frames = [maker(dice, apis) for _ in range(AT_ONCE)]
                certain = maker in CLOSED_BY_BROKER
                silent = deliver(address, frames, half_close=not certain)
                assert not certain or silent == AT_ONCE, maker.__name__
                witness.call(API_VERSIONS, 0, request)
                if number == FRAMES // 10:
                    memory_warm = private_memory_bytes(broker.pid)
    finally:
        healthy.finish()
    elapsed = time.monotonic() - start
    growth = private_memory_bytes(broker.pid) - memory_warm
    with capsys.disabled():
        print(
            f"\n{FRAMES} malformed frames in {elapsed:.1f} s, memory grew by {growth / 2**20:.1f} MiB, "
            f"{len(healthy.acknowledged)} healthy records meanwhile"
        )
    assert not healthy.failures
    assert healthy.acknowledged == list(range(len(healthy.acknowledged)))
    assert healthy.read_back() == [b"%d" % number for number in range(len(healthy.acknowledged))]
    assert growth < MEMORY_GROWTH_BYTES_MAX
    log = broker.log[log_before:]
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
    assert log.count(CLOSING) <= 1 + elapsed / 60
