"""Windows after Kafka Streams: tumbling and hopping, sliding, session, unlimited, and those of joins.

Every span is a ``timedelta`` or a whole number of milliseconds. Grace is how long after its end a window
still takes late records; it is always given, because a silent default hides how long results stay open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from ottla.streams.errors import TopologyError
from ottla.streams.records import Window

Duration = timedelta | int

UNLIMITED_MS = (1 << 63) - 1


def milliseconds(name: str, span: Duration, *, minimum_ms: int = 0) -> int:
    """A span in milliseconds, refused with its name when it is too short or not a span."""
    if isinstance(span, timedelta):
        span_ms = span // timedelta(milliseconds=1)
    elif isinstance(span, int) and not isinstance(span, bool):
        span_ms = span
    else:
        raise TopologyError(f"{name} is {span!r}: give a timedelta or a whole number of milliseconds")
    if span_ms < minimum_ms:
        raise TopologyError(f"{name} is {span_ms} ms: it must be at least {minimum_ms} ms")
    return span_ms


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Fixed windows aligned to the epoch: tumbling, or hopping with ``advance_by``."""

    size_ms: int
    advance_ms: int
    grace_ms: int

    @classmethod
    def of_size_and_grace(cls, size: Duration, grace: Duration) -> TimeWindows:
        size_ms = milliseconds("window size", size, minimum_ms=1)
        return cls(size_ms, size_ms, milliseconds("grace", grace))

    @classmethod
    def of_size_with_no_grace(cls, size: Duration) -> TimeWindows:
        return cls.of_size_and_grace(size, 0)

    def advance_by(self, advance: Duration) -> TimeWindows:
        advance_ms = milliseconds("advance", advance, minimum_ms=1)
        if advance_ms > self.size_ms:
            raise TopologyError(
                f"advance is {advance_ms} ms: it must not exceed the window size of {self.size_ms} ms"
            )
        return replace(self, advance_ms=advance_ms)

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        """The windows a timestamp falls into, oldest first."""
        first = max(0, timestamp_ms - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return [
            Window(start, start + self.size_ms) for start in range(first, timestamp_ms + 1, self.advance_ms)
        ]

    @property
    def retention_ms(self) -> int:
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class UnlimitedWindows:
    """One window from a start that never closes."""

    start_ms: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        return cls()

    def start_on(self, start_ms: int) -> UnlimitedWindows:
        return UnlimitedWindows(start_ms)

    @property
    def size_ms(self) -> int:
        return UNLIMITED_MS - self.start_ms

    @property
    def grace_ms(self) -> int:
        return 0

    @property
    def retention_ms(self) -> int:
        return UNLIMITED_MS

    def windows_for(self, timestamp_ms: int) -> list[Window]:
        return [Window(self.start_ms, UNLIMITED_MS)] if timestamp_ms >= self.start_ms else []


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that end at, or start right after, a record: all records within a time difference of each
    other."""

    time_difference_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> SlidingWindows:
        return cls(milliseconds("time difference", difference), milliseconds("grace", grace))

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> SlidingWindows:
        return cls.of_time_difference_and_grace(difference, 0)

    @property
    def retention_ms(self) -> int:
        # A late record looks back two spans for the windows it splits.
        return 2 * self.time_difference_ms + self.grace_ms + 1


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Spans of activity of a key, separated by a gap of inactivity; a late record can merge two of them."""

    inactivity_gap_ms: int
    grace_ms: int

    @classmethod
    def of_inactivity_gap_and_grace(cls, gap: Duration, grace: Duration) -> SessionWindows:
        return cls(milliseconds("inactivity gap", gap, minimum_ms=1), milliseconds("grace", grace))

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, gap: Duration) -> SessionWindows:
        return cls.of_inactivity_gap_and_grace(gap, 0)

    @property
    def retention_ms(self) -> int:
        return self.inactivity_gap_ms + self.grace_ms


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far apart in time two records may lie to be joined."""

    before_ms: int
    after_ms: int
    grace_ms: int

    @classmethod
    def of_time_difference_and_grace(cls, difference: Duration, grace: Duration) -> JoinWindows:
        difference_ms = milliseconds("time difference", difference)
        return cls(difference_ms, difference_ms, milliseconds("grace", grace))

    @classmethod
    def of_time_difference_with_no_grace(cls, difference: Duration) -> JoinWindows:
        return cls.of_time_difference_and_grace(difference, 0)

    def before(self, span: Duration) -> JoinWindows:
        """The other record may be up to this much older."""
        return replace(self, before_ms=milliseconds("before", span, minimum_ms=-self.after_ms))

    def after(self, span: Duration) -> JoinWindows:
        """The other record may be up to this much younger."""
        return replace(self, after_ms=milliseconds("after", span, minimum_ms=-self.before_ms))

    @property
    def size_ms(self) -> int:
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        return self.size_ms + self.grace_ms


AggregationWindows = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
