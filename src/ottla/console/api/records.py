"""Records of a topic: a page of them, as they come, a search with its progress, a file, and new ones."""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from starlette.responses import StreamingResponse

from ottla.client.admin.topics import Partition, TopicState, describe_topics, offsets_or_fail
from ottla.client.cluster import EARLIEST, LATEST, ClusterClient
from ottla.client.produce import produce_once
from ottla.console.clusters import Cluster
from ottla.console.endpoints import endpoint
from ottla.console.moments import moment_ms
from ottla.console.problems import EXPECTED, Refused, problem_of
from ottla.console.records.files import writer_of
from ottla.console.records.matching import matcher
from ottla.console.records.scan import Budget, Reading, follow, walk
from ottla.console.records.shown import Decoder, decoder_of
from ottla.records.compression import CODEC_NAMES
from ottla.records.key_partition import key_partition
from ottla.records.records import Record, encode_batch

PAGE = 50
PAGE_MAX = 1000
EXPORT_MAX = 1_000_000
STREAMS_MAX = 32
"""Of one console at a time: each has connections of its own."""
STREAMS_OF_ONE_USER_MAX = 8
"""Where people log in: so that one of them cannot take all."""
RECORDS_PER_SECOND_MAX = 200
_BUDGET_S = 4.0
_REPEAT_MAX = 10_000
_WRITTEN_BYTES_MAX = 64 << 20
_BATCH_BYTES = 500_000
"""Brokers take a mebibyte, unless they are told otherwise."""
_SEARCH_FOUND_MAX = 1000

Start = Literal["newest", "oldest", "offset", "time", "cursor"]
Format = Literal["text", "json", "base64", "null"]


@dataclass(frozen=True, slots=True)
class Find:
    topic: Annotated[str, "its name"]
    start: Annotated[Start, "where to begin"] = "newest"
    offset: Annotated[int | None, "with start=offset: in each partition"] = None
    time: Annotated[
        str, "with start=time: milliseconds, or 2026-01-31T12:00:00, in UTC unless it says so"
    ] = ""
    cursor: Annotated[str, "with start=cursor: what an earlier answer gave as next or older"] = ""
    partitions: Annotated[list[int], "which; all without"] = field(default_factory=list)
    key: Annotated[str, "what the key contains; /…/ for a regular expression"] = ""
    value: Annotated[str, "what the value contains; /…/ for a regular expression"] = ""
    header: Annotated[str, "the name of a header, or name: what it contains"] = ""
    path: Annotated[str, "of values in JSON, such as $.total > 100"] = ""
    where: Annotated[str, 'an expression, such as $.total > 100 and not key ~ "test"'] = ""
    key_as: Annotated[Decoder, "how to read keys"] = "auto"
    value_as: Annotated[Decoder, "how to read values"] = "auto"
    committed: Annotated[bool, "without records of transactions that are open or were aborted"] = True
    limit: Annotated[int, f"how many, at most {PAGE_MAX}"] = PAGE


@dataclass(frozen=True, slots=True)
class Export(Find):
    format: Annotated[
        Literal["jsonl", "csv", "parquet"], "lines of JSON, a table as text, or one for programs"
    ] = "jsonl"
    limit: Annotated[int, f"how many, at most {EXPORT_MAX}"] = EXPORT_MAX


@dataclass(frozen=True, slots=True)
class Produce:
    topic: Annotated[str, "its name"]
    value: Annotated[str, "as value_format says"] = ""
    key: Annotated[str, "as key_format says"] = ""
    key_format: Annotated[Format, "what the key is; null for none"] = "text"
    value_format: Annotated[Format, "what the value is; null for a tombstone"] = "text"
    headers: Annotated[dict[str, str], "texts by name"] = field(default_factory=dict)
    partition: Annotated[int | None, "which one; that of the key's hash, or any, without"] = None
    compression: Annotated[Literal["none", "gzip", "snappy", "lz4", "zstd"], "of the batch"] = "none"
    repeat: Annotated[int, f"how often, at most {_REPEAT_MAX}"] = 1


@endpoint(
    "GET", "/topics/{topic}/records", "A page of records; search stops after some seconds, and can go on"
)
async def find_records(cluster: Cluster, asked: Find) -> Any:
    reading = _reading(cluster, asked)
    state = await _state(cluster, asked)
    if _is_backwards(asked):
        return await _newest(cluster.client, reading, state, asked)
    starts, ends = await _bounds(cluster.client, state, asked)
    return await _onwards(cluster.client, reading, starts, ends, _limit(asked))


