"""Understands lines of logs, and counts them and their errors by service and minute.

A line that is not understood goes to a topic of dead letters, with the reason in its headers.

    ottla run pipeline.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from entries import Entry, parse

from ottla.streams import (
    Consumed,
    Grouped,
    Materialized,
    Processor,
    Produced,
    Record,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
)

APPLICATION_ID = "logs"
ON_ERROR, DEAD_LETTER_TOPIC = "dead-letter", "log-dead"
LINES, ENTRIES, RATES = "log-lines", "log-entries", "log-rates"


@dataclass(frozen=True)
class Rate:
    lines: int = 0
    errors: int = 0

    def with_(self, entry: Entry) -> Rate:
        return Rate(self.lines + 1, self.errors + (entry.level == "error"))


class Parsing(Processor):
    def process(self, record: Record) -> None:
        entry = parse(record.key, record.value, record.timestamp_ms)
        # From here on the time is the line's own: what comes late counts for the minute it was written in.
        self.context.forward(Record(record.key, entry, entry.at_ms))


def to_row(minute: Windowed, rate: Rate) -> tuple[str, dict[str, object]]:
    """Keyed by its minute, so that what comes late replaces it."""
    from_ms = minute.window.start_ms
    row = {"service": minute.key, "from_ms": from_ms, "lines": rate.lines, "errors": rate.errors}
    return f"{minute.key}@{from_ms}", row


def build() -> Topology:
    builder = StreamsBuilder()
    entries = builder.stream(LINES, Consumed.with_(str, bytes)).process(Parsing)
    entries.to(ENTRIES, Produced.with_(str, Entry))
    # An hour: so long may a host be away before its lines are found, but counted no more.
    minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(hours=1))
    rates = (
        entries.group_by(lambda _, entry: entry.service, Grouped.with_(str, Entry).with_name("by-service"))
        .windowed_by(minutes)
        .aggregate(
            Rate, lambda _, entry, rate: rate.with_(entry), Materialized.as_("rates").with_value_serde(Rate)
        )
    )
    rates.to_stream().map(to_row).to(RATES, Produced.with_(str, dict))
    return builder.build()
