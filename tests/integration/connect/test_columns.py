"""Records that go as columns arrive as those that go one by one, and what fails on the way ends the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from worker_process import ask, our_worker, settings_of

from ottla.connect.connectors.files import FileSinkTask
from ottla.connect.running.sink_task import SinkRunner
from ottla.connect.running.source_task import SourceRunner
from ottla.testing import InProcessBroker

WAIT_S = 20.0
STRINGS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
ONE_BY_ONE = {f"{kind}.override.statistics.interval.ms": "0" for kind in ("producer", "consumer")}
"""A setting that only one of the clients knows."""


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    with InProcessBroker() as running:
        yield running


@pytest.fixture(scope="module")
def address(broker: InProcessBroker) -> Iterator[str]:
    with our_worker(settings_of(broker.bootstrap_servers) | STRINGS) as worker:
        yield worker.address


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Of a source by its name, of a sink by its file: whether it wrote columns, or records."""
    seen: dict[str, set[str]] = {}
    write, write_columns = SourceRunner._write, SourceRunner._write_columns

    def writing(runner: SourceRunner, records: Any) -> None:
        seen.setdefault(runner.task.connector, set()).add("records")
        write(runner, records)

    def writing_columns(runner: SourceRunner, given: Any) -> bool:
        is_written = write_columns(runner, given)
        if is_written:
            seen.setdefault(runner.task.connector, set()).add("columns")
        return is_written

    put, put_columns = FileSinkTask.put, FileSinkTask.put_columns

    def putting(task: FileSinkTask, records: Any) -> None:
        seen.setdefault(Path(task._path).name, set()).add("records")
        put(task, records)

    def putting_columns(task: FileSinkTask, records: Any) -> None:
        put_columns(task, records)
        seen.setdefault(Path(task._path).name, set()).add("columns")

    monkeypatch.setattr(FileSinkTask, "put", putting)
    monkeypatch.setattr(FileSinkTask, "put_columns", putting_columns)
    monkeypatch.setattr(SourceRunner, "_write", writing)
    monkeypatch.setattr(SourceRunner, "_write_columns", writing_columns)
    return seen


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def create(address: str, name: str, kind: str, more: dict[str, str] | None = None, **settings: str) -> None:
    config = {"connector.class": kind} | {key.replace("_", "."): value for key, value in settings.items()}
    ask(address, "PUT", f"/connectors/{name}/config", config | (more or {}))


def task_of(address: str, name: str) -> dict[str, Any]:
    known = ask(address, "GET", "/connectors?expand=status")
    tasks = known[name]["status"]["tasks"] if name in known else []
    return dict(tasks[0]) if tasks else {"state": None}


def position(address: str, name: str) -> int:
    offsets = ask(address, "GET", f"/connectors/{name}/offsets")["offsets"]
    return int(offsets[0]["offset"]["position"]) if offsets else 0


