"""Records as odd as clients may write them, on pages and in files."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from console_site import Site
from pyarrow import parquet
from test_console_pipelines import answering, tell

from ottla.client.applications import TOPIC, Announcement
from ottla.client.cluster import ClusterClient
from ottla.client.produce import produce_once
from ottla.console.records.scan import HEADERS_MAX, TEXT_MAX
from ottla.records.batch import CRC_AT, HEADER_BYTES
from ottla.records.crc import crc32c
from ottla.records.records import Record, encode_batch
from ottla.runtime.net import AsyncioNetwork
from ottla.testing import InProcessBroker

MANY = 130


def write(broker: InProcessBroker, topic: str, *batches: bytes) -> None:
    async def send() -> None:
        async with ClusterClient(AsyncioNetwork(), broker.bootstrap_servers) as client:
            for each in batches:
                await produce_once(client, topic, 0, each)

    asyncio.run(send())


def saved(site: Site, topic: str, kind: str) -> bytes:
    connection = HTTPConnection(urlsplit(site.address).netloc, timeout=60)
    try:
        connection.request("GET", f"{site.path('topics', topic, 'records', 'export')}?format={kind}")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read()
    finally:
        connection.close()


def test_headers_whose_names_are_no_text(site: Site, broker: InProcessBroker) -> None:
    site.change("POST", "topics", name="named.oddly", partitions=1)
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    write(broker, "named.oddly", encode_batch([Record(b"k", b"v", 0, ((name, b"x"),))]))
    (found,) = site.get("topics", "named.oddly", "records", where="value = 'v'")["records"]
    assert found["headers"] == [{"name": "\ufffd\ufffd", "as": "string", "text": "x"}]
    assert json.loads(saved(site, "named.oddly", "jsonl"))["headers"] == found["headers"]
    assert "\ufffd\ufffd" in saved(site, "named.oddly", "csv").decode()
    (row,) = parquet.read_table(io.BytesIO(saved(site, "named.oddly", "parquet"))).to_pylist()
    assert row["headers"] == [{"name": "\ufffd\ufffd", "value": "x"}]
    searched = site.ask("GET", f"{site.path('topics', 'named.oddly', 'records', 'search')}?start=oldest")[1]
    assert "event: done" in searched


def test_of_what_is_long_a_page_has_a_part_and_a_file_the_whole(site: Site, broker: InProcessBroker) -> None:
    site.change("POST", "topics", name="long", partitions=1)
    headers = (("h", b"x"),) * 1000 + (("last", b"y"),)
    write(broker, "long", encode_batch([Record(b"k", b"v" * 3 * TEXT_MAX, 0, headers)]))
    (found,) = site.get("topics", "long", "records", header="last: y")["records"]
    assert len(found["value"]["text"]) == TEXT_MAX and found["value"]["cut"] == 3 * TEXT_MAX
    assert len(found["headers"]) == HEADERS_MAX and found["headersCut"] == 1001
    whole = json.loads(saved(site, "long", "jsonl"))
    assert len(whole["value"]["text"]) == 3 * TEXT_MAX and len(whole["headers"]) == 1001
    assert saved(site, "long", "csv").count(b"v") >= 3 * TEXT_MAX
    (row,) = parquet.read_table(io.BytesIO(saved(site, "long", "parquet"))).to_pylist()
    assert len(row["value"]) == 3 * TEXT_MAX and len(row["headers"]) == 1001


@pytest.mark.parametrize("asked", [{"value": "wanted"}, {"where": "value ~ 'wanted'"}])
def test_nothing_is_passed_by_on_the_way_back(
    site: Site, broker: InProcessBroker, asked: dict[str, str]
) -> None:
    """Where more is found behind the first stride than a page holds."""
    if not site.get("topics", q="strides")["total"]:
        site.change("POST", "topics", name="strides", partitions=1)
        wanted = [Record(None, b"wanted", at) for at in range(MANY)]
        others = [Record(None, b"other", MANY + at) for at in range(60)]
        write(broker, "strides", encode_batch(wanted), encode_batch(others))
    seen: list[int] = []
    cursor: dict[str, str] = {}
    while True:
        page = site.get("topics", "strides", "records", **asked, **cursor)
        seen += [each["offset"] for each in page["records"]]
        if page["older"] is None:
            break
        cursor = {"start": "cursor", "cursor": page["older"]}
    assert seen == list(range(MANY))[::-1]


def test_batches_that_are_damaged_take_no_page_with_them(site: Site, broker: InProcessBroker) -> None:
    """Brokers look at what is around a batch, unless a topic is to be compacted."""
    site.change("POST", "topics", name=TOPIC, partitions=1)
    batch = bytearray(encode_batch([Record(b"odd", b"{}", 0)]))
    batch[HEADER_BYTES] = 0x7E
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_AT + 4 :]))
    with answering({"applicationId": "sound", "state": "RUNNING", "queries": [], "nodes": []}) as (url, _):
        sound = Announcement("sound", url, "x", 1, 1)
        tell(broker.bootstrap_servers, sound)
        write(broker, TOPIC, bytes(batch))
        assert [each["applicationId"] for each in site.get("pipelines")["pipelines"]] == ["sound"]
        assert "sound" in site.page("pipelines")
        assert "cannot be read" in json.dumps(site.get("topics", TOPIC, "records"))
        tell(broker.bootstrap_servers, sound, gone=True)
