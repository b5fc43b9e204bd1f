"""Log aggregation: what lines mean, that each comes once, and that it is found."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.examples.logs_example import agent as agents
from tests.integration.examples.logs_example import index as indexing
from tests.integration.examples.logs_example import pipeline

from ottla.streams.testing import TopologyTestDriver
from ottla.testing import InProcessBroker

NOW_MS = 1_900_000_000_000
MINUTE_MS = 60_000
JSON = '{{"time": "2026-01-01T00:00:{:02}Z", "service": "shop", "level": "{}", "message": "{}"}}'


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            '1.2.3.4 - ann [01/Jan/2026:01:00:00 +0100] "GET /a?b=\\"c HTTP/1.1" 502 12 "-" "curl/8"',
            ("nginx", "error", '502 GET /a?b=\\"c HTTP/1.1 "-" "curl/8"'),
        ),
        (
            '<84>1 2026-01-01T00:00:00.000Z db sshd 77 - [a@1 b="c"] Failed password',
            ("sshd", "warn", "Failed password"),
        ),
        (
            '{"time": "2026-01-01T00:00:00Z", "service": "s", "level": "FATAL", "message": "m", "n": 1}',
            ("s", "error", "m n=1"),
        ),
    ],
)
def test_lines_become_entries(line: str, entry: tuple[str, str, str]) -> None:
    found = pipeline.parse("db", line.encode(), NOW_MS)
    assert (found.host, found.at_ms) == ("db", 1_767_225_600_000)
    assert (found.service, found.level, found.message) == entry


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"Traceback (most recent call last):", "neither"),
        (b"\xff", "utf-8"),
        (b"", "neither"),
        (b'{"time": "2026-01-01T00:00:00Z"', "delimiter"),
        (b'{"time": "2026-01-01T00:00:00Z", "service": 1}', "service is 1"),
        (JSON.format(0, "loud", "m").encode(), "level is 'loud'"),
        (JSON.format(0, "info", "\\ud800").encode(), "surrogates"),
        (JSON.format(0, "info", "m").replace("2026", "2126").encode(), "ahead of the agent's"),
        (JSON.format(0, "info", "m").replace("2026", "1926").encode(), "before 1970"),
        (JSON.format(0, "info", "m").replace("Z", "").encode(), "no time zone"),
    ],
)
def test_what_is_not_understood_says_why(line: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        pipeline.parse("db", line, NOW_MS)


def test_errors_are_counted_by_service_and_minute_and_the_rest_is_kept() -> None:
    with TopologyTestDriver(
        pipeline.build(), on_error=pipeline.ON_ERROR, dead_letter_topic=pipeline.DEAD_LETTER_TOPIC
    ) as driver:
        lines = driver.create_input_topic("log-lines", str, bytes)
        for second, level in ((0, "info"), (30, "error"), (59, "error")):
            lines.pipe_input("web", JSON.format(second, level, "m").encode(), NOW_MS)
        lines.pipe_input("web", b"nonsense", NOW_MS)
        lines.pipe_input("web", JSON.format(0, "info", "late").encode(), NOW_MS)
        entries = driver.create_output_topic("log-entries", str, dict).read_values()
        rates = driver.create_output_topic("log-rates", str, dict).read_map()
        dead = driver.create_output_topic("log-dead", str, bytes).read_records()
    assert [entry["message"] for entry in entries] == ["m", "m", "m", "late"]
    assert [(row["lines"], row["errors"]) for row in rates.values()] == [(4, 2)]
    assert [record.value for record in dead] == [b"nonsense"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with InProcessBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic("log-lines", 2)]).values():
            made.result(30)
        yield broker.bootstrap_servers


def sent(servers: str, host: str) -> Counter[bytes]:
    """What readers find of a host."""
    settings = {"group.id": "test", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"bootstrap.servers": servers, "enable.auto.commit": False})
    consumer.assign([TopicPartition("log-lines", number, 0) for number in range(2)])
    found: Counter[bytes] = Counter()
    unread = 2
    while unread:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            unread -= 1
        elif message.key() == host.encode():
            found[message.value()] += 1
    consumer.close()
    return found


def run_dry(agent: Any) -> None:
    while agent.step():
        pass


def once(*lines: str) -> Counter[bytes]:
    return Counter({line.encode(): 1 for line in lines})


def test_a_line_is_sent_once_through_rotations_and_restarts(servers: str, tmp_path: Path) -> None:
    log, older = tmp_path / "app.log", tmp_path / "app.log.1"
    log.write_text("one\ntwo\nhal")
    first = agents.Agent(servers, "once", tmp_path)
    run_dry(first)
    assert sent(servers, "once") == once("one", "two")
    with log.open("a") as file:
        file.write("f\nthree\n")
    log.rename(older)
    log.write_text("four\n")
    run_dry(first)
    with older.open("a") as file:  # by a program that has it open
        file.write("five, and then no line's end")
    second = agents.Agent(servers, "once", tmp_path)
    run_dry(second)
    with pytest.raises(KafkaException):
        log.write_text("four\nsix\n")
        first.step()  # another one has taken over
    older.unlink()
    run_dry(second)
    log.write_text("seven\n")  # emptied, and begun anew
    run_dry(second)
    expected = once("one", "two", "half", "three", "four", "five, and then no line's end", "six", "seven")
    assert sent(servers, "once") == expected
    third = agents.Agent(servers, "once", tmp_path)
    assert third.step() == 0
    tmp_path.rename(away := tmp_path.with_name("away"))  # the disk is not there yet
    fourth = agents.Agent(servers, "once", tmp_path)
    assert fourth.step() == 0
    away.rename(tmp_path)
    assert fourth.step() == 0


def test_what_was_not_committed_is_sent_by_the_next(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    killed = agents.Agent(servers, "killed", tmp_path)
    run_dry(killed)
    log.write_text("one\ntwo\n")

    def die() -> None:
        killed._producer.flush(30)
        raise MemoryError

    monkeypatch.setattr(killed, "_commit", die)
    with pytest.raises(MemoryError):
        killed.step()
    log.write_text("one\ntwo\nthree\n")
    run_dry(agents.Agent(servers, "killed", tmp_path))
    assert sent(servers, "killed") == once("one", "two", "three")


def test_positions_are_read_behind_what_others_have_begun(servers: str, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\n")
    agent = agents.Agent(servers, "behind", tmp_path)
    other = Producer({"bootstrap.servers": servers, "transactional.id": "log-agent-other"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce("log-positions", None, "other/1")
    other.flush(30)
    run_dry(agent)
    threading.Timer(0.5, other.abort_transaction).start()
    assert agents.Agent(servers, "behind", tmp_path).step() == 0


def test_a_line_longer_than_a_read_comes_in_pieces(servers: str, tmp_path: Path) -> None:
    long = "x" * (agents.READ_BYTES + 10)
    (tmp_path / "app.log").write_text(f"{long}\nshort\n")
    run_dry(agents.Agent(servers, "long", tmp_path))
    assert sent(servers, "long") == once(long[:-10], "x" * 10, "short")


def test_lines_are_found_by_their_words(tmp_path: Path) -> None:
    path = str(tmp_path / "logs.db")
    index = indexing.Index(path)
    index.add([(1, "web-1", "shop", "error", 'payment "timed out"')], {("log-entries", 0): 1})
    index.add(
        [(2, "web-2", "shop", "info", "payment taken"), (3, "web-1", "sshd", "info", "hello")],
        {("log-entries", 0): 2, ("log-entries", 1): 7},
    )
    with pytest.raises(sqlite3.Error):
        index.add([(4, "web-1", "shop", "info", "never"), (5,)], {("log-entries", 0): 99})
    index.close()
    again = indexing.Index(path)
    assert again.positions() == {("log-entries", 0): 2, ("log-entries", 1): 7}
    count, found = again.search("shop payment")
    assert (count, [line["at_ms"] for line in found]) == (2, [2, 1])
    assert [line["at_ms"] for line in again.search('error "timed')[1]] == [1]
    assert [line["at_ms"] for line in again.search("web-1")[1]] == [3, 1]
    assert again.search("")[0] == 3
    assert again.search("AND (")[0] == 0
    again.close()