def values_of(broker: InProcessBroker, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += [each.value() for each in consumer.consume(1000, timeout=0.2) if each.error() is None]
    consumer.close()
    return found


def test_a_file_is_the_same_in_its_topic_whichever_way_its_lines_go(
    address: str, broker: InProcessBroker, tmp_path: Path, ways: dict[str, set[str]]
) -> None:
    source = tmp_path / "in.txt"
    parts = [
        b"plain\n",
        b"of windows\r\n",
        b"of old\rapples\r",
        b"\n",
        "größer\n".encode(),
        b"not \xff text\n",
    ]
    source.write_bytes(b"".join(parts) * 1000 + b"not yet whole")
    for name, more in (("columns", {}), ("records", ONE_BY_ONE)):
        create(address, name, "FileStreamSource", more, file=str(source), topic=f"{name}-topic")
    size = source.stat().st_size - len(b"not yet whole")
    for name in ("columns", "records"):
        until(lambda name=name: position(address, name) == size)
    assert ways == {"columns": {"columns"}, "records": {"records"}}
    lines = [
        line.replace(b"\xff", "\N{REPLACEMENT CHARACTER}".encode()) for line in b"".join(parts).splitlines()
    ]
    assert values_of(broker, "columns-topic", len(lines) * 1000) == lines * 1000
    assert values_of(broker, "records-topic", len(lines) * 1000) == lines * 1000
    for name in ("columns", "records"):
        ask(address, "DELETE", f"/connectors/{name}")


def test_a_line_that_is_too_large_is_skipped_and_those_around_it_keep_their_order(
    address: str, broker: InProcessBroker, tmp_path: Path, ways: dict[str, set[str]]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{number}\n" for number in range(1000)))
    create(
        address, "large", "FileStreamSource",
        file=str(source), topic="large", batch_size="100", errors_tolerance="all",
    )  # fmt: skip
    until(lambda: position(address, "large") == source.stat().st_size)
    with source.open("a") as more:
        more.write("x" * 1_500_000 + "\n" + "".join(f"{number}\n" for number in range(1000, 2000)))
    until(lambda: position(address, "large") == source.stat().st_size)
    assert values_of(broker, "large", 2000) == [str(number).encode() for number in range(2000)]
    assert ways == {"large": {"columns", "records"}}
    ask(address, "DELETE", "/connectors/large")


def test_a_topic_that_goes_while_columns_are_written_fails_the_task_with_the_remedy(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("first\n")
    create(address, "gone", "FileStreamSource", file=str(source), topic="gone")
    until(lambda: position(address, "gone") == source.stat().st_size)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["gone"])["gone"].result()
    with source.open("a") as more:
        more.write("second\n")
    failed = until(lambda: (task := task_of(address, "gone"))["state"] == "FAILED" and task)
    assert "restart the task, which makes its topics" in failed["trace"]
    ask(address, "POST", "/connectors/gone/restart?includeTasks=true")
    assert values_of(broker, "gone", 1) == [b"second"]
    ask(address, "DELETE", "/connectors/gone")


def create_topic(broker: InProcessBroker, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def group_offsets(address: str, name: str) -> dict[int, int]:
    rows = ask(address, "GET", f"/connectors/{name}/offsets")["offsets"]
    return {row["partition"]["kafka_partition"]: row["offset"]["kafka_offset"] for row in rows}


def test_a_topic_is_the_same_in_its_file_whichever_way_its_records_go(
    address: str, broker: InProcessBroker, tmp_path: Path, ways: dict[str, set[str]]
) -> None:
    create_topic(broker, "mixed", 1)
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "mixed"}
    producer = Producer({**settings, "compression.type": "lz4"})
    producer.init_transactions()
    for number in range(40):
        producer.begin_transaction()
        producer.produce("mixed", f"first of {number}", key=b"k")
        producer.produce("mixed", None, key=b"tombstone")
        producer.produce("mixed", "größer", headers={"h": b"v"} if number == 30 else None)
        producer.produce("mixed", b"not \xff text" if number == 20 else b"")
        if number % 5 == 4:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    for name, more in (("columns", {}), ("records", ONE_BY_ONE)):
        create(
            address, f"mixed-{name}", "FileStreamSink", more,
            file=f"{tmp_path}/{name}", topics="mixed", errors_tolerance="all",
            errors_deadletterqueue_topic_name=f"{name}-dead",
            consumer_override_max_partition_fetch_bytes="2000",
        )  # fmt: skip
    expected = [
        line
        for number in range(40)
        if number % 5 != 4
        for line in (f"first of {number}", "null", "größer", "")
        if (number, line) != (20, "")
    ]
    for name in ("columns", "records"):
        out = tmp_path / name
        until(lambda out=out: out.exists() and len(out.read_text().splitlines()) >= len(expected))
        assert out.read_text().splitlines() == expected
        assert values_of(broker, f"{name}-dead", 1) == [b"not \xff text"]
        # The last marker may be counted or not; what is before it is done.
        until(lambda name=name: group_offsets(address, f"mixed-{name}").get(0, 0) >= 5 * 39 - 1)
        ask(address, "DELETE", f"/connectors/mixed-{name}")
    assert ways == {"columns": {"columns", "records"}, "records": {"records"}}


def test_tasks_that_come_and_go_leave_out_no_record_of_their_partitions(
    address: str, broker: InProcessBroker, tmp_path: Path, ways: dict[str, set[str]]
) -> None:
    create_topic(broker, "shared", 4)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    out = tmp_path / "shared"

    def produce(begin: int, end: int) -> None:
        for number in range(begin, end):
            producer.produce("shared", str(number), partition=number % 4)
        producer.flush()

    def there(count: int) -> bool:
        return out.exists() and len(set(out.read_text().split())) == count

    produce(0, 2000)
    given = {"file": str(out), "topics": "shared"}
    create(address, "shared", "FileStreamSink", given, tasks_max="1")
    until(lambda: there(2000))
    create(address, "shared", "FileStreamSink", given, tasks_max="2")
    produce(2000, 4000)
    until(lambda: there(4000))
    ask(address, "PUT", "/connectors/shared/pause")
    until(lambda: task_of(address, "shared")["state"] == "PAUSED")
    create(address, "shared", "FileStreamSink", given, tasks_max="1")
    produce(4000, 6000)
    ask(address, "PUT", "/connectors/shared/resume")
    until(lambda: there(6000))
    until(lambda: group_offsets(address, "shared") == dict.fromkeys(range(4), 1500))
    # At least once; who was stopped in good order had said how far it was.
    assert sorted(map(int, out.read_text().split())) == list(range(6000))
    assert ways == {"shared": {"columns"}}
    ask(address, "DELETE", "/connectors/shared")


@pytest.mark.parametrize("more", [{}, ONE_BY_ONE], ids=["columns", "records"])
def test_a_sink_that_starts_paused_leaves_out_nothing(
    address: str,
    broker: InProcessBroker,
    tmp_path: Path,
    more: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    turn_paused, assigned = SinkRunner.turn_paused, SinkRunner._assigned

    def turning(runner: SinkRunner) -> None:
        turn_paused(runner)
        seen.append("round")

    def assigning(runner: SinkRunner, consumer: Any, partitions: Any) -> None:
        assigned(runner, consumer, partitions)
        seen.append("assigned")

    monkeypatch.setattr(SinkRunner, "turn_paused", turning)
    monkeypatch.setattr(SinkRunner, "_assigned", assigning)
    name = f"asleep-{len(more)}"
    create_topic(broker, name, 1)
    out = tmp_path / "out"
    create(address, name, "FileStreamSink", more, file=str(out), topics=name)
    until(lambda: "assigned" in seen)
    ask(address, "PUT", f"/connectors/{name}/pause")
    until(lambda: task_of(address, name)["state"] == "PAUSED")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(100):
        producer.produce(name, str(number))
    producer.flush()
    seen.clear()
    ask(address, "POST", f"/connectors/{name}/restart?includeTasks=true")
    until(lambda: "assigned" in seen and seen[seen.index("assigned") :].count("round") > 2)
    ask(address, "PUT", f"/connectors/{name}/resume")
    until(lambda: out.exists() and len(out.read_text().split()) >= 100)
    assert list(map(int, out.read_text().split())) == list(range(100))
    ask(address, "DELETE", f"/connectors/{name}")


def test_a_topic_that_goes_while_columns_are_read_fails_the_task_by_name(
    address: str, broker: InProcessBroker, tmp_path: Path
) -> None:
    create_topic(broker, "fleeting", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("fleeting", "only")
    producer.flush()
    out = tmp_path / "out"
    create(address, "fleeting", "FileStreamSink", file=str(out), topics="fleeting")
    until(lambda: out.exists() and out.read_text() == "only\n")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["fleeting"])["fleeting"].result()
    failed = until(lambda: (task := task_of(address, "fleeting"))["state"] == "FAILED" and task)
    assert "the topic fleeting is gone" in failed["trace"]
    ask(address, "DELETE", "/connectors/fleeting")
