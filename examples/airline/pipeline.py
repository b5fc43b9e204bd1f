"""Another seat for everybody whose flight is cancelled or whose connection is lost.

Bookings are joined with their flights, so whatever changes there gives a new trip for each passenger it
concerns. Trips say who needs a seat on which route; the desk of the route (`travel/desk.py`) makes offers. A
seat that is taken is a booking that has changed, and so the next trip: a connection that is lost by it is the
next need.

ottla run pipeline.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from collections.abc import Iterator

from travel import states, topics
from travel.desk import Desk
from travel.events import CONNECTING_MS, Answer, Booking, Case, Flight, Need, Notification, Seats, Trip

from ottla.streams import (
    Consumed,
    Materialized,
    Produced,
    Repartitioned,
    Serdes,
    StreamsBuilder,
    TableJoined,
    Topology,
)

APPLICATION_ID = "airline"
TEXTS = {
    states.WAITING: "{lost} will not take you. You are in line for the next seat {route}.",
    states.OFFERED: "Seat {seat} on {flight} is held for you. Do you take it?",
    states.EXPIRED: "We had to pass on seat {seat} on {flight}. You are still in line.",
    states.REBOOKED: "You fly with {flight}, seat {seat}.",
    states.DECLINED: "You did not want seat {seat} on {flight}. Your fare is paid back.",
    states.UNREACHED: "We could not reach you about {lost}. Please come to our desk.",
    states.RESOLVED: "You need no other flight for {lost} any more.",
}


def needs(trip: Trip) -> Iterator[tuple[str, Need]]:
    """One for each route of the trip: the desk of a route hears also that nothing is needed any more."""
    flight, onward = trip.flight, trip.onward
    at_gate_ms = flight.arrives_ms + CONNECTING_MS
    lost, after_ms = None, 0
    if flight.is_cancelled:
        lost, after_ms = flight, flight.departs_ms
    elif onward is not None and (onward.is_cancelled or onward.departs_ms < at_gate_ms):
        lost, after_ms = onward, at_gate_ms
    for leg in filter(None, (flight, onward)):
        yield leg.route, Need(trip.booking, leg.number, leg is lost, after_ms if leg is lost else 0)


def to_booking(case: Case) -> tuple[str, Booking]:
    booking = case.booking.moved(case.lost, case.flight, case.seat)
    return booking.id, booking


def to_notification(case: Case) -> tuple[str, Notification]:
    text = TEXTS[case.state].format(lost=case.lost, route=case.route, flight=case.flight, seat=case.seat)
    return case.booking.id, Notification(f"{case.id}/{case.step}", case.booking.passenger, text)


def build() -> Topology:
    builder = StreamsBuilder()
    flown = builder.stream(topics.FLIGHTS, Consumed.with_(str, Flight))
    flights = flown.to_table(Materialized.as_("flights"))
    booked = builder.stream([topics.BOOKINGS, topics.REBOOKINGS], Consumed.with_(str, Booking))
    bookings = booked.to_table(Materialized.as_("bookings"))
    trips = bookings.join(
        flights,
        Trip,
        Materialized.as_("first-legs").with_value_serde(Trip),
        foreign_key=lambda booking: booking.flight,
        table_joined=TableJoined.as_("by-flight"),
    ).left_join(
        flights,
        lambda trip, onward: Trip(trip.booking, trip.flight, onward),
        Materialized.as_("trips").with_value_serde(Trip),
        foreign_key=lambda trip: trip.booking.onward or None,
        table_joined=TableJoined.as_("by-onward-flight"),
    )
    needed = trips.to_stream().filter(lambda trip: trip is not None).flat_map(needs)
    opened = builder.stream(topics.SEATS, Consumed.with_(str, Seats))
    answered = builder.stream(topics.ANSWERS, Consumed.with_(str, Answer))

    told = flown.merge(opened).merge(answered).select_key(lambda event: event.route).merge(needed)
    events = Serdes.one_of(Flight, Seats, Need, Answer)
    cases = told.repartition(Repartitioned.with_(str, events).with_name("events-by-route")).process(Desk)
    cases.to(topics.CASES, Produced.with_(str, Case))
    rebooked = cases.filter(lambda case: case.state == states.REBOOKED).map(to_booking)
    rebooked.to(topics.REBOOKINGS, Produced.with_(str, Booking))
    cases.map(to_notification).to(topics.NOTIFICATIONS, Produced.with_(str, Notification))
    return builder.build()
