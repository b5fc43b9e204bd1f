"""Figures per minute and host, and alerts that do not flutter.

An alert is raised after three readings in a row above a limit and taken back after three below a lower one.
In between nothing changes: that is hysteresis, and why nobody is woken for every second above 90 %.

    ottla run pipeline.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from ottla.streams import (
    Consumed,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
)

APPLICATION_ID = "host-metrics"
READINGS, MINUTES, ALERTS = "host-metrics", "host-minutes", "host-alerts"
RAISED_ABOVE, CLEARED_BELOW = 90.0, 80.0
IN_A_ROW = 3


@dataclass(frozen=True)
class Summary:
    count: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    highest: dict[str, float] = field(default_factory=dict)

    def with_(self, reading: dict[str, float]) -> Summary:
        sums = {name: self.sums.get(name, 0.0) + value for name, value in reading.items()}
        highest = {name: max(self.highest.get(name, value), value) for name, value in reading.items()}
        return Summary(self.count + 1, self.sums | sums, self.highest | highest)

    @property
    def means(self) -> dict[str, float]:
        return {name: round(total / self.count, 2) for name, total in self.sums.items()}


@dataclass(frozen=True)
class Alarm:
    is_raised: bool = False
    in_a_row: int = 0
    """Readings that speak for changing that."""

    def after(self, value: float) -> Alarm:
        speaks_for_change = value < CLEARED_BELOW if self.is_raised else value > RAISED_ABOVE
        if not speaks_for_change:
            return Alarm(self.is_raised)
        if self.in_a_row + 1 < IN_A_ROW:
            return Alarm(self.is_raised, self.in_a_row + 1)
        return Alarm(not self.is_raised)


class Watching(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.alarms = context.get_state_store("alarms")

    def process(self, record: Record) -> None:
        for name, value in record.value.items():
            key = f"{record.key}/{name}"
            before = self.alarms.get(key) or Alarm()
            after = before.after(value)
            if after != before:
                self.alarms.put(key, after)
            if after.is_raised != before.is_raised:
                state = {"state": "raised" if after.is_raised else "cleared", "value": round(value, 2)}
                self.context.forward(Record(key, state, record.timestamp_ms))


def to_row(minute: Windowed, summary: Summary) -> tuple[str, dict[str, object]]:
    row = {"from_ms": minute.window.start_ms, "mean": summary.means, "highest": summary.highest}
    return minute.key, row


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("alarms", str, Alarm))
    readings = builder.stream(READINGS, Consumed.with_(str, dict))
    minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(seconds=10))
    summaries = (
        readings.group_by_key()
        .windowed_by(minutes)
        .aggregate(
            Summary,
            lambda _, reading, summary: summary.with_(reading),
            Materialized.as_("minutes").with_value_serde(Summary),
        )
    )
    summaries.to_stream().map(to_row).to(MINUTES, Produced.with_(str, dict))
    readings.process(Watching, stores=["alarms"]).to(ALERTS, Produced.with_(str, dict))
    return builder.build()
