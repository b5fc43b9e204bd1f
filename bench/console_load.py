"""What the console is measured with: very many topics and groups, a long topic, and one to search in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence

from confluent_kafka.admin import AdminClient, NewTopic

from bench import encoding
from bench.admin import end_offsets
from bench.brokers import RunningBroker
from bench.connection import Connection
from bench.filling import ANY_PARTITION, Row, fill
from bench.replay import CONNECTIONS, PARTITIONS, RECORDS_PER_BATCH, batch_frames, send_batches
from ottla.client.admin.groups import commit_offsets
from ottla.client.admin.topics import Partition
from ottla.client.cluster import ClusterClient
from ottla.runtime.net import AsyncioNetwork

LONG, SEARCHED, LIVE = "long", "searched", "live"
LONG_RECORD_BYTES = 100
TOPICS_AT_ONCE = 1000
GROUPS_AT_ONCE = 50
RARE = 1000
"""One of so many records that are searched has what is looked for."""


def make_topics(broker: RunningBroker, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(broker)})
    present = admin.list_topics(timeout=60).topics
    wanted = {LONG: PARTITIONS, SEARCHED: PARTITIONS, LIVE: 1}
    wanted |= {name_of(number): 1 for number in range(count)}
    missing = [NewTopic(name, partitions, 1) for name, partitions in wanted.items() if name not in present]
    for first in range(0, len(missing), TOPICS_AT_ONCE):
        made = admin.create_topics(missing[first : first + TOPICS_AT_ONCE], request_timeout=120)
        for each in made.values():
            each.result(120)


def make_groups(broker: RunningBroker, count: int, topics: int) -> None:
    asyncio.run(_commit_all(bootstrap(broker), count, topics))


async def _commit_all(servers: str, count: int, topics: int) -> None:
    limit = asyncio.Semaphore(GROUPS_AT_ONCE)
    async with ClusterClient(AsyncioNetwork(), servers, {}) as client:

        async def commit(number: int) -> None:
            places = [Partition(LONG, each) for each in range(PARTITIONS)]
            places += [Partition(name_of((number * 7 + each) % topics), 0) for each in range(5)]
            async with limit:
                await commit_offsets(client, f"group-{number:04}", dict.fromkeys(places, 0))

        await asyncio.gather(*map(commit, range(count)))


def fill_long(broker: RunningBroker, records: int) -> None:
    there = sum(end_offsets(broker.port, LONG, PARTITIONS))
    batches = (records - there) // RECORDS_PER_BATCH
    if batches > CONNECTIONS:
        send_batches(broker.port, batch_frames(LONG, LONG_RECORD_BYTES, encoding.ACKS_ALL), batches)


def fill_searched(broker: RunningBroker, records: int) -> None:
    """Orders in JSON, 100 bytes or so each."""
    there = sum(end_offsets(broker.port, SEARCHED, PARTITIONS))

    def rows() -> Iterator[Row]:
        for number in range(there, records):
            city = "Vaduz" if number % RARE == 0 else f"city-{number % 97}"
            value = {
                "order": number,
                "customer": f"customer-{number % 5000}",
                "city": city,
                "total": number % 777,
            }
            yield SEARCHED, json.dumps(value).encode(), f"customer-{number % 5000}".encode(), ANY_PARTITION

    if there < records:
        fill({"bootstrap.servers": bootstrap(broker)}, rows())


def write_steadily(port: int, per_second: int, seconds: float) -> None:
    """Into the live topic, a batch whenever it is due; each has the time at which it was made."""
    connection = Connection(port)
    per_batch = max(per_second // 50, 1)
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds:
        due_s = sent / per_second
        if due_s > now:
            time.sleep(due_s - now)
        values: Sequence[bytes] = [
            b'{"reading": %d, "unit": "degrees"}' % (sent + at) for at in range(per_batch)
        ]
        batch = encoding.record_batch(values, int(time.time() * 1000))
        connection.send(encoding.produce_frame(LIVE, 0, batch, acks=1))
        connection.receive()
        sent += per_batch
    connection.close()


def bootstrap(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port}"


def name_of(number: int) -> str:
    return f"topic-{number:05}"
