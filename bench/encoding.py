"""Request frames as bytes, made before the clock starts, so that a generator only has to send them.

The versions are the newest ones before tagged fields: every Kafka 4.x broker accepts them, and answers to
one-partition requests have a fixed layout. Apache Kafka's own tools cover the newest versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from crc32c import crc32c

PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 18, 19, 20
VERSIONS = {
    PRODUCE: 8,
    FETCH: 11,
    LIST_OFFSETS: 4,
    API_VERSIONS: 0,
    CREATE_TOPICS: 4,
    DELETE_TOPICS: 3,
}
CLIENT_ID = "bench"
TIMEOUT_MS = 30_000
ACKS_ALL = -1
LATEST = -1
EARLIEST = -2


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return struct.pack(">i", len(parts)) + b"".join(parts)


def frame(api_key: int, body: bytes) -> bytes:
    payload = struct.pack(">hhi", api_key, VERSIONS[api_key], 0) + string(CLIENT_ID) + body
    return struct.pack(">i", len(payload)) + payload


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def record_batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """One uncompressed batch without keys, headers or a producer id."""
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    count = len(values)
    covered = struct.pack(">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


def produce_frame(topic: str, partition: int, batch: bytes, acks: int) -> bytes:
    records = struct.pack(">ii", partition, len(batch)) + batch
    return frame(
        PRODUCE, struct.pack(">hhi", -1, acks, TIMEOUT_MS) + array([string(topic) + array([records])])
    )


def produce_answer_layout(topic: str) -> tuple[int, int]:
    """(bytes of the framed answer to a request for one partition, position of its error code)."""
    error_at = 4 + 4 + 4 + len(string(topic)) + 4 + 4
    return error_at + 2 + 8 + 8 + 8 + 4 + 2 + 4, error_at


def fetch_frame(
    topic: str, partition: int, offset: int, *, wait_ms: int, partition_bytes_max: int
) -> tuple[bytearray, int]:
    """(frame, position of its fetch offset): the offset is patched in place from fetch to fetch."""
    before = struct.pack(">ii", partition, -1)
    wanted = before + struct.pack(">qqi", offset, -1, partition_bytes_max)
    session_free = struct.pack(">iiiibii", -1, wait_ms, 1, 50 << 20, 0, 0, -1)
    topics = array([string(topic) + array([wanted])])
    whole = frame(FETCH, session_free + topics + array([]) + string(""))
    return bytearray(whole), whole.rindex(wanted) + len(before)


def session_frame(topic: str, partitions: Iterable[int]) -> bytes:
    """Opens a fetch session on the beginning of partitions, and is answered at once."""
    session = struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, 0)
    wanted = [struct.pack(">iiqqi", partition, -1, 0, -1, 1) for partition in partitions]
    return frame(FETCH, session + array([string(topic) + array(wanted)]) + array([]) + string(""))


def continued_session_frame(session_id: int, epoch: int) -> bytes:
    """Asks for what is new in a fetch session, and is answered at once."""
    return frame(
        FETCH, struct.pack(">iiiibii", -1, 0, 1, 1, 0, session_id, epoch) + array([]) * 2 + string("")
    )


def list_offsets_frame(topic: str, partitions: Iterable[int], timestamp_ms: int) -> bytes:
    wanted = array(struct.pack(">iiq", partition, -1, timestamp_ms) for partition in partitions)
    return frame(LIST_OFFSETS, struct.pack(">ib", -1, 0) + array([string(topic) + wanted]))


def api_versions_frame() -> bytes:
    return frame(API_VERSIONS, b"")


def create_topic_frame(topic: str, partitions: int) -> bytes:
    """With the broker's defaults for everything else."""
    wanted = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + array([])
    return frame(CREATE_TOPICS, array([wanted]) + struct.pack(">ib", TIMEOUT_MS, 0))


def delete_topic_frame(topic: str) -> bytes:
    return frame(DELETE_TOPICS, array([string(topic)]) + struct.pack(">i", TIMEOUT_MS))
