"""Clients that mean no good, one attack after the other. What they are answered does not matter to them."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crc32c import crc32c
from kio.index import load_entity_module
from kio.static.constants import EntityType
from tests.integration.raw_client import RawConnection, api_versions, framed, request_frame
from tests.soak.load import COMPACTED, Worker

from ottla.records.compression import GZIP

MIB = 1 << 20
PRODUCE, METADATA, JOIN_GROUP, DESCRIBE_CONFIGS = 0, 3, 11, 32
POISONED = "poisoned"
"""A topic that nobody of the ledger reads."""
CONNECTIONS = 1200
ANSWER_S_MAX = 30.0
ATTRIBUTES = struct.Struct(">hiqqqhii")


class Attacker(Worker):
    """Between two attacks it asks, as anybody would, and notes how long the answer took."""

    def __init__(
        self, servers: str, stopping: threading.Event, seed: str, disk: Path | None, without: set[str]
    ) -> None:
        super().__init__("attacker", stopping)
        self._servers = servers
        self._disk = disk
        self._random = random.Random(seed)
        attacks: list[Callable[[], None]] = [
            self.announced_sizes,
            self.silent_connections,
            self.noise,
            self.gzip_bombs,
            self.garbage_batches,
            self.giant_requests,
            self.huge_members,
            self.replies_behind_a_waiting_one,
        ]
        if disk is not None:
            attacks.append(self.full_disk)
        self._attacks = [attack for attack in attacks if attack.__name__ not in without]
        self.done: dict[str, int] = {}
        self.slowest_after: dict[str, float] = {}

    def step(self) -> None:
        attack = self._random.choice(self._attacks)
        with contextlib.suppress(OSError):
            attack()
        self.done[attack.__name__] = self.done.get(attack.__name__, 0) + 1
        begin = time.monotonic()
        while not self.stopping.is_set():
            try:
                with RawConnection(self._servers, ANSWER_S_MAX) as connection:
                    api_versions(connection)
                break
            except OSError:
                # The broker may be starting; the test looks whether it was meant to.
                assert time.monotonic() - begin < ANSWER_S_MAX, f"no answer after {attack.__name__}"
                self.stopping.wait(0.1)
        waited = time.monotonic() - begin
        self.slowest_s = max(self.slowest_s, waited)
        self.slowest_after[attack.__name__] = max(self.slowest_after.get(attack.__name__, 0.0), waited)
        self.stopping.wait(self._random.uniform(0, 1))

    # Connections.

    def announced_sizes(self) -> None:
        """Many that announce 100 MB, send nothing of it and go."""
        with ExitStack() as stack:
            for connection in self._connections(stack, CONNECTIONS // 2):
                connection.send(struct.pack(">i", 100 * MIB))
            self.stopping.wait(0.5)

    def silent_connections(self) -> None:
        """More than the broker has file descriptors for."""
        with ExitStack() as stack:
            for _ in self._connections(stack, CONNECTIONS):
                pass
            self.stopping.wait(1)

    def _connections(self, stack: ExitStack, count: int) -> Iterator[RawConnection]:
        for _ in range(count):
            if self.stopping.is_set():
                return
            with contextlib.suppress(OSError):
                yield stack.enter_context(RawConnection(self._servers, 5))

    def noise(self) -> None:
        """Bytes without a meaning, in frames and without."""
        for _ in range(50):
            data = self._random.randbytes(self._random.randint(1, 2000))
            with self._connected() as connection:
                connection.send(framed(data) if self._random.random() < 0.5 else data)
                with contextlib.suppress(OSError):
                    connection.socket.settimeout(0.05)
                    connection.socket.recv(1)

    # Records.

    def gzip_bombs(self) -> None:
        """A megabyte that becomes a gigabyte, for a topic whose keys the broker looks at."""
        bomb = gzip.compress(bytes(200 * MIB), 1)
        self._produce(COMPACTED, batch(bomb[: 1 * MIB - 100], 1000, GZIP))

    def garbage_batches(self) -> None:
        """Right on the outside."""
        self._produce(POISONED, batch(self._random.randbytes(500), 5, 0))
        self._produce(POISONED, batch(bytes(70), 2_000_000_000, 0))
        self._produce(POISONED, batch(self._random.randbytes(500), 5, GZIP))

    def _produce(self, topic: str, records: bytes) -> None:
        name = topic.encode()
        body = struct.pack(">hhih", -1, -1, 5000, 0)[:8] + struct.pack(">ih", 1, len(name)) + name
        body += struct.pack(">iii", 1, 0, len(records)) + records
        with self._connected() as connection:
            connection.send(framed(struct.pack(">hhih", PRODUCE, 3, 1, -1) + body))
            connection.receive()

    # Requests.

    def giant_requests(self) -> None:
        """Fifty thousand names, and a request of ninety megabytes."""
        module = load_entity_module("metadata", 12, EntityType.request)
        names = tuple(module.MetadataRequestTopic(topic_id=None, name=f"no-{n}") for n in range(50_000))
        request = module.MetadataRequest(
            topics=names, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        with self._connected() as connection:
            connection.send(request_frame(METADATA, 12, request))
            connection.receive()
        with self._connected() as connection:
            connection.send(framed(struct.pack(">hhih", PRODUCE, 3, 1, -1) + bytes(90 * MIB)))
            connection.receive()

    def huge_members(self) -> None:
        """Members whose metadata are a megabyte each."""
        metadata = os.urandom(MIB)
        with ExitStack() as stack:
            for number in range(60):
                connection = stack.enter_context(self._connected())
                connection.send(join_frame(f"huge-{number % 3}", metadata))
            self.stopping.wait(1)

    def replies_behind_a_waiting_one(self) -> None:
        """A JoinGroup that waits, and behind it questions with large answers, which nobody fetches."""
        module = load_entity_module("describe_configs", 4, EntityType.request)
        resource = module.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        question = request_frame(
            DESCRIBE_CONFIGS,
            4,
            module.DescribeConfigsRequest(
                resources=(resource,), include_synonyms=True, include_documentation=True
            ),
        )
        with self._connected() as connection, self._connected() as first:
            first.send(join_frame("waiting", b"x"))
            self.stopping.wait(0.2)
            connection.send(join_frame("waiting", b"y"))
            connection.socket.settimeout(2)
            connection.send(question * 1500)
            self.stopping.wait(1)

    # The machine.

    def full_disk(self) -> None:
        """Somebody else's file takes all the room there is, for some seconds."""
        assert self._disk is not None
        ballast = self._disk / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                chunk = bytes(MIB)
                while True:
                    file.write(chunk)
            with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x")
            self.stopping.wait(self._random.uniform(1, 5))
        finally:
            ballast.unlink(missing_ok=True)

    @contextmanager
    def _connected(self) -> Iterator[RawConnection]:
        with RawConnection(self._servers, 10) as connection:
            connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection


def batch(records: bytes, count: int, codec: int) -> bytes:
    """With the right CRC, whatever the records are."""
    now_ms = int(time.time() * 1000)
    covered = ATTRIBUTES.pack(codec, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def join_frame(group: str, metadata: bytes) -> bytes:
    """JoinGroup version 3, which gives a member without an id one at once."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    body = text(group) + struct.pack(">ii", 6000, 6000) + text("") + text("consumer")
    body += struct.pack(">i", 1) + text("range") + struct.pack(">i", len(metadata)) + metadata
    return framed(struct.pack(">hhih", JOIN_GROUP, 3, 1, -1) + body)
