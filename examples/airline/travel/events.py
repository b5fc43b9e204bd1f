"""The airline's events. Programs know each other by these alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from travel import states

MINUTE_MS = 60_000
CONNECTING_MS = 40 * MINUTE_MS
"""It takes so long to change from one flight to the next."""


@dataclass(frozen=True)
class Flight:
    number: str
    route: str
    departs_ms: int
    arrives_ms: int
    is_cancelled: bool = False

    def delayed(self, by_ms: int) -> Flight:
        return replace(self, departs_ms=self.departs_ms + by_ms, arrives_ms=self.arrives_ms + by_ms)


@dataclass(frozen=True)
class Booking:
    id: str
    passenger: str
    tier: int
    """Status, 0 to 3."""
    fare_cents: int
    flight: str
    onward: str = ""
    """The connecting flight, if there is one."""
    seat: str = ""
    """The last one that was given."""

    def moved(self, lost: str, flight: str, seat: str) -> Booking:
        if self.flight == lost:
            return replace(self, flight=flight, seat=seat)
        return replace(self, onward=flight, seat=seat)


@dataclass(frozen=True)
class Trip:
    """A booking with its flights, as they are now."""

    booking: Booking
    flight: Flight
    onward: Flight | None = None


@dataclass(frozen=True)
class Need:
    """Whether a booking needs another seat on a route, and why."""

    booking: Booking
    lost: str
    """The flight that is cancelled, or that cannot be reached any more."""
    is_open: bool
    after_ms: int = 0
    """Flights before this are of no use."""


@dataclass(frozen=True)
class Seats:
    flight: str
    route: str
    seats: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    booking: Booking
    lost: str
    route: str
    after_ms: int
    state: str = states.WAITING
    step: int = 0
    """Every change is another step. An answer names the one it answers."""
    asked: int = 0
    flight: str = ""
    seat: str = ""
    until_ms: int = 0
    """The seat is held until then."""

    @property
    def id(self) -> str:
        return f"{self.booking.id}/{self.lost}"

    @property
    def rank(self) -> tuple[int, int, int, str]:
        """Who was asked less often comes first, then status, then fare."""
        return (self.asked, -self.booking.tier, -self.booking.fare_cents, self.booking.id)


@dataclass(frozen=True)
class Answer:
    case: str
    route: str
    step: int
    accepts: bool


@dataclass(frozen=True)
class Notification:
    id: str
    """The same for the same message, so that whoever sends it can leave out what was sent."""
    passenger: str
    text: str
