"""A mirror in a thread of this process, and what clients find on either side of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.mirror.formats import position_key, read_position_value
from ottla.mirror.run import Mirror
from ottla.mirror.topic_log import TopicReader
from ottla.runtime.net import AsyncioNetwork

WAIT_S = 60.0
QUIET = {"log_level": 0}
# Of records: lately, or the retention of a topic takes them away in the middle of a test.
BEGAN_MS = int(time.time() * 1000) - 60_000


class Seen(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: tuple[int, int]
    headers: tuple[tuple[str, bytes | None], ...]


def wait_until(condition: Callable[[], Any], what: str, wait_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"not {what} in {wait_s} s"
        time.sleep(0.05)


def properties(source: str, target: str, **more: object) -> dict[str, str]:
    """Of a mirror from `a` to `b` that looks often; `__` stands for a dot."""
    quick = {
        "clusters": "a, b",
        "a.bootstrap.servers": source,
        "b.bootstrap.servers": target,
        "a->b.enabled": "true",
        "refresh.topics.interval.seconds": "0.3",
        "sync.topic.configs.interval.seconds": "0.3",
        "sync.topic.acls.interval.seconds": "0.3",
        "emit.checkpoints.interval.seconds": "0.3",
        "sync.group.offsets.interval.seconds": "0.3",
        "transaction.boundary.interval.ms": "100",
        "session.timeout.ms": "6000",
    }
    return quick | {name.replace("__", "."): str(value) for name, value in more.items()}


@contextmanager
def mirroring(settings: Mapping[str, str]) -> Iterator[Mirror]:
    """A mirror that runs until the end of the block."""
    started: list[Mirror] = []
    ready, failures = threading.Event(), []
    stopping: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stopped = asyncio.Event()
        stopping.append((asyncio.get_running_loop(), stopped))
        async with Mirror(settings) as mirror:
            started.append(mirror)
            ready.set()
            await stopped.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as failure:
            failures.append(failure)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        if failures:
            raise failures[0]
        yield started[0]
    finally:
        if stopping:
            loop, stopped = stopping[0]
            loop.call_soon_threadsafe(stopped.set)
        thread.join(30)
        assert not thread.is_alive(), "the mirror does not stop"


def admin_of(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **QUIET})


def create(servers: str, topic: str, partitions: int = 2, **configs: object) -> None:
    settings = {name.replace("__", "."): str(value) for name, value in configs.items()}
    new = NewTopic(topic, partitions, 1, config=settings)
    admin = admin_of(servers)
    admin.create_topics([new])[topic].result(30)


def produce(servers: str, topic: str, values: Sequence[str], partitions: int = 2, **settings: object) -> None:
    """Value number n goes to partition n % `partitions`, with a key, a header and a time of its own."""
    more = {name.replace("__", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET, **more})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=f"key-{number % 7}",
            partition=number % partitions,
            headers=[("number", str(number).encode()), ("none", None)],
            timestamp=BEGAN_MS + number,
        )
    assert producer.flush(WAIT_S) == 0


def transact(servers: str, topic: str, values: Sequence[str], *, commit: bool) -> None:
    """To partition 0, in a transaction of its own."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-writer", **QUIET})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(WAIT_S)
    if commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)


def consume(servers: str, topic: str, group: str, count: int, last: str | None = None) -> list[str]:
    """So many records, or up to the `last`, from where the group is, which is there afterwards."""
    return [value for _, value in consume_rows(servers, topic, group, count, last)]


def consume_rows(
    servers: str, topic: str, group: str, count: int, last: str | None = None, wait_s: float = WAIT_S
) -> list[tuple[int, str]]:
    """Partitions and values."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.partition(), message.value().decode()))
            if found[-1][1] == last:
                break
    if found:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def committed(servers: str, group: str, topic: str) -> int:
    """-1001 where there is none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, **QUIET})
    (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
    consumer.close()
    return int(found.offset)


def partition_count(servers: str, topic: str) -> int:
    admin = admin_of(servers)
    found = admin.list_topics(timeout=30).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def configs_of(servers: str, topic: str) -> dict[str, str]:
    admin = admin_of(servers)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (described,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in described.result(30).items()}


def set_config(servers: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = admin_of(servers)
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(30)


def allow(servers: str, topic: str, who: str, operation: AclOperation) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, who, "*", operation, AclPermissionType.ALLOW
    )
    admin = admin_of(servers)
    admin.create_acls([rule])[rule].result(30)


def allowed(servers: str, topic: str) -> set[tuple[str, str]]:
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = admin_of(servers)
    return {(rule.principal, rule.operation.name) for rule in admin.describe_acls(wanted).result(30)}


def position_of(servers: str, alias: str, topic: str) -> int | None:
    """Behind what is mirrored of partition 0, as it is written down."""
    found = [
        read_position_value(value)
        for key, value in records_of(servers, f"mm2-offsets.{alias}.internal")
        if key == position_key(alias, Partition(topic, 0))
    ]
    return None if not found or found[-1] is None else found[-1].offset + 1


def slots_of(mirror: Mirror) -> set[int]:
    (flow,) = [flow for flow in mirror.flows if flow.settings.replicates]
    return flow.own_slots


def read(
    servers: str, topic: str, count: int, partitions: int = 2, wait_s: float = WAIT_S
) -> list[list[Seen]]:
    """Per partition what is committed: `count` records in all, or what was found of them in time."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader-of-tests",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 200,
            "allow.auto.create.topics": False,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[list[Seen]] = [[] for _ in range(partitions)]
    deadline = time.monotonic() + wait_s
    while sum(map(len, found)) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                seen = Seen(
                    message.key(), message.value(), message.timestamp(), tuple(message.headers() or ())
                )
                found[message.partition()].append(seen)
    consumer.close()
    return found


def values_of(found: Sequence[Sequence[Seen]]) -> list[list[str]]:
    return [[(each.value or b"").decode() for each in partition] for partition in found]


def records_of(servers: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Keys and values of a mirror's own topic."""

    async def ask() -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        async with ClusterClient(AsyncioNetwork(), servers) as cluster:
            await TopicReader(cluster, topic, lambda key, value, _: found.append((key, value))).read_to_end()
        return found

    return asyncio.run(ask())
