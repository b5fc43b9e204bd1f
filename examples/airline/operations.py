"""A day at the airport: flights, bookings and free seats are published, and then things go wrong.

python operations.py --bootstrap-server localhost:9092 --every 30
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from travel.events import MINUTE_MS, Booking, Flight, Seats
from travel.topic_writer import TopicWriter

FEEDERS, ONWARD = ("BER-PRG", "WAW-PRG", "BUD-PRG"), ("PRG-LIS", "PRG-OSL", "PRG-ATH")
NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jan", "Lena", "Otto", "Rosa"]
FLIGHTS_A_DAY, PASSENGERS = 4, 12
FREE_SEATS = ["18A", "18B", "18C", "22D", "22E", "27F"]
FARES_CENTS = (4_900, 8_900, 12_900, 24_900)


def day(start_ms: int) -> list[Flight]:
    """Of each route a flight every two hours; onward flights leave an hour after feeders have come in."""
    flights = []
    for number, route in enumerate(FEEDERS + ONWARD):
        first_ms = start_ms + (number % 3 * 10 + 120 + 120 * (route in ONWARD)) * MINUTE_MS
        for turn in range(FLIGHTS_A_DAY):
            departs_ms = first_ms + turn * 120 * MINUTE_MS
            flights.append(
                Flight(f"OT{number + 1}{turn + 1:02}", route, departs_ms, departs_ms + 60 * MINUTE_MS)
            )
    return flights


def bookings(flights: list[Flight], chance: random.Random) -> Iterator[Booking]:
    onward = {
        (flight.route, flight.number[-1]): flight.number for flight in flights if flight.route in ONWARD
    }
    for flight in flights:
        for place in range(PASSENGERS):
            connection = ""
            if flight.route in FEEDERS and chance.random() < 0.4:
                connection = onward[chance.choice(ONWARD), flight.number[-1]]
            tier = chance.choices((0, 1, 2, 3), (6, 3, 2, 1))[0]
            name = f"{chance.choice(NAMES)} {chr(65 + chance.randrange(26))}."
            yield Booking(
                f"{flight.number}-{place + 1:02}",
                name,
                tier,
                chance.choice(FARES_CENTS),
                flight.number,
                connection,
            )


def free_seats(flights: list[Flight]) -> Iterator[Seats]:
    for flight in flights:
        yield Seats(flight.number, flight.route, FREE_SEATS)


def troubles(flights: list[Flight], chance: random.Random) -> Iterator[Flight]:
    """A flight that is cancelled, one that is so late that connections are lost, and so on."""
    first = [flight for flight in flights if not flight.number.endswith(str(FLIGHTS_A_DAY))]
    chance.shuffle(first)
    late = [flight for flight in first if flight.route in FEEDERS][::2]
    cancelled = [flight for flight in first if flight not in late]
    for one, other in zip(cancelled, late, strict=False):
        yield replace(one, is_cancelled=True)
        yield other.delayed(90 * MINUTE_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help="something goes wrong")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    writer = TopicWriter(given.bootstrap_server)
    flights = day(int(time.time() * 1000))
    writer.write(*flights, *bookings(flights, chance), *free_seats(flights))
    for trouble in troubles(flights, chance):
        time.sleep(given.every)
        writer.write(trouble)
        print(trouble, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
