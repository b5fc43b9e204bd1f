"""The airline of examples/airline as it is: a broker, the pipeline as a process, passengers."""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter

import pytest
from tests.integration.examples.airline_example import (
    HERE,
    Booking,
    Case,
    Flight,
    Seats,
    flight,
    read_committed,
    reckon_topics,
    wait_for_cases,
)
from tests.integration.examples.test_log_examples import load_example

from ottla.streams import TableView

sys.path.insert(0, str(HERE.parent))

from stage import Stage
from travel import states, topics
from travel.events import Answer
from travel.topic_writer import TopicWriter

operations = load_example("airline/operations.py")

KILLS = 5
LATER_S_MAX = 8.0
QUIET_S = 30.0


@pytest.mark.slow
def test_seats_of_a_cancelled_flight_are_passed_on() -> None:
    """Four passengers, two seats. One does not answer; another one takes the seat then."""
    now = int(time.time() * 1000)
    with Stage(dict.fromkeys(topics.ALL, 2), HERE) as stage, cases_of(stage) as cases:
        servers = stage.bootstrap_servers
        writer = TopicWriter(servers)
        writer.write(
            flight("OT1", 2, now_ms=now, is_cancelled=True),
            flight("OT2", 4, now_ms=now),
            Seats("OT2", "BER-PRG", ["1A", "1B"]),
            *(Booking(f"tier-{tier}", "Ann", tier, 100, "OT1") for tier in range(4)),
        )
        stage.run_pipeline("pipeline.py")
        offered = wait_for_cases(
            cases,
            lambda all_: sorted(bool(case.seat) for case in all_.values()) == [False, False, True, True],
            stage.raise_dead,
            120,
        )
        assert {case.booking.tier for case in offered.values() if case.seat} == {2, 3}
        taken = offered["tier-2/OT1"]
        writer.write(Answer(taken.id, taken.route, taken.step, True))
        passed = wait_for_cases(cases, lambda all_: all_["tier-1/OT1"].seat != "", stage.raise_dead, 120)[
            "tier-1/OT1"
        ]
        assert passed.seat == offered["tier-3/OT1"].seat
        writer.write(Answer(passed.id, passed.route, passed.step, True))
        wait_for_cases(cases, lambda all_: all_["tier-1/OT1"].state == states.REBOOKED, stage.raise_dead, 60)
        last = reckon_topics(servers)
    ended = {case.booking.tier: case.state for case in last.values()}
    assert (ended[2], ended[1]) == (states.REBOOKED, states.REBOOKED)
    assert {ended[3], ended[0]} <= set(states.IN_LINE)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_a_day_of_troubles_and_kills() -> None:
    seed = os.environ.get("OTTLA_KILL_SEED") or str(time.time_ns() % 1_000_000)
    print(f"OTTLA_KILL_SEED={seed}")
    dice = random.Random(seed)
    with Stage(dict.fromkeys(topics.ALL, 2), HERE) as stage, cases_of(stage) as cases:
        servers = stage.bootstrap_servers
        stage.run("passengers.py", "--seed", seed)
        pipeline = stage.run_pipeline("pipeline.py")
        stage.run("operations.py", "--every", "25")
        for _ in range(KILLS):
            steps = steps_of(wait_for_cases(cases, lambda _: True, stage.raise_dead, 30))
            wait_for_cases(cases, lambda all_: steps_of(all_) > steps, stage.raise_dead, 180)  # noqa: B023
            time.sleep(dice.uniform(0, LATER_S_MAX))
            stage.kill(pipeline)
            pipeline = stage.run_pipeline("pipeline.py")
        wait_settled(stage, cases)
        last = reckon_topics(servers)
    print(Counter(case.state for case in last.values()))


def cases_of(stage: Stage) -> TableView:
    return TableView(stage.bootstrap_servers, topics.CASES, key=str, value=Case)


def steps_of(cases: dict[str, Case]) -> int:
    return sum(case.step for case in cases.values())


def wait_settled(stage: Stage, cases: TableView) -> None:
    """Until all that was to go wrong has, nobody has an offer, and nothing moves any more."""
    flights = operations.day(0)
    changes = len(flights) + len(list(operations.troubles(flights, random.Random(0))))
    steps, since = -1, time.monotonic()
    deadline = since + 480

    def is_quiet(found: dict[str, Case]) -> bool:
        nonlocal steps, since
        if steps_of(found) != steps or any(case.state == states.OFFERED for case in found.values()):
            steps, since = steps_of(found), time.monotonic()
        return time.monotonic() - since > QUIET_S

    while len(read_committed(stage.bootstrap_servers, topics.FLIGHTS, Flight)) < changes:
        assert time.monotonic() < deadline
        time.sleep(1)
    wait_for_cases(cases, is_quiet, stage.raise_dead, 480)