async def _onwards(
    client: ClusterClient, reading: Reading, starts: Mapping[int, int], ends: Mapping[int, int], limit: int
) -> dict[str, Any]:
    found: dict[int, list[dict[str, Any]]] = {number: [] for number in starts}
    budget, looked_at, positions = Budget(_BUDGET_S), 0, dict(starts)
    async for step in walk(client, reading, starts, ends, found_max=limit):
        for record in step.found:
            found[record["partition"]].append(record)
        looked_at, positions = step.looked_at, dict(step.positions)
        if sum(map(len, found.values())) >= limit and _all_looked_into(positions, starts, ends):
            break
        if budget.is_spent:
            break
    merged = list(heapq.merge(*found.values(), key=lambda record: record["timestamp"]))
    shown = merged[:limit]
    for record in reversed(merged[limit:]):
        positions[record["partition"]] = min(positions[record["partition"]], record["offset"])
    is_done = all(positions[number] >= ends[number] for number in positions)
    return _page(shown, looked_at, None if is_done else _cursor("next", positions), None)


def _all_looked_into(
    positions: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> bool:
    """Or the page would be of the first partition alone."""
    return all(positions[each] > starts[each] or starts[each] >= ends[each] for each in positions)


async def _newest(client: ClusterClient, reading: Reading, state: TopicState, asked: Find) -> dict[str, Any]:
    """Backwards in growing strides, until enough was found. A stride through a partition is never left half
    done: it is looked at from its oldest record on."""
    limit, budget, looked_at = _limit(asked), Budget(_BUDGET_S), 0
    begins, ends = await _ends(client, state, asked)
    older = {**ends, **_read_cursor(asked.cursor)} if asked.cursor else dict(ends)
    older = {number: min(older[number], ends[number]) for number in ends}
    shown: list[dict[str, Any]] = []
    stride = limit
    while any(older[number] > begins[number] for number in older):
        left_s = budget.left_s
        # Those first that least was seen of: an earlier page may have had no time for them.
        for number in sorted(older, key=lambda each: ends[each] - older[each]):
            if older[number] <= begins[number]:
                continue
            found: deque[dict[str, Any]] = deque()
            low = max(begins[number], older[number] - stride)
            async for step in walk(client, reading, {number: low}, {number: older[number]}):
                for record in step.found:
                    if len(found) == limit:
                        low = found.popleft()["offset"] + 1
                    found.append(record)
                looked = step.looked_at
            looked_at += looked
            older[number] = low
            merged = list(heapq.merge(shown, reversed(found), key=lambda record: -record["timestamp"]))
            shown = merged[:limit]
            for record in merged[limit:]:
                older[record["partition"]] = max(older[record["partition"]], record["offset"] + 1)
            if budget.is_spent:
                break
        if len(shown) >= limit or budget.is_spent:
            break
        took_s = max(left_s - budget.left_s, 0.001)
        stride = max(min(stride * 4, int(stride * budget.left_s / took_s)), limit)
    is_done = all(older[number] <= begins[number] for number in older)
    return _page(shown, looked_at, None, None if is_done else _cursor("older", older))


@endpoint("GET", "/topics/{topic}/records/tail", "Records as they come, as server-sent events")
async def tail_records(cluster: Cluster, asked: Find) -> Any:
    reading = _reading(cluster, asked)
    state = await _state(cluster, asked)
    _, ends = await _ends(cluster.client, state, asked)

    async def events(client: ClusterClient) -> AsyncIterator[bytes]:
        # What is too much for now waits, the newest of it: the last of many is seen in the end.
        waiting: deque[dict[str, Any]] = deque(maxlen=RECORDS_PER_SECOND_MAX)
        window_s, sent, shown, passed_by = time.monotonic(), 0, 0, 0
        async for step in follow(client, reading, ends):
            now_s = time.monotonic()
            if now_s - window_s >= 1:
                window_s, sent = now_s, 0
            passed_by += step.left + len(step.found)
            waiting.extend(step.found)
            while waiting and sent < RECORDS_PER_SECOND_MAX:
                sent, shown = sent + 1, shown + 1
                yield _event("record", waiting.popleft())
            skipped = passed_by - shown - len(waiting)
            yield _event("progress", {"looked": step.looked_at, "skipped": skipped})

    return await _streamed(cluster, events)


@endpoint("GET", "/topics/{topic}/records/search", "All that match, as server-sent events, with progress")
async def search_records(cluster: Cluster, asked: Find) -> Any:
    reading = _reading(cluster, asked)
    state = await _state(cluster, asked)
    starts, ends = await _bounds(cluster.client, state, asked)
    total = sum(max(ends[number] - starts[number], 0) for number in starts)

    async def events(client: ClusterClient) -> AsyncIterator[bytes]:
        found, looked, told_s = 0, 0, 0.0
        async for step in walk(client, reading, starts, ends):
            looked = step.looked_at
            for record in step.found[: _SEARCH_FOUND_MAX - found]:
                found += 1
                yield _event("record", record)
            if found >= _SEARCH_FOUND_MAX:
                break
            if time.monotonic() - told_s > 0.2:
                told_s = time.monotonic()
                yield _event(
                    "progress", {"looked": looked, "found": found, "left": step.left, "total": total}
                )
        full = found >= _SEARCH_FOUND_MAX
        yield _event("done", {"looked": looked, "found": found, "total": total, "full": full})

    return await _streamed(cluster, events)


@endpoint("GET", "/topics/{topic}/records/export", "Records as a file")
async def export_records(cluster: Cluster, asked: Export) -> Any:
    reading = _reading(cluster, asked)
    state = await _state(cluster, asked)
    starts, ends = await _bounds(cluster.client, state, asked)
    reading = reading._replace(is_cut=False)
    limit = min(max(asked.limit, 1), EXPORT_MAX)
    writer = writer_of(asked.format)

    # Before the head of the answer is sent: a file cannot say that it is none.
    _check_room(cluster)

    async def pieces() -> AsyncIterator[bytes]:
        left = limit
        async with _stream_of(cluster) as client:
            async for step in walk(client, reading, starts, ends):
                yield await asyncio.to_thread(writer.rows, step.found[:left])
                left -= len(step.found)
                if left <= 0:
                    break
        yield await asyncio.to_thread(writer.end)

    # Names of topics need no quoting.
    name = f"{asked.topic}.{asked.format}"
    return StreamingResponse(
        pieces(),
        media_type=writer.media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


@endpoint("POST", "/topics/{topic}/records", "Write records")
async def produce(cluster: Cluster, asked: Produce) -> Any:
    if not 1 <= asked.repeat <= _REPEAT_MAX:
        raise Refused(f"repeat is {asked.repeat}; it must be from 1 to {_REPEAT_MAX}")
    (state,) = await describe_topics(cluster.client, [asked.topic])
    key = _bytes(
        "key", asked.key, "null" if asked.key == "" and asked.key_format == "text" else asked.key_format
    )
    value = _bytes("value", asked.value, asked.value_format)
    partition = asked.partition
    if partition is None:
        count = len(state.partitions)
        partition = key_partition(key, count) if key is not None else time.monotonic_ns() % count
    elif partition not in {each.number for each in state.partitions}:
        raise Refused(f"topic {asked.topic} has no partition {partition}", 404)
    headers = tuple((name, text.encode()) for name, text in asked.headers.items())
    record = Record(key, value, int(time.time() * 1000), headers)
    codec = CODEC_NAMES.index(asked.compression)
    record_bytes = len(encode_batch([record]))
    if record_bytes * asked.repeat > _WRITTEN_BYTES_MAX:
        raise Refused(
            f"{asked.repeat} records of {record_bytes} bytes are more than {_WRITTEN_BYTES_MAX} bytes; "
            "repeat it less often"
        )
    at_once = max(_BATCH_BYTES // record_bytes, 1)
    offsets: list[int] = []
    for done in range(0, asked.repeat, at_once):
        batch = encode_batch([record] * min(at_once, asked.repeat - done), codec=codec)
        try:
            offsets.append(await produce_once(cluster.client, asked.topic, partition, batch))
        except EXPECTED as error:
            if not done:
                raise
            problem = problem_of(error)
            raise Refused(
                f"{done} of {asked.repeat} were written, then: {problem.text}", problem.status
            ) from None
    return {"partition": partition, "offset": offsets[0], "records": asked.repeat}


ENDPOINTS = (find_records, tail_records, search_records, export_records, produce)

_streams: Counter[str] = Counter()
"""By user, of the whole process, which serves one event loop."""


def _check_room(cluster: Cluster) -> None:
    if _streams.total() >= STREAMS_MAX:
        raise Refused(f"{STREAMS_MAX} streams are open already; close one of them", 429)
    if cluster.settings.login and _streams[_user_of(cluster)] >= STREAMS_OF_ONE_USER_MAX:
        raise Refused(f"you have {STREAMS_OF_ONE_USER_MAX} streams open already; close one of them", 429)


def _user_of(cluster: Cluster) -> str:
    return cluster.settings.properties.get("sasl.username", "")


@asynccontextmanager
async def _stream_of(cluster: Cluster) -> AsyncIterator[ClusterClient]:
    """A stream keeps brokers waiting, so it has a client of its own until it ends or nobody listens."""
    _check_room(cluster)
    user = _user_of(cluster)
    _streams[user] += 1
    try:
        async with cluster.new_client() as client:
            yield client
    finally:
        _streams[user] -= 1
        if not _streams[user]:
            del _streams[user]


async def _streamed(cluster: Cluster, events: Any) -> StreamingResponse:
    async def body() -> AsyncIterator[bytes]:
        try:
            async with _stream_of(cluster) as client:
                yield b"retry: 3000\n\n"
                async for event in events(client):
                    yield event
        except EXPECTED as error:
            yield _event("problem", {"error": problem_of(error).text})

    return StreamingResponse(body(), media_type="text/event-stream")


def _event(kind: str, data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _page(
    shown: list[dict[str, Any]], looked_at: int, onwards: str | None, older: str | None
) -> dict[str, Any]:
    return {"records": shown, "lookedAt": looked_at, "next": onwards, "older": older}


def _reading(cluster: Cluster, asked: Find) -> Reading:
    matches = matcher(
        key=asked.key, value=asked.value, header=asked.header, path=asked.path, where=asked.where
    )
    decode = decoder_of(asked.topic, asked.key_as, asked.value_as, cluster.schemas)
    return Reading(asked.topic, decode, matches, asked.committed)


async def _state(cluster: Cluster, asked: Find) -> TopicState:
    (state,) = await describe_topics(cluster.client, [asked.topic])
    present = {each.number for each in state.partitions}
    if unknown := sorted(set(asked.partitions) - present):
        raise Refused(f"topic {asked.topic} has no partition {unknown[0]}", 404)
    return state


def _is_backwards(asked: Find) -> bool:
    return asked.start == "newest" or (asked.start == "cursor" and asked.cursor.startswith("older"))


def _limit(asked: Find) -> int:
    return min(max(asked.limit, 1), PAGE_MAX)


async def _ends(
    client: ClusterClient, state: TopicState, asked: Find
) -> tuple[dict[int, int], dict[int, int]]:
    """Of the wanted partitions that have a leader."""
    places = [
        Partition(state.name, each.number)
        for each in state.partitions
        if each.leader >= 0 and (not asked.partitions or each.number in asked.partitions)
    ]
    begins, ends = await asyncio.gather(
        offsets_or_fail(client, dict.fromkeys(places, EARLIEST)),
        offsets_or_fail(client, dict.fromkeys(places, LATEST), read_committed=asked.committed),
    )
    return (
        {place.number: at.offset for place, at in begins.items()},
        {place.number: at.offset for place, at in ends.items()},
    )


async def _bounds(
    client: ClusterClient, state: TopicState, asked: Find
) -> tuple[dict[int, int], dict[int, int]]:
    begins, ends = await _ends(client, state, asked)
    match asked.start:
        case "offset":
            if asked.offset is None:
                raise Refused("with start=offset give the offset, too")
            starts = dict.fromkeys(begins, asked.offset)
        case "time":
            when = dict.fromkeys((Partition(state.name, number) for number in begins), moment_ms(asked.time))
            found = await offsets_or_fail(client, when)
            starts = {
                place.number: at.offset if at.offset >= 0 else ends[place.number]
                for place, at in found.items()
            }
        case "cursor":
            starts = {**begins, **_read_cursor(asked.cursor)}
        case _:
            starts = begins
    return {number: min(max(starts[number], begins[number]), ends[number]) for number in begins}, ends


def _cursor(kind: str, positions: Mapping[int, int]) -> str:
    return f"{kind}:" + ",".join(f"{number}-{offset}" for number, offset in sorted(positions.items()))


def _read_cursor(text: str) -> dict[int, int]:
    try:
        pairs = (part.split("-") for part in text.partition(":")[2].split(",") if part)
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise Refused(f"cursor is {text!r}; take it from an earlier answer as it is") from None


def _bytes(name: str, text: str, kind: Format) -> bytes | None:
    match kind:
        case "null":
            return None
        case "json":
            try:
                return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")).encode()
            except (ValueError, RecursionError) as error:
                raise Refused(f"{name} is not JSON: {error}") from None
        case "base64":
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise Refused(f"{name} is not base64: {error}") from None
        case _:
            return text.encode()
