"""Rules count from the moment they are made, also for who is connected, reads or waits already."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from matrix import HEADER, ask, set_acls, set_rules, topic, until
from principals import Servers

from ottla.client.messages import ask_codec
from ottla.records.records import Record, encode_batch
from ottla.wire.acls import Acl, AclResource, Operation, PatternType, Permission
from ottla.wire.api import ApiKey

TOPIC = "watched"
REFUSED = 29


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.fixture(scope="module")
def made(servers: Servers) -> Servers:
    with connect(servers["admin"]) as admin:
        created = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        values = {"topics": [{"name": TOPIC, **created}], "timeout": 20_000}
        assert ask(admin, ApiKey.CREATE_TOPICS, 7, values).topics[0].error_code == 0
    return servers


@pytest.fixture
def admin(made: Servers) -> Iterator[socket.socket]:
    with connect(made["admin"]) as connection:
        yield connection


@pytest.fixture
def alice(made: Servers) -> Iterator[socket.socket]:
    with connect(made["alice"]) as connection:
        yield connection


def produce(connection: socket.socket) -> int:
    records = encode_batch([Record(b"k", b"secret", 1_700_000_000_000)])
    values = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 5000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}],
    }
    (answered,) = ask(connection, ApiKey.PRODUCE, 9, values).responses
    return int(answered.partition_responses[0].error_code)


def fetch(connection: socket.socket, **values: Any) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10_000, "log_start_offset": -1}
    asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "session_epoch": -1}
    asked |= {"topics": [{"topic": TOPIC, "partitions": [partition]}], "forgotten_topics_data": []}
    return ask(connection, ApiKey.FETCH, 12, {**asked, **values})


def end_offset(admin: socket.socket) -> int:
    asked = {"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    answer = ask(admin, ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [asked]})
    return int(answer.topics[0].partitions[0].offset)


def test_writing(admin: socket.socket, alice: socket.socket) -> None:
    for _ in range(3):
        set_rules(admin, (topic(Operation.WRITE, TOPIC),))
        assert [produce(alice), produce(alice)] == [0, 0]
        set_rules(admin, ())
        assert [produce(alice), produce(alice)] == [REFUSED, REFUSED]


def test_a_fetch_that_waits_gets_nothing_that_came_after_its_rule_went(
    admin: socket.socket, alice: socket.socket
) -> None:
    set_rules(admin, (topic(Operation.READ, TOPIC),))
    end = end_offset(admin)
    partition = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 10_000, "log_start_offset": -1}
    answers: list[Any] = []

    def wait() -> None:
        asked = [{"topic": TOPIC, "partitions": [partition]}]
        answers.append(fetch(alice, max_wait=40_000, topics=asked))

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    set_rules(admin, ())
    assert produce(admin) == 0
    waiting.join(30)
    (row,) = answers[0].responses[0].partitions
    assert row.error_code == REFUSED
    assert not row.records


def test_a_session_hears_of_a_rule_that_went_though_nothing_is_new(
    admin: socket.socket, alice: socket.socket
) -> None:
    set_rules(admin, (topic(Operation.READ, TOPIC),))
    end = end_offset(admin)
    partition = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 10_000, "log_start_offset": -1}
    begun = fetch(alice, session_epoch=0, topics=[{"topic": TOPIC, "partitions": [partition]}])
    session: dict[str, Any] = {"session_id": begun.session_id, "topics": []}
    assert begun.responses[0].partitions[0].error_code == 0
    assert not fetch(alice, session_epoch=1, **session).responses
    set_rules(admin, ())
    (answered,) = fetch(alice, session_epoch=2, **session).responses
    assert answered.partitions[0].error_code == REFUSED
    set_rules(admin, (topic(Operation.READ, TOPIC),))
    again = fetch(alice, session_epoch=3, **session).responses
    assert all(row.error_code == 0 for found in again for row in found.partitions)


def test_what_is_refused_beside_what_is_not(admin: socket.socket, alice: socket.socket) -> None:
    set_rules(admin, (topic(Operation.WRITE, TOPIC),))
    records = encode_batch([Record(b"k", b"v", 1_700_000_000_000)])
    names = ("first", TOPIC, "last")
    data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in names]
    values = {"transactional_id": None, "acks": 1, "timeout": 5000, "topic_data": data}
    answered = ask(alice, ApiKey.PRODUCE, 9, values).responses
    codes = {found.name: int(found.partition_responses[0].error_code) for found in answered}
    assert codes == {"first": REFUSED, TOPIC: 0, "last": REFUSED}


def test_a_topic_that_is_called_like_the_id_of_another_opens_nothing(
    admin: socket.socket, alice: socket.socket
) -> None:
    asked = {"topics": [{"name": TOPIC, "topic_id": None}], "allow_auto_topic_creation": False}
    topic_id = ask(admin, ApiKey.METADATA, 12, asked).topics[0].topic_id
    records = encode_batch([Record(b"k", b"v", 1_700_000_000_000)])
    values = {"transactional_id": None, "acks": 1, "timeout": 5000}
    partitions = [{"index": 0, "records": records}]
    # Whatever the bytes of the id are read as, alice may write to what begins like it.
    begins = topic_id.bytes.decode(errors="replace")[0]
    prefix = Acl(2, begins, PatternType.PREFIXED, "User:alice", "*", Operation.ALL, Permission.ALLOW)
    set_acls(admin, [prefix])
    codec = ask_codec(ApiKey.PRODUCE, 9)
    stand_in = "x" * 16
    body = codec.write({**values, "topic_data": [{"name": stand_in, "partition_data": partitions}]})
    payload = HEADER.pack(ApiKey.PRODUCE, 9, 7, 6) + b"matrix" + b"\0"
    payload += body.replace(stand_in.encode(), topic_id.bytes)
    alice.sendall(struct.pack(">i", len(payload)) + payload)
    (size,) = struct.unpack(">i", alice.recv(4, socket.MSG_WAITALL))
    alice.recv(size, socket.MSG_WAITALL)
    by_id = {**values, "topic_data": [{"topic_id": topic_id, "partition_data": partitions}]}
    (answered,) = ask(alice, ApiKey.PRODUCE, 13, by_id).responses
    assert answered.partition_responses[0].error_code == REFUSED


def test_an_expression_brings_only_what_the_member_may_know_of(
    admin: socket.socket, alice: socket.socket
) -> None:
    created = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    names = ("matched-shown", "matched-hidden")
    values = {"topics": [{"name": name, **created} for name in names], "timeout": 20_000}
    ids = {each.name: each.topic_id for each in ask(admin, ApiKey.CREATE_TOPICS, 7, values).topics}
    read_group = (Operation.READ, AclResource.GROUP, "*")

    def assigned(group: str, *rules: tuple[Operation, AclResource, str]) -> set[Any]:
        """The topics that a member gets which is alone in its group."""
        set_rules(admin, (read_group, *rules))
        find = {"key_type": 0, "coordinator_keys": [group]}
        until(lambda: ask(admin, ApiKey.FIND_COORDINATOR, 4, find).coordinators[0])
        joining = {
            "group_id": group,
            "member_id": str(uuid4()),
            "member_epoch": 0,
            "rebalance_timeout": 60_000,
            "subscribed_topic_regex": "matched-.*",
            "topic_partitions": [],
        }
        answer = until(lambda: ask(alice, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining))
        deadline = time.monotonic() + 60
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert time.monotonic() < deadline
            values = {**joining, "member_epoch": answer.member_epoch}
            answer = ask(alice, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
        return {each.topic_id for each in answer.assignment.topic_partitions}

    shown = topic(Operation.DESCRIBE, "matched-shown")
    assert assigned("some", shown) == {ids["matched-shown"]}
    assert assigned("all", shown, topic(Operation.READ, "matched-hidden")) == set(ids.values())
