"""`ottla run`: an application from its file, and what is said when that cannot be done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.streams import TableView
from ottla.testing import BrokerProcess

EXAMPLES = Path(__file__).parents[2] / "examples/streams"
LINES = ["all streams lead to Kafka", "hello Kafka streams", "join the Kafka summit"] * 20


def ottla_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "ottla.cli.main", "run", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)


def create_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 2, 1) for name in names]).values():
        created.result(10)


def produce(bootstrap: str, lines: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for line in lines:
        producer.produce("lines", line)
    assert producer.flush(10) == 0


def counted(bootstrap: str) -> dict[str, int]:
    with TableView(bootstrap, "word-counts", key=str, value=int) as counts:
        return {entry.key: entry.value for entry in counts.all()}


def expected(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.lower().split())


@pytest.mark.slow
def test_word_count_goes_on_where_it_stopped(any_cluster: str, tmp_path: Path) -> None:
    create_topics(any_cluster, "lines", "word-counts")
    arguments = [str(EXAMPLES / "word_count.py"), "--bootstrap-server", any_cluster, "--once", "--json"]
    arguments += ["--state-dir", str(tmp_path)]

    produce(any_cluster, LINES)
    first = ottla_run(*arguments)
    assert first.returncode == 0, first.stderr
    assert counted(any_cluster) == expected(LINES)
    told = [json.loads(line) for line in first.stdout.splitlines()]
    assert sum(progress["rows"] for progress in told) >= len(LINES)
    assert told[-1]["lag"] == 0

    produce(any_cluster, LINES[:5])
    second = ottla_run(*arguments)
    assert second.returncode == 0, second.stderr
    assert counted(any_cluster) == expected(LINES + LINES[:5])

    argv = [sys.executable, "-m", "ottla.cli.main", "streams-application-reset", "--json"]
    argv += ["--application-id", "word-count", "--input-topics", "lines", "--to-latest"]
    argv += ["--bootstrap-server", any_cluster, "--state-dir", str(tmp_path)]
    reset = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert reset.returncode == 0, reset.stderr
    done: dict[str, Any] = json.loads(reset.stdout)
    assert done["deletedTopics"] == ["word-count-counts-changelog"]
    assert sum(done["offsets"]["word-count:counts-repartition"].values()) == len(LINES) + 5
    assert not list(tmp_path.iterdir())

    produce(any_cluster, ["anew"])
    third = ottla_run(*arguments)
    assert third.returncode == 0, third.stderr
    assert counted(any_cluster) == {**expected(LINES + LINES[:5]), "anew": 1}


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (None, "no such file"),
        ("x = 1", "has no topology; give it a function build()"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_is_no_application(tmp_path: Path, program: str | None, complaint: str) -> None:
    path = tmp_path / "program.py"
    if program is not None:
        path.write_text(program)
    run = ottla_run(str(path))
    assert run.returncode == 1
    assert run.stderr.startswith(f"ottla run: {path}: ")
    assert complaint in run.stderr


@pytest.mark.slow
def test_a_missing_topic_is_named_with_the_remedy(tmp_path: Path) -> None:
    with BrokerProcess(log_level="warning") as broker:
        run = ottla_run(
            str(EXAMPLES / "word_count.py"),
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--state-dir",
            str(tmp_path),
        )
    assert run.returncode == 1
    assert "the topic lines does not exist: create it first" in run.stderr
    assert "Traceback" not in run.stderr
