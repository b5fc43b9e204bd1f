"""Streams applications that run: each says in a topic of the cluster where it can be asked.

The topic is compacted, the key of a record is the application id, its value JSON (see ``Announcement``). An
application that stops takes its record back with a tombstone. One that was killed cannot: whoever reads the
topic asks the address before believing it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.topics import NewTopic, create_topics
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.produce import InDoubt, produce_once
from ottla.records.batch import iter_headers
from ottla.records.compression import CorruptRecords
from ottla.records.records import Record, encode_batch, iter_records

TOPIC: Final = "_ottla_applications"

_PARTITION: Final = 0


@dataclass(frozen=True, slots=True)
class Announcement:
    application_id: str
    # What its HTTP server is reached by: `<url>/topology/<application id>` has its state and numbers.
    url: str
    # The machine and process it runs in, for people.
    host: str
    pid: int
    started_ms: int

    def to_json(self) -> bytes:
        return json.dumps(
            {"url": self.url, "host": self.host, "pid": self.pid, "startedMs": self.started_ms}
        ).encode()


async def announce(cluster: ClusterClient, announcement: Announcement) -> None:
    """Creates the topic if it is not there. Raises KafkaError where the cluster does not allow that."""
    if TOPIC not in await cluster.topics([TOPIC]):
        await create_topics(cluster, [NewTopic(TOPIC, 1, settings={"cleanup.policy": "compact"})])
    await _write(cluster, announcement.application_id, announcement.to_json(), announcement.started_ms)


async def withdraw(cluster: ClusterClient, application_id: str, now_ms: int) -> None:
    await _write(cluster, application_id, None, now_ms)


async def announced(cluster: ClusterClient) -> list[Announcement]:
    """Of all applications that did not stop in order, by their ids."""
    if TOPIC not in await cluster.topics([TOPIC]):
        return []
    place = (TOPIC, _PARTITION)
    offset = (await cluster.list_offsets({place: EARLIEST}))[place].offset
    end = (await cluster.list_offsets({place: LATEST}))[place].offset
    found: dict[str, Announcement] = {}
    while offset < end:
        fetched, before = await cluster.fetch(*place, offset), offset
        for at, header in iter_headers(fetched.records):
            offset = header.last_offset + 1
            try:
                records = list(iter_records(fetched.records[at : at + header.size]))
            except CorruptRecords:
                continue
            for record in records:
                application_id = (record.key or b"").decode(errors="replace")
                found.pop(application_id, None)
                if (read := _read(application_id, record.value)) is not None:
                    found[application_id] = read
        if offset == before:
            # Compaction has left nothing behind at the end.
            break
    return [each for _, each in sorted(found.items())]


async def _write(cluster: ClusterClient, application_id: str, value: bytes | None, now_ms: int) -> None:
    batch = encode_batch([Record(application_id.encode(), value, now_ms)])
    try:
        await produce_once(cluster, TOPIC, _PARTITION, batch)
    except InDoubt:
        # Twice does no harm: the last one counts.
        await produce_once(cluster, TOPIC, _PARTITION, batch)


def _read(application_id: str, value: bytes | None) -> Announcement | None:
    try:
        data = json.loads(value or b"null")
        found = Announcement(
            application_id, str(data["url"]), str(data["host"]), int(data["pid"]), int(data["startedMs"])
        )
        # Whoever may write the topic may write anything.
        json.dumps(data, ensure_ascii=False).encode()
        return found
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        # Taken back, or of a version to come.
        return None
