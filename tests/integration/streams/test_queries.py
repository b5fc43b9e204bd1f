"""Interactive queries: a table's topic as a key-value view, from Python and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.streams.errors import StoreError
from ottla.streams.queries.http import shown
from ottla.streams.queries.server import tables_served
from ottla.streams.queries.view import Entry, TableView
from ottla.streams.records import Window, Windowed
from ottla.streams.serdes import Serdes
from ottla.testing import BrokerProcess

COUNTS = {"apple": 3, "banana": 1, "cherry": 2, "citrus": 9}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with BrokerProcess(log_level="warning") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for created in admin.create_topics([NewTopic("counts", 3, 1), NewTopic("empty", 1, 1)]).values():
            created.result(10)
        put(broker.bootstrap_servers, "counts", {**COUNTS, "gone": 5})
        put(broker.bootstrap_servers, "counts", {"gone": None})
        yield broker.bootstrap_servers


def put(bootstrap: str, topic: str, values: dict[str, int | None]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in values.items():
        producer.produce(topic, key=key, value=Serdes.long().serialize(value))
    assert producer.flush(10) == 0


def test_a_view_answers_for_keys_ranges_and_prefixes(bootstrap: str):
    with TableView(bootstrap, "counts", key=str, value=int) as view:
        assert view.get("cherry") == 2
        assert view.get("gone") is None
        assert view.get("never") is None
        assert {entry.key: entry.value for entry in view.all()} == COUNTS
        assert [entry.key for entry in view.range("b", "cherry")] == ["banana", "cherry"]
        assert [entry.key for entry in view.prefix("c")] == ["cherry", "citrus"]
        assert len(view) == len(COUNTS)


def test_a_view_follows_its_topic(bootstrap: str):
    with TableView(bootstrap, "empty", key=str, value=int) as view:
        assert view.get("new") is None
        put(bootstrap, "empty", {"new": 1})
        while view.get("new") is None:  # the test's time-out is the limit
            pass
        assert view.get("new") == 1


def test_what_is_not_committed_is_not_shown(bootstrap: str):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "view-test"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("counts", key="open", value=Serdes.long().serialize(1))
    producer.flush(10)
    with TableView(bootstrap, "counts", key=str, value=int) as view:
        assert view.get("open") is None
        producer.abort_transaction(10)
        assert view.get("open") is None


def test_a_missing_topic_is_named(bootstrap: str):
    with (
        TableView(bootstrap, "missing", key=str, value=int) as view,
        pytest.raises(StoreError, match="topic missing does not exist"),
    ):
        view.get("x")


@pytest.fixture(scope="module")
def address(bootstrap: str) -> Iterator[str]:
    with (
        TableView(bootstrap, "counts", key=str, value=int) as view,
        TableView(bootstrap, "counts", key=int, value=int) as numbers,
        tables_served({"counts": view, "numbers": numbers}) as address,
    ):
        yield address


def ask(address: str, path: str) -> tuple[int, Any]:
    try:
        with urlopen(address + path, timeout=10) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def test_http_gives_one_entry(address: str):
    assert ask(address, "/tables") == (200, {"tables": ["counts", "numbers"]})
    status, answer = ask(address, "/tables/counts/apple")
    assert (status, answer["key"], answer["value"]) == (200, "apple", 3)


def test_http_gives_ranges(address: str):
    def keys(query: str) -> list[str]:
        return [entry["key"] for entry in ask(address, f"/tables/counts{query}")[1]["entries"]]

    assert keys("") == sorted(COUNTS)
    assert keys("?from=b&to=cherry") == ["banana", "cherry"]
    assert keys("?prefix=c&limit=1") == ["cherry"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/tables/counts/none", 404, "counts has no key none"),
        ("/tables/other", 404, "there is no table other; this application has: counts, numbers"),
        ("/tables/counts?limit=none", 400, "limit is 'none'"),
        ("/tables/counts?limit=%C2%B2", 400, "limit is '²'"),
        (f"/tables/counts?limit={'9' * 5000}", 400, "give a number from 1 to 10000"),
        ("/tables/counts?form=a", 400, "unknown parameter form"),
        ("/tables/numbers/1.5", 400, "'1.5' is not a key of this table (long)"),
        ("/tables/numbers?to=%5B%5D", 400, "'[]' is not a key of this table (long)"),
    ],
)
def test_http_says_what_is_wrong(address: str, path: str, status: int, text: str):
    code, answer = ask(address, path)
    assert code == status
    assert text in answer["error"]


def test_a_windowed_key_is_shown_with_its_window():
    entry = Entry(Windowed("page", Window(0, 60_000)), 4, 59_000)
    assert shown(entry) == {
        "key": {"key": "page", "start": 0, "end": 60_000},
        "value": 4,
        "timestamp": 59_000,
    }
