"""The queue: what becomes of a job, and that each is done though workers die."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType
from tests.integration.examples.test_log_examples import load_example

worker = load_example("messaging/worker.py")
subscriber = load_example("messaging/subscriber.py")
DEMO = Path(__file__).parents[3] / "examples" / "messaging" / "demo.py"
JOB = json.dumps({"id": "1", "text": "x"}).encode()


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
