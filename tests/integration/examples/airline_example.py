"""The example's modules as its own programs see them, and what has to hold whatever is killed."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from tests.integration.examples.test_log_examples import load_example

from ottla.streams import Record, Serdes, TableView

HERE = Path(__file__).resolve().parents[3] / "examples/airline"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from travel import states, topics  # noqa: E402
from travel.events import Answer, Booking, Case, Flight, Notification, Seats, Trip  # noqa: E402

pipeline = load_example("airline/pipeline.py")
HOUR_MS = 3_600_000
__all__ = ["Answer", "Booking", "Flight", "Seats"]


def flight(number: str, hour: float, *, now_ms: int = 0, route: str = "BER-PRG", **more: Any) -> Flight:
    departs_ms = now_ms + int(hour * HOUR_MS)
    return Flight(number, route, departs_ms, departs_ms + HOUR_MS, **more)


def read_committed(bootstrap_servers: str, topic: str, kind: type) -> list[Record]:
    """All of a topic; of one key in order."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "reckoning",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer, serde = Consumer(settings), Serdes.of(kind)
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, unread = [], set(partitions)
    while unread:
        message = consumer.poll(30)
        assert message is not None, f"{topic} cannot be read to its end"
        if message.error() is not None:
            unread.discard(message.partition())
        else:
            value = serde.deserialize(message.value())
            found.append(Record(message.key().decode(), value, message.timestamp()[1]))
    consumer.close()
    return found


def wait_for_cases(
    view: TableView, is_enough: Callable[[dict[str, Case]], bool], check: Callable[[], None], timeout_s: float
) -> dict[str, Case]:
    deadline = time.monotonic() + timeout_s
    while True:
        check()
        cases = {entry.key: entry.value for entry in view.all()}
        if is_enough(cases):
            return cases
        seen = {key: case.state for key, case in cases.items()}
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {seen}"
        time.sleep(0.1)


def reckon(
    cases: Iterable[Record], rebookings: Iterable[Record], told: Iterable[Record], trips: Iterable[Trip]
) -> dict[str, Case]:
    """Nothing twice, nothing left out, no seat for two, nobody forgotten. `trips` are those of the end."""
    steps: dict[str, list[Record]] = defaultdict(list)
    for record in cases:
        steps[record.key].append(record)
    for key, changes in steps.items():
        assert [change.value.step for change in changes] == list(range(1, len(changes) + 1)), key
    expected = [f"{key}/{change.value.step}" for key, changes in steps.items() for change in changes]
    assert sorted(record.value.id for record in told) == sorted(expected)

    changed = [change.value for changes in steps.values() for change in changes]
    taken = [case for case in changed if case.state == states.REBOOKED]
    assert len({(case.flight, case.seat) for case in taken}) == len(taken), "a seat for two"
    given = sorted((record.key, record.value.seat, record.value.flight) for record in rebookings)
    moved = [pipeline.to_booking(case) for case in taken]
    assert given == sorted((key, booking.seat, booking.flight) for key, booking in moved)
    _check_holds(steps)

    last = {key: changes[-1].value for key, changes in steps.items()}
    for trip in trips:
        lost = next((need.lost for _, need in pipeline.needs(trip) if need.is_open), None)
        in_line = [
            case.lost
            for case in last.values()
            if case.booking.id == trip.booking.id and case.state in states.IN_LINE
        ]
        if lost is None:
            assert in_line == [], trip
        else:
            assert last[f"{trip.booking.id}/{lost}"].state not in (states.OFFERED, states.REBOOKED), trip
            assert in_line in ([], [lost]), trip
    return last


def _check_holds(steps: dict[str, list[Record]]) -> None:
    """From an offer to the next step of its case a seat is held, by one at a time."""
    holds = defaultdict(list)
    for changes in steps.values():
        for change, following in zip(changes, [*changes[1:], None], strict=True):
            if change.value.state == states.OFFERED:
                end_ms = sys.maxsize if following is None else following.timestamp_ms
                holds[change.value.flight, change.value.seat].append((change.timestamp_ms, end_ms))
    for seat, times in holds.items():
        times.sort()
        for (_, end_ms), (start_ms, _) in pairwise(times):
            assert end_ms <= start_ms, f"{seat} is held twice: {times}"


def trips_of(
    flights: Iterable[Record], bookings: Iterable[Record], rebookings: Iterable[Record]
) -> list[Trip]:
    by_number = {record.key: record.value for record in flights}
    booked = {record.key: record.value for record in [*bookings, *rebookings]}
    return [
        Trip(booking, by_number[booking.flight], by_number.get(booking.onward)) for booking in booked.values()
    ]


def reckon_topics(servers: str) -> dict[str, Case]:
    rebookings = read_committed(servers, topics.REBOOKINGS, Booking)
    flights = read_committed(servers, topics.FLIGHTS, Flight)
    trips = trips_of(flights, read_committed(servers, topics.BOOKINGS, Booking), rebookings)
    told = read_committed(servers, topics.NOTIFICATIONS, Notification)
    return reckon(read_committed(servers, topics.CASES, Case), rebookings, told, trips)
