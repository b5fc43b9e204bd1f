"""The parts of a broker that metrics are read from, and the other end of a connection."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock
from uuid import UUID

from prometheus_client.parser import text_string_to_metric_families

from ottla.config import LogConfig
from ottla.coordinator.groups.offset_records import OffsetCommitValue
from ottla.coordinator.transactions.states import State
from ottla.handlers.figures import RequestFigures
from ottla.log.cleaner import CleanerCounters
from ottla.log.recovery import open_log
from ottla.log.scrubber import ScrubCounters
from ottla.log.types import CorruptBatch, TopicPartition
from ottla.metadata.image import PartitionImage
from ottla.raft.driver import QuorumDescription
from ottla.raft.roles import Role as QuorumRole
from ottla.raft.voters import VoterSet
from ottla.records.records import Record, encode_batch
from ottla.replication.partition import Partition, Role
from ottla.runtime import Runtime
from ottla.runtime.clock import SystemClock
from ottla.runtime.net import AsyncioNetwork
from ottla.runtime.tasks import ThreadOffload
from ottla.server.metrics.declared import METRICS
from ottla.server.metrics.page import render
from ottla.server.metrics.snapshot import Snapshot, read_snapshot
from ottla.sim.disk import SimDisk

TOPIC_ID = UUID(int=1)


def partition(index: int, records: int, **changes: Any) -> Partition:
    runtime = Runtime(SystemClock(), SimDisk(), AsyncioNetwork(), random.Random(3), ThreadOffload())
    name = TopicPartition("orders", index)
    config = LogConfig(segment_bytes=200)
    log = open_log(runtime, f"/data/{name}", name, config, clean=True, topic_id=TOPIC_ID)
    for _ in range(records):
        log.append(memoryview(encode_batch([Record(b"k", bytes(100), 0)])), 1)
    made = Partition(log, TOPIC_ID, 1, (1, 2))
    made.isr = (1, 2)
    for attribute, value in changes.items():
        setattr(made, attribute, value)
    return made


def offset(value: int) -> OffsetCommitValue:
    return OffsetCommitValue(value, -1, "", 0, -1, None)


def connection(software: str | None) -> Any:
    session = SimpleNamespace(listener="PLAINTEXT", software_name=software, software_version="2.8.0")
    return Mock(session=session, waiting_fetches=1)


class Hosted(dict[int, Partition]):
    offline: ClassVar[dict[int, str]] = {3: "its disk failed"}


class World:
    """A broker of two partitions, the second of them behind, and one that is being deleted."""

    def __init__(self) -> None:
        self.first = partition(0, records=5)
        self.second = partition(1, records=2, isr=(1,), high_watermark=1)
        hosted = {0: self.first, 1: self.second, 2: partition(2, records=1, role=Role.OFFLINE)}
        logs = {found.topic_partition: found.log for found in hosted.values()}
        self.scrubber = SimpleNamespace(found={}, counters=ScrubCounters(1, 2, 300, 4))
        self.cleaner = SimpleNamespace(
            counters=CleanerCounters(5, 6, 7000, 800, 9.5, 10_500, 11_000, 0.25),
            rounds_under_way=1,
            uncleanable={TopicPartition("table", 3): "rot"},
        )
        online, offline = PartitionImage((1,), (1,), 1, 1, 1, ()), PartitionImage((2,), (2,), -1, 1, 1, ())
        topics = {
            "orders": SimpleNamespace(partitions=(online, online)),
            "far": SimpleNamespace(partitions=(offline,), partition=lambda index: offline),
        }
        self.broker: Any = SimpleNamespace(
            node_id=7,
            cluster_id="abc",
            replicas=SimpleNamespace(
                by_name={b"orders": Hosted(hosted)},
                logs=SimpleNamespace(
                    scrubber=self.scrubber, cleaner=self.cleaner, get=logs.get, failed_directories=0
                ),
                in_sync=SimpleNamespace(shrinks=1, expansions=2),
                following=None,
                find=lambda topic, index: hosted.get(index) if topic == "orders" else None,
            ),
            figures=RequestFigures(),
            appends=SimpleNamespace(failures=Counter({("orders", 2): 1})),
            config=SimpleNamespace(
                strings=lambda key: ("broker", "controller"),
                string=lambda key: "",
                optional_string=lambda key: None,
            ),
            fetch_sessions={},
            share=SimpleNamespace(made=None),
            quorum=SimpleNamespace(
                role=QuorumRole.LEADER,
                voted_for=7,
                next_offset=100,
                commit_seconds=[0.001, 0.003],
                describe=lambda: QuorumDescription(True, 7, 3, 99, 100, {7: None}, {}, VoterSet(())),
            ),
            metadata=SimpleNamespace(
                image=SimpleNamespace(topics=topics, brokers={}), subscribe=lambda subscriber: None
            ),
            groups=SimpleNamespace(
                positions=lambda: [
                    ("shop", 2, {"orders": {0: offset(3), 1: offset(9)}, "far": {0: offset(1)}})
                ],
                count=lambda: Counter({("consumer", "Stable"): 2, ("classic", "Empty"): 1}),
            ),
            transactions=SimpleNamespace(count=lambda: Counter({State.ONGOING: 3})),
            telemetry=SimpleNamespace(instances=4, pushes=12, pushed_bytes=3456),
        )
        self.limits: Any = SimpleNamespace(
            connections={connection("librdkafka"): None, connection(None): None},
            admitted=20,
            refused=3,
            request_bytes=SimpleNamespace(used=4096, limit=1 << 20),
        )

    def damage(self, found: Partition, segment: int, position: int) -> None:
        path = found.log.segments[segment].path
        damaged = CorruptBatch(*found.topic_partition, 0, position, path, "rot")
        self.scrubber.found[path, position] = damaged

    def snapshot(self) -> Snapshot:
        return asyncio.run(read_snapshot(self.broker, self.limits))

    def scraped(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """By name and values of the labels."""
        text = render([(METRICS, self.snapshot())], "").body.decode()
        return {
            (sample.name, tuple(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def say(connection: Any, data: bytes) -> None:
    """As an event loop hands on what came."""
    while data:
        room = connection.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


class Transport:
    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.sent = b""
        self.closed = False
        self.aborted = False

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        assert not self.closed
        self.sent += b"".join(parts)

    def get_extra_info(self, name: str) -> tuple[str, int]:
        assert name == "peername"
        return self.address, 4711

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    @property
    def status(self) -> int:
        return int(self.sent.split(b" ")[1])

    @property
    def body(self) -> str:
        head, _, body = self.sent.partition(b"\r\n\r\n")
        assert b"Content-Length: %d\r\n" % len(body) in head
        assert head.endswith(b"Connection: close") or b"\r\nConnection: close\r\n" in head
        return body.decode()
