"""The queue: what becomes of a job, and that each is done though workers die."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.integration.examples.test_log_examples import load_example

from ottla.testing import InProcessBroker

submit = load_example("messaging/submit.py")
worker = load_example("messaging/worker.py")
subscriber = load_example("messaging/subscriber.py")
DEMO = Path(__file__).parents[3] / "examples" / "messaging" / "demo.py"
JOB = json.dumps({"id": "1", "text": "x"}).encode()


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with InProcessBroker() as broker:
        yield broker.bootstrap_servers


def fails(job: dict[str, str], tries: int) -> str:
    raise worker.TryAgainLater("no answer")


def test_a_job_that_is_done_is_accepted_and_told() -> None:
    settled = worker.settle(JOB, 2, lambda job, tries: job["text"].upper())
    assert (settled.acknowledge, settled.topic) == (AcknowledgeType.ACCEPT, "jobs-done")
    assert settled.event == {"id": "1", "text": "x", "result": "X", "tries": 2}


def test_a_job_that_fails_for_now_goes_back_and_is_given_up_after_the_last_try() -> None:
    assert worker.settle(JOB, 1, fails) == worker.Settled(AcknowledgeType.RELEASE)
    settled = worker.settle(JOB, worker.TRIES_MAX, fails)
    assert (settled.acknowledge, settled.topic) == (AcknowledgeType.REJECT, "jobs-dead")
    assert settled.event == {
        "id": "1",
        "why": "TryAgainLater: no answer",
        "tries": worker.TRIES_MAX,
        "job": JOB.decode(),
    }


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff", b"[]", b'{"id": 7, "text": ""}'])
def test_what_is_no_job_is_dead_at_once(value: bytes | None) -> None:
    settled = worker.settle(value, 1, fails)
    assert (settled.acknowledge, settled.topic) == (AcknowledgeType.REJECT, "jobs-dead")


def test_an_event_that_comes_twice_counts_once() -> None:
    seen = subscriber.Seen()
    assert list(seen.new([b'{"id": "a"}', b'{"id": "b"}', b'{"id": "a"}'])) == ["a", "b"]
    assert (len(seen), seen.twice) == (2, 1)


@pytest.mark.parametrize("queue", [f"jobs-{number}" for number in range(5)])
def test_jobs_are_spread_over_partitions(servers: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(queue, 2)])[queue].result(30)
    monkeypatch.setattr(submit, "JOBS", queue)
    monkeypatch.setattr(sys, "argv", ["submit.py", "--many", "2000", "--bootstrap-server", servers])
    assert submit.main() == 0
    ends = admin.list_offsets({TopicPartition(queue, number): OffsetSpec.latest() for number in (0, 1)})
    counts = [end.result(30).offset for end in ends.values()]
    assert sum(counts) == 2000
    assert min(counts) > 800, "who reads only that partition is soon without jobs"


@pytest.mark.slow
def test_every_job_ends_though_a_worker_is_killed() -> None:
    ran = subprocess.run(
        [sys.executable, DEMO, "--jobs", "200", "--end"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "killing cleo" in ran.stdout
    assert "done 196 " in ran.stdout
    assert "dead: 2 × TryAgainLater: the service it needs did not answer" in ran.stdout
    assert "dead: 2 × JSONDecodeError" in ran.stdout
