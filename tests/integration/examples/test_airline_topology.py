"""The airline's pipeline on records and without Spark: who is offered which seat, and what then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.exceptions import HTTPException
from tests.integration.examples.airline_example import (
    Answer,
    Booking,
    Case,
    Flight,
    Notification,
    Seats,
    flight,
    pipeline,
    reckon,
    trips_of,
)
from tests.integration.examples.test_log_examples import load_example
from travel.desk import ASKED_MAX, HOLD_MS

from ottla.streams.records import Record
from ottla.streams.testing import TopologyTestDriver

board = load_example("airline/board.py")
operations = load_example("airline/operations.py")
SECOND = 1_000


class Airline:
    """The driver, with the topics of the airline and all that came out of them."""

    def __init__(self, driver: TopologyTestDriver) -> None:
        self.driver = driver
        kinds = {"flights": Flight, "bookings": Booking, "seats": Seats, "answers": Answer}
        self._inputs = {name: driver.create_input_topic(name, str, kind) for name, kind in kinds.items()}
        self._results = {"cases": Case, "rebookings": Booking, "notifications": Notification}
        self.told: dict[str, list[Record]] = {name: [] for name in (*kinds, *self._results)}

    def add(self, *events: Flight | Booking | Seats) -> None:
        for event in events:
            match event:
                case Flight():
                    self._put("flights", event.number, event)
                case Booking():
                    self._put("bookings", event.id, event)
                case Seats():
                    self._put("seats", event.flight, event)

    def answer(self, case: Case, *, accepts: bool) -> None:
        self._put("answers", case.id, Answer(case.id, case.route, case.step, accepts))

    def _put(self, topic: str, key: str, event: object) -> None:
        self._inputs[topic].pipe_input(key, event)
        self.told[topic].append(Record(key, event, self.driver.now_ms))

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.driver.advance_wall_clock_time(SECOND)

    @property
    def cases(self) -> dict[str, Case]:
        for name, kind in self._results.items():
            self.told[name] += self.driver.create_output_topic(name, str, kind).read_records()
        return {record.key: record.value for record in self.told["cases"]}

    def states(self) -> dict[str, tuple[str, str]]:
        return {case.booking.id: (case.state, case.seat) for case in self.cases.values()}

    def reckon(self) -> dict[str, Case]:
        assert self.cases is not None
        told = self.told
        trips = trips_of(told["flights"], told["bookings"], told["rebookings"])
        return reckon(told["cases"], told["rebookings"], told["notifications"], trips)


@contextmanager
def airline() -> Iterator[Airline]:
    with TopologyTestDriver(pipeline.build()) as driver:
        yield Airline(driver)


def booked(number: str, tier: int = 0, cents: int = 100, onward: str = "") -> Booking:
    return Booking(number, number, tier, cents, "OT1", onward)


CANCELLED = flight("OT1", 2, is_cancelled=True)


def test_seats_are_offered_by_status_then_fare() -> None:
    with airline() as it:
        it.add(flight("OT1", 2), flight("OT2", 4), Seats("OT2", "BER-PRG", ["1A", "1B"]))
        it.add(booked("cheap"), booked("dear", cents=900), booked("gold", tier=3))
        it.wait(5)
        assert it.cases == {}
        it.add(CANCELLED)
        it.wait(5)
        assert it.states() == {"gold": ("OFFERED", "1A"), "dear": ("OFFERED", "1B"), "cheap": ("WAITING", "")}


def test_a_hold_that_expires_passes_the_seat_on() -> None:
    with airline() as it:
        it.add(flight("OT1", 2), flight("OT2", 4), Seats("OT2", "BER-PRG", ["1A"]))
        it.add(booked("gold", tier=3), booked("cheap"), CANCELLED)
        it.wait(5)
        late = it.cases["gold/OT1"]
        it.wait(HOLD_MS // SECOND + 1)
        assert it.states() == {"gold": ("EXPIRED", "1A"), "cheap": ("OFFERED", "1A")}
        it.answer(late, accepts=True)
        assert it.states()["gold"] == ("EXPIRED", "1A")
        it.answer(it.cases["cheap/OT1"], accepts=True)
        it.wait(5)
        assert it.states() == {"gold": ("EXPIRED", "1A"), "cheap": ("REBOOKED", "1A")}
        it.reckon()


def test_who_never_answers_is_told_to_come() -> None:
    with airline() as it:
        it.add(CANCELLED, flight("OT2", 4), Seats("OT2", "BER-PRG", ["1A"]), booked("gold"))
        it.wait(ASKED_MAX * (HOLD_MS // SECOND + 5))
        assert it.states() == {"gold": ("UNREACHED", "1A")}
        assert it.told["notifications"][-1].value.text.endswith("Please come to our desk.")
        it.add(booked("late"))
        it.wait(5)
        assert it.states()["late"] == ("OFFERED", "1A")


def test_a_seat_that_is_not_wanted_goes_to_the_next() -> None:
    with airline() as it:
        it.add(CANCELLED, flight("OT2", 4), Seats("OT2", "BER-PRG", ["1A"]))
        it.add(booked("gold", tier=3), booked("cheap"))
        it.wait(5)
        it.answer(it.cases["gold/OT1"], accepts=False)
        it.wait(2)
        assert it.states() == {"gold": ("DECLINED", "1A"), "cheap": ("OFFERED", "1A")}


def test_a_delay_costs_a_connection_and_a_rebooking_another() -> None:
    with airline() as it:
        onward = [flight(f"OT7{turn}", 3 + 2 * turn, route="PRG-OSL") for turn in (1, 2, 3)]
        it.add(flight("OT1", 3.3), flight("OT2", 4.5), *onward)
        it.add(booked("ann", onward="OT71"), booked("bob"))
        assert it.cases == {}, "forty minutes are enough to change"
        it.add(flight("OT1", 3.6), *(Seats(each.number, each.route, ["1A"]) for each in onward))
        it.wait(5)
        assert {key: case.flight for key, case in it.cases.items()} == {"ann/OT71": "OT72"}
        it.add(
            flight("OT1", 3.6, is_cancelled=True),
            Seats("OT2", "BER-PRG", ["2A", "2B"]),
        )
        assert it.cases["ann/OT71"].state == "RESOLVED"
        it.wait(5)
        for name in ("ann", "bob"):
            it.answer(it.cases[f"{name}/OT1"], accepts=True)
        it.wait(5)
        offered = it.cases["ann/OT71"]
        assert (offered.state, offered.flight) == ("OFFERED", "OT72")
        it.answer(offered, accepts=True)
        it.wait(5)
        it.reckon()
        trip = it.told["rebookings"][-1].value
        assert (trip.id, trip.flight, trip.onward) == ("ann", "OT2", "OT72")


def test_an_offer_on_a_flight_that_is_cancelled_too_is_void() -> None:
    with airline() as it:
        it.add(flight("OT1", 2), flight("OT2", 4), flight("OT3", 6))
        it.add(*(Seats(number, "BER-PRG", ["1A"]) for number in ("OT2", "OT3", "OT2")))
        it.add(booked("ann"), CANCELLED)
        it.wait(5)
        void = it.cases["ann/OT1"]
        it.add(flight("OT2", 4, is_cancelled=True))
        it.answer(void, accepts=True)
        it.wait(2)
        offered = it.cases["ann/OT1"]
        assert (offered.state, offered.flight, offered.asked) == ("OFFERED", "OT3", 2)
        it.add(flight("OT1", 2))
        assert it.cases["ann/OT1"].state == "RESOLVED"
        it.add(CANCELLED)
        it.wait(5)
        assert it.cases["ann/OT1"].state == "OFFERED"


@pytest.mark.parametrize("seed", range(2))
def test_a_day_of_troubles(seed: int) -> None:
    chance = random.Random(seed)
    with airline() as it:
        flights = operations.day(0)
        events = [*flights, *operations.bookings(flights, chance), *operations.free_seats(flights)]
        chance.shuffle(events)
        it.add(*events)
        for trouble in operations.troubles(flights, chance):
            it.add(trouble)
            for _ in range(6):
                it.wait(5)
                for case in list(it.cases.values()):
                    if case.state == "OFFERED" and (mood := chance.random()) < 0.6:
                        it.answer(case, accepts=mood < 0.5)
        while any(case.state == "OFFERED" for case in it.cases.values()):
            it.wait(5)
        it.reckon()
        states = {record.value.state for record in it.told["cases"]}
    assert {"REBOOKED", "DECLINED", "EXPIRED", "RESOLVED"} <= states


@pytest.mark.parametrize("body", [None, {}, {"case": "a", "route": "b", "step": True, "accepts": True}])
def test_what_is_no_answer_is_refused(body: object) -> None:
    with pytest.raises(HTTPException):
        board.parse_answer(body)


def test_the_board_changes_flights() -> None:
    given = flight("OT1", 2)
    assert board.changed(given, {"is_cancelled": True}) == CANCELLED
    assert board.changed(given, {"delay_minutes": 60}) == flight("OT1", 3)
    with pytest.raises(HTTPException):
        board.changed(given, {"is_cancelled": "yes"})
