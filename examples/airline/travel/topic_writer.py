"""Writes events to topics, each under its key."""

from __future__ import annotations

from confluent_kafka import Producer

from ottla.streams import Serdes
from travel import topics
from travel.events import Answer, Booking, Flight, Seats

TARGETS = {
    Flight: (topics.FLIGHTS, lambda flight: flight.number),
    Booking: (topics.BOOKINGS, lambda booking: booking.id),
    Seats: (topics.SEATS, lambda seats: seats.flight),
    Answer: (topics.ANSWERS, lambda answer: answer.case),
}


class TopicWriter:
    def __init__(self, bootstrap_servers: str) -> None:
        # The partitioner of Kafka Streams: tables that are joined must lie in the same partitions.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )

    def write(self, *events: Flight | Booking | Seats | Answer) -> None:
        """Returns when all of them are stored."""
        failures = []
        for event in events:
            topic, key = TARGETS[type(event)]
            self._producer.produce(
                topic,
                Serdes.of(type(event)).serialize(event),
                key(event),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        left = self._producer.flush(30)
        if left or failures:
            raise OSError(f"{left + len(failures)} of {len(events)} events are not stored: {failures[:1]}")
