"""Records on their way: files to topics to files, what fails on the way, and what a restart goes on with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from worker_process import WAIT_S, ask, our_worker, settings_of

from ottla.connect import (
    ConnectError,
    RetriableError,
    Settings,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from ottla.connect.plugins import Kind, Listed, Plugins, installed
from ottla.testing import InProcessBroker

PLAIN = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
}


class FlakySink(SinkTask):
    """Refuses its first records once, and reports every value that is a poison."""

    taken: list[Any] = []  # noqa: RUF012
    refusals = 1

    def start(self, given: Mapping[str, str]) -> None: ...

    def put(self, records: Sequence[SinkRecord]) -> None:
        cls = type(self)
        if cls.refusals:
            cls.refusals -= 1
            raise RetriableError("not now")
        for record in records:
            if record.value == "poison":
                self.context.report(record, ValueError("it is poisoned"))
            else:
                cls.taken.append(record.value)


class FlakySinkConnector(SinkConnector):
    settings = Settings()
    task_class = FlakySink

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.given]


class FailingSource(SourceTask):
    def start(self, given: Mapping[str, str]) -> None:
        raise OSError("the password is wrong")

    def poll(self) -> Sequence[SourceRecord]:
        return ()


class FailingSourceConnector(SourceConnector):
    settings = Settings()
    task_class = FailingSource

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [self.given]


PLUGINS = Plugins(
    [
        *installed().of(*Kind),
        Listed(Kind.SINK, "FlakySink", f"{__name__}:FlakySinkConnector"),
        Listed(Kind.SOURCE, "FailingSource", f"{__name__}:FailingSourceConnector"),
    ]
)


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    given = settings_of(broker.bootstrap_servers) | {"exactly.once.source.support": "enabled"} | PLAIN
    with our_worker(given, PLUGINS) as worker:
        yield worker.address


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def create(address: str, name: str, kind: str, **settings: str) -> None:
    config = {"connector.class": kind} | {key.replace("_", "."): value for key, value in settings.items()}
    ask(address, "PUT", f"/connectors/{name}/config", config)


def task_state(address: str, name: str) -> dict[str, Any]:
    """Of its first task; nothing while there is none."""
    known = ask(address, "GET", "/connectors?expand=status")
    tasks = known[name]["status"]["tasks"] if name in known else []
    return dict(tasks[0]) if tasks else {"state": None}


def committed_values(broker: InProcessBroker, topic: str, count: int) -> list[Any]:
    """The first `count` records and whatever else comes within a moment after them."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"reader-{topic}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    try:
        while len(found) < count and time.monotonic() < deadline:
            found += [message for message in consumer.consume(1000, timeout=0.2) if message.error() is None]
        found += [message for message in consumer.consume(1000, timeout=0.5) if message.error() is None]
    finally:
        consumer.close()
    return found


def test_lines_go_through_a_topic_once_over_restarts_and_pauses(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"line {number}\n" for number in range(1000)))
    create(address, "once", "FileStreamSource", file=str(source), topic="once", batch_size="100")
    until(lambda: task_state(address, "once")["state"] == "RUNNING")
    for number in range(5):
        with source.open("a") as more:
            more.writelines(f"more {number} {row}\n" for row in range(20))
        ask(address, "POST", "/connectors/once/restart?includeTasks=true")
    ask(address, "PUT", "/connectors/once/pause")
    until(lambda: task_state(address, "once")["state"] == "PAUSED")
    with source.open("a") as more:
        more.write("last\nnot yet whole")
    ask(address, "PUT", "/connectors/once/resume")
    values = [json.loads(message.value()) for message in committed_values(broker, "once", 1101)]
    assert values == source.read_text().splitlines()[:-1]
    ask(address, "DELETE", "/connectors/once")


