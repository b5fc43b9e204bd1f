"""Our worker says what Apache Kafka's says, to requests good and bad, and leaves the same in its topics.

What Kafka's says is kept in `rest_answers.json`, written by `kafka_rest_answers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rest_requests import answers, differences
from state_topics import state_records
from worker_process import our_worker, settings_of

from ottla.testing import InProcessBroker

KEPT = json.loads((Path(__file__).parent / "rest_answers.json").read_text())


@dataclass(frozen=True)
class Told:
    answers: list[tuple[str, str, dict[str, Any]]]
    topics: dict[str, list[list[Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    directory = tmp_path_factory.mktemp("connect")
    (directory / "in.txt").write_text("one\ntwo\nthree\n")
    with InProcessBroker() as broker:
        with our_worker(settings_of(broker.bootstrap_servers)) as worker:
            found = [
                (ask.name.replace(str(directory), "/dir"), ask.compare, answer)
                for ask, answer in answers(worker.address, directory)
            ]
        yield Told(found, state_records(broker.bootstrap_servers, directory))


def test_our_answers_are_those_of_kafkas_worker(told: Told) -> None:
    assert [name for name, _, _ in told.answers] == [name for name, _ in KEPT["answers"]]
    found: dict[str, list[str]] = {}
    for (name, compare, ours), (_, theirs) in zip(told.answers, KEPT["answers"], strict=True):
        is_whole = compare == "all"
        lines = differences(ours if is_whole else ours["status"], theirs if is_whole else theirs["status"])
        if lines:
            found[name] = lines
    assert not found


def test_state_topics_hold_the_records_that_kafkas_worker_writes(told: Told) -> None:
    for topic, theirs in KEPT["topics"].items():
        missing = [row for row in theirs if row not in told.topics[topic] and not _is_passing(row)]
        more = [row for row in told.topics[topic] if row not in theirs and not _is_passing(row)]
        assert (topic, missing, more) == (topic, [], [])


def _is_passing(row: list[Any]) -> bool:
    """How a restart and a stop look on the way is not the same each time, with Kafka's either."""
    value = row[1]
    return isinstance(value, dict) and value.get("state") in {"UNASSIGNED", "RESTARTING"}


@pytest.mark.soak
@pytest.mark.maven
@pytest.mark.timeout(600)
def test_the_answers_kept_are_still_those_of_kafkas_worker(tmp_path: Path) -> None:
    from bench.maven import PeerUnavailable
    from kafka_rest_answers import ask_kafka

    try:
        told = ask_kafka(tmp_path)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    assert [name for name, _ in told["answers"]] == [name for name, _ in KEPT["answers"]]
    for (name, now), (_, kept) in zip(told["answers"], KEPT["answers"], strict=True):
        assert differences(now, kept) == [] or name.startswith("GET / "), name
