"""Anomalies in sensor readings, with a processor that keeps statistics and a timer that notices silence.

A reading further than four standard deviations from the mean of its sensor is reported at once (Welford's
method keeps mean and variance in three numbers). A timer looks every ten seconds for sensors that have been
silent for a minute.

    ottla run anomalies.py --bootstrap-server localhost:9092
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import timedelta

from ottla.streams import (
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    Record,
    Stores,
    StreamsBuilder,
    Topology,
)

APPLICATION_ID = "anomalies"
DEVIATIONS_MAX = 4.0
READINGS_MIN = 10
SILENCE_MAX = timedelta(minutes=1)


@dataclass(frozen=True)
class Statistics:
    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    seen_ms: int = 0
    silent: bool = False

    def with_reading(self, reading: float, now_ms: int) -> Statistics:
        count = self.count + 1
        mean = self.mean + (reading - self.mean) / count
        squares = self.squares + (reading - self.mean) * (reading - mean)
        return Statistics(count, mean, squares, now_ms)

    def deviations(self, reading: float) -> float:
        """How many standard deviations a reading is away; 0 while too little is known."""
        if self.count < READINGS_MIN:
            return 0.0
        deviation = math.sqrt(self.squares / (self.count - 1)) or 1e-9
        return abs(reading - self.mean) / deviation


class Detector(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.sensors = context.get_state_store("sensors")
        context.schedule(timedelta(seconds=10), PunctuationType.WALL_CLOCK_TIME, self.look_for_silence)

    def process(self, record: Record) -> None:
        known = self.sensors.get(record.key) or Statistics()
        deviations = known.deviations(record.value)
        if deviations > DEVIATIONS_MAX:
            self.context.forward(record.with_value(f"{record.value} is {deviations:.1f} deviations off"))
            known = replace(known, seen_ms=self.context.current_system_time_ms, silent=False)
        else:
            known = known.with_reading(record.value, self.context.current_system_time_ms)
        self.sensors.put(record.key, known)

    def look_for_silence(self, now_ms: int) -> None:
        for sensor, known in self.sensors.all():
            silence = timedelta(milliseconds=now_ms - known.seen_ms)
            if silence >= SILENCE_MAX and not known.silent:
                self.context.forward(Record(sensor, f"silent for {silence.seconds} seconds", now_ms))
                self.sensors.put(sensor, replace(known, silent=True))


def build() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("sensors", str, Statistics))
    readings = builder.stream("readings", Consumed.with_(str, float))
    readings.process(Detector, stores=["sensors"]).to("anomalies", Produced.with_(str, str))
    return builder.build()
