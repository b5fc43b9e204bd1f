"""The desk of a route: who needs a seat on it, which seats there are, and who is offered one.

All of a route lies in one task, so one desk decides over its seats and none can be held twice. What it is
told comes from four topics, in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from ottla.streams import Processor, ProcessorContext, PunctuationType, Record, Stores
from travel import states
from travel.events import Answer, Case, Flight, Need, Seats

TICK = timedelta(seconds=1)
# Long enough that all whom a cancellation hits are in line before the first of them is offered a seat.
GATHERING_MS = 3_000
# Short, so that there is something to see.
HOLD_MS = 20_000
ASKED_MAX = 2


class Desk(Processor):
    # Keys begin with the route. A seat's value is the case that has it, or nothing.
    stores = (
        Stores.key_value_store("schedule", str, Flight),
        Stores.key_value_store("seats", str, str),
        Stores.key_value_store("cases", str, Case),
        # By time, so that what is due is at the beginning.
        Stores.key_value_store("holds", str, str),
        Stores.key_value_store("routes-to-look-at", str, int),
    )

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.schedule, self.seats, self.cases, self.holds, self.due = (
            context.get_state_store(store.name) for store in self.stores
        )
        context.schedule(TICK, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record) -> None:
        match record.value:
            case Flight() as flight:
                self._flight(record.key, flight)
            case Seats() as opened:
                self._opened(record.key, opened)
            case Need() as need:
                self._need(record.key, need)
            case Answer() as answer:
                self._answer(record.key, answer)

    @property
    def now_ms(self) -> int:
        return self.context.current_system_time_ms

    def cases_of(self, route: str, booking: str = "") -> list[Case]:
        prefix = f"{route}/{booking}/" if booking else f"{route}/"
        return [case for _, case in self.cases.prefix_scan(prefix.encode())]

    def look_at(self, route: str, in_ms: int = 0) -> None:
        self.due.put(route, self.now_ms + in_ms)

    def move(self, case: Case, state: str) -> None:
        """The one way in which a case changes: it is kept, and told."""
        moved = replace(case, state=state, step=case.step + 1)
        self.cases.put(f"{case.route}/{case.id}", moved)
        self.context.forward(Record(case.id, moved, self.now_ms))

    def hold(self, case: Case, flight: str, seat: str) -> None:
        until_ms = self.now_ms + HOLD_MS
        self.seats.put(f"{case.route}/{flight}/{seat}", case.id)
        self.holds.put(_hold_key(until_ms, case), "")
        held = replace(case, asked=case.asked + 1, flight=flight, seat=seat, until_ms=until_ms)
        self.move(held, states.OFFERED)

    def end_hold(self, case: Case, state: str) -> None:
        """The seat is free again, unless it was taken."""
        self.holds.delete(_hold_key(case.until_ms, case))
        if state != states.REBOOKED:
            self.seats.put(f"{case.route}/{case.flight}/{case.seat}", "")
            self.look_at(case.route)
        self.move(case, state)

    def _flight(self, route: str, flight: Flight) -> None:
        """Nobody is offered a seat on one that is cancelled."""
        self.schedule.put(f"{route}/{flight.number}", flight)
        self.look_at(route)
        if flight.is_cancelled:
            for case in self.cases_of(route):
                if case.state == states.OFFERED and case.flight == flight.number:
                    self.end_hold(case, states.WAITING)

    def _opened(self, route: str, opened: Seats) -> None:
        """Seats that may be given away; one that is known already is not a second one."""
        for seat in opened.seats:
            self.seats.put_if_absent(f"{route}/{opened.flight}/{seat}", "")
        self.look_at(route)

    def _need(self, route: str, need: Need) -> None:
        """Who needs a seat, or no longer does."""
        if not need.is_open:
            self._resolve(route, need.booking.id)
            return
        new = Case(need.booking, need.lost, route, need.after_ms)
        known = self.cases.get(f"{route}/{new.id}")
        if known is not None and known.state in (*states.IN_LINE, states.OFFERED):
            self.cases.put(f"{route}/{new.id}", replace(known, after_ms=need.after_ms))
        elif known is None or known.state == states.RESOLVED or known.booking != need.booking:
            self.move(replace(new, step=known.step if known else 0), states.WAITING)
        self.look_at(route, GATHERING_MS)

    def _resolve(self, route: str, booking: str) -> None:
        for case in self.cases_of(route, booking):
            if case.state == states.OFFERED:
                self.end_hold(case, states.RESOLVED)
            elif case.state in states.IN_LINE:
                self.move(case, states.RESOLVED)

    def _tick(self, now_ms: int) -> None:
        for key, _ in list(self.holds.range(None, f"{now_ms:013d}")):
            case = self.cases.get(key.partition("/")[2])
            self.end_hold(case, states.EXPIRED if case.asked < ASKED_MAX else states.UNREACHED)
        for route, at_ms in list(self.due.all()):
            if at_ms <= now_ms:
                self.due.delete(route)
                self._offer(route)

    def _offer(self, route: str) -> None:
        free = list(self._free_seats(route))
        for case in sorted(self.cases_of(route), key=lambda case: case.rank):
            if case.state not in states.IN_LINE:
                continue
            for place in free:
                flight, seat = place
                if flight.departs_ms >= case.after_ms and flight.number != case.lost:
                    self.hold(case, flight.number, seat)
                    free.remove(place)
                    break

    def _free_seats(self, route: str) -> Iterator[tuple[Flight, str]]:
        """The next flight first."""
        flights = [flight for _, flight in self.schedule.prefix_scan(f"{route}/".encode())]
        for flight in sorted(flights, key=lambda flight: flight.departs_ms):
            if not flight.is_cancelled and flight.departs_ms > self.now_ms + HOLD_MS:
                for key, holder in self.seats.prefix_scan(f"{route}/{flight.number}/".encode()):
                    if not holder:
                        yield flight, key.rpartition("/")[2]

    def _answer(self, route: str, answer: Answer) -> None:
        """Who answers an offer that is over has not got the seat, and was told so."""
        case = self.cases.get(f"{route}/{answer.case}")
        if case is not None and case.state == states.OFFERED and case.step == answer.step:
            self.end_hold(case, states.REBOOKED if answer.accepts else states.DECLINED)


def _hold_key(until_ms: int, case: Case) -> str:
    return f"{until_ms:013d}/{case.route}/{case.id}"
