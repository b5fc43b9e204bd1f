"""Clients that do more than they may are told to wait, and made to."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from matrix import ask
from principals import Start

from ottla.records.records import Record, encode_batch
from ottla.wire.api import ApiKey

TOPIC = "limited"
LARGE = encode_batch([Record(b"", b"x" * 100_000, 1_700_000_000_000)])


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.fixture
def admin(start: Start) -> Iterator[socket.socket]:
    # One window is all that counts: a rate is exceeded at once, and forgotten soon.
    with (
        start(quota_window_num="2", controller_quota_window_num="1") as servers,
        connect(servers["admin"]) as connection,
    ):
        create(connection, TOPIC)
        yield connection


def create(connection: socket.socket, *names: str) -> Any:
    made = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name, **made} for name in names]
    return ask(connection, ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 20_000})


def limit(
    connection: socket.socket, key: str, value: float, kind: str = "user", name: str | None = "admin"
) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    answer = ask(connection, ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False})
    assert answer.entries[0].error_code == 0


def produce(connection: socket.socket, client_id: bytes = b"matrix") -> Any:
    partition = {"index": 0, "records": LARGE}
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 5000,
        "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
    }
    return ask(connection, ApiKey.PRODUCE, 9, values, client_id)


def fetch(connection: socket.socket) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000_000, "log_start_offset": -1}
    values = {
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1_000_000,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }
    return ask(connection, ApiKey.FETCH, 12, values)


def test_producers_wait_for_what_they_sent(admin: socket.socket) -> None:
    assert produce(admin).throttle_time == timedelta(0)
    limit(admin, "producer_byte_rate", 410_000)
    waits = [produce(admin).throttle_time for _ in range(4)]
    assert waits == [timedelta(0)] * 4
    began = time.monotonic()
    waited = produce(admin).throttle_time
    assert timedelta(0) < waited < timedelta(seconds=5)
    # The answer comes at once, the next one not before the time is over.
    assert ask(admin, ApiKey.API_VERSIONS, 0, {}).error_code == 0
    assert time.monotonic() - began >= waited.total_seconds()


def test_consumers_get_nothing_until_they_may_read_on(admin: socket.socket) -> None:
    produce(admin)
    limit(admin, "consumer_byte_rate", 150_000)
    (topic,) = fetch(admin).responses
    assert len(topic.partitions[0].records) > 100_000
    began = time.monotonic()
    answer = fetch(admin)
    assert not answer.responses
    waited = answer.throttle_time
    assert timedelta(0) < waited < timedelta(seconds=5)
    assert not ask(admin, ApiKey.API_VERSIONS, 0, {}).error_code
    assert time.monotonic() - began >= waited.total_seconds()
    while not (answer := fetch(admin)).responses:
        pass
    assert len(answer.responses[0].partitions[0].records) > 100_000


def test_changes_of_topics_are_refused_until_they_may_be_made(admin: socket.socket) -> None:
    limit(admin, "controller_mutation_rate", 1)
    answer = create(admin, "a", "b", "c", "d")
    codes = {topic.name: int(topic.error_code) for topic in answer.topics}
    # The bucket has one; the second goes into debt.
    assert codes == {"a": 0, "b": 0, "c": 89, "d": 89}
    assert answer.throttle_time > timedelta(0)
    deletion = {"topics": [{"name": "a", "topic_id": None}], "timeout": 20_000}
    while (code := ask(admin, ApiKey.DELETE_TOPICS, 6, deletion).responses[0].error_code) == 89:
        pass
    assert code == 0


def test_who_takes_much_of_the_time_waits(admin: socket.socket) -> None:
    limit(admin, "request_percentage", 0.001, "client-id", None)
    waits = [ask(admin, ApiKey.METADATA, 12, {"topics": None}).throttle_time for _ in range(4)]
    assert max(waits) > timedelta(0)
    # No longer than a window at a time.
    assert max(waits) <= timedelta(seconds=1)


@pytest.mark.parametrize("key, value", [("producer_byte_rate", 60_000), ("request_percentage", 0.001)])
def test_names_as_long_as_another_have_limits_of_their_own(
    admin: socket.socket, key: str, value: float
) -> None:
    limit(admin, key, value, "client-id", "slow")
    assert [produce(admin, b"fast").throttle_time for _ in range(4)] == [timedelta(0)] * 4
    assert max(produce(admin, b"slow").throttle_time for _ in range(2)) > timedelta(0)
    assert produce(admin, b"fast").throttle_time == timedelta(0)


def test_others_do_not_wait(start: Start) -> None:
    with start(quota_window_num="2") as servers, connect(servers["admin"]) as admin:
        create(admin, TOPIC)
        limit(admin, "producer_byte_rate", 1, name="somebody")
        limit(admin, "request_percentage", 0.001, name="somebody")
        for _ in range(5):
            assert produce(admin).throttle_time == timedelta(0)


def test_addresses_that_connect_too_often_are_held_off(start: Start) -> None:
    with start(quota_window_num="2") as servers, connect(servers["admin"]) as admin:
        limit(admin, "connection_creation_rate", 3, "ip", "127.0.0.1")
        kept = [connect(servers["alice"]) for _ in range(3)]
        for connection in kept:
            assert ask(connection, ApiKey.API_VERSIONS, 0, {}).error_code == 0
        with connect(servers["alice"]) as refused, pytest.raises(OSError):
            ask(refused, ApiKey.API_VERSIONS, 0, {})
        for connection in kept:
            connection.close()
        deadline = time.monotonic() + 30
        while True:
            try:
                with connect(servers["alice"]) as again:
                    ask(again, ApiKey.API_VERSIONS, 0, {})
                return
            except OSError:
                assert time.monotonic() < deadline


def test_limits_survive_a_restart(start: Start, tmp_path: Any) -> None:
    with start(str(tmp_path)) as servers, connect(servers["admin"]) as admin:
        limit(admin, "producer_byte_rate", 7)
    with start(str(tmp_path)) as servers, connect(servers["admin"]) as admin:
        component = {"entity_type": "user", "match_type": 0, "match": "admin"}
        answer = ask(admin, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [component], "strict": True})
        (entry,) = answer.entries
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 7.0)]