def test_csv_becomes_json_by_way_of_transforms(address: str, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,name\n1,Ada\n2,"Ha, ha"\n')
    create(address, "rows", "FileSource", file=f"{tmp_path}/in.csv", topic="rows", format="csv")
    cast = {
        "transforms": "number",
        "transforms.number.type": "Cast$Value",
        "transforms.number.spec": "id:int32",
    }
    out = tmp_path / "out.json"
    create(address, "rows-out", "FileSink", file=str(out), topics="rows", format="json", **cast)
    until(lambda: out.exists() and out.read_text().count("\n") == 2)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows == [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Ha, ha"}]
    for name in ("rows", "rows-out"):
        ask(address, "DELETE", f"/connectors/{name}")


def test_records_that_fail_go_to_the_dead_letter_topic_and_the_others_on(
    address: str, broker: InProcessBroker
) -> None:
    create(
        address,
        "flaky",
        "FlakySink",
        topics="mixed",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_context_headers_enable="true",
        consumer_override_topic_metadata_refresh_interval_ms="200",
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (b'"one"', b"{broken", b'"poison"', b'"two"'):
        producer.produce("mixed", value, key=b"k", headers={"from": b"me"})
    producer.flush(WAIT_S)
    until(lambda: len(FlakySink.taken) == 2)
    assert FlakySink.taken == ["one", "two"]
    assert FlakySink.refusals == 0
    letters = committed_values(broker, "dead", 2)
    assert [message.value() for message in letters] == [b"{broken", b'"poison"']
    headers = [dict(message.headers()) for message in letters]
    assert [each["__connect.errors.stage"] for each in headers] == [b"VALUE_CONVERTER", b"TASK_PUT"]
    assert [each["__connect.errors.offset"] for each in headers] == [b"1", b"2"]
    assert (
        headers[1]
        | {
            "from": b"me",
            "__connect.errors.topic": b"mixed",
            "__connect.errors.connector.name": b"flaky",
            "__connect.errors.task.id": b"0",
            "__connect.errors.exception.message": b"it is poisoned",
        }
        == headers[1]
    )
    # All of them are dealt with, so none comes again.
    until(
        lambda: (
            ask(address, "GET", "/connectors/flaky/offsets")["offsets"][0]["offset"] == {"kafka_offset": 4}
        )
    )
    ask(address, "DELETE", "/connectors/flaky")


def test_a_poison_record_fails_the_task_with_the_cause_and_the_others_run_on(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("poisoned", b"{broken")
    producer.flush(WAIT_S)
    create(address, "strict", "FileStreamSink", file=f"{tmp_path}/out", topics="poisoned")
    create(address, "wrong", "FailingSource")
    failed = until(lambda: (state := task_state(address, "strict"))["state"] == "FAILED" and state)
    assert "poisoned-0@0 failed in VALUE_CONVERTER" in failed["trace"]
    assert "errors.tolerance=all" in failed["trace"]
    refused = until(lambda: (state := task_state(address, "wrong"))["state"] == "FAILED" and state)
    assert "the password is wrong" in refused["trace"]
    (tmp_path / "in.txt").write_text("still here\n")
    create(address, "other", "FileStreamSource", file=f"{tmp_path}/in.txt", topic="others")
    assert json.loads(committed_values(broker, "others", 1)[0].value()) == "still here"
    ask(address, "PATCH", "/connectors/strict/config", {"errors.tolerance": "all"})
    until(lambda: task_state(address, "strict")["state"] == "RUNNING")
    for name in ("strict", "wrong", "other"):
        ask(address, "DELETE", f"/connectors/{name}")


def test_a_worker_goes_on_where_another_of_its_group_stopped(broker: InProcessBroker, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\ntwo\n")
    given = settings_of(broker.bootstrap_servers) | PLAIN
    given |= {f"{name}.storage.topic": f"second-{name}" for name in ("config", "offset", "status")}
    with our_worker(given) as worker:
        create(worker.address, "kept", "FileStreamSource", file=str(source), topic="kept")
        committed_values(broker, "kept", 2)
    with source.open("a") as more:
        more.write("three\n")
    with our_worker(given) as worker:
        assert ask(worker.address, "GET", "/connectors") == ["kept"]
        values = [json.loads(message.value()) for message in committed_values(broker, "kept", 1)]
        assert values == ["three"]
        offsets = ask(worker.address, "GET", "/connectors/kept/offsets")["offsets"]
        assert offsets == [{"partition": {"filename": str(source)}, "offset": {"position": 14}}]


def test_a_worker_that_stands_alone_keeps_offsets_in_a_file(broker: InProcessBroker, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("one\n")
    given = settings_of(broker.bootstrap_servers) | PLAIN
    given["offset.storage.file.filename"] = str(tmp_path / "offsets")
    connector = {
        "name": "alone",
        "connector.class": "FileStreamSource",
        "file": str(source),
        "topic": "alone",
    }
    with our_worker(given, connectors=[connector], stands_alone=True):
        committed_values(broker, "alone", 1)
    with source.open("a") as more:
        more.write("two\n")
    with our_worker(given, connectors=[connector], stands_alone=True):
        assert json.loads(committed_values(broker, "alone", 1)[0].value()) == "two"
    assert json.loads((tmp_path / "offsets").read_text())
    (tmp_path / "offsets").write_bytes(b"\xac\xed\x00\x05")
    with pytest.raises(ConnectError, match="written by a Java worker"), our_worker(given, stands_alone=True):
        pass
