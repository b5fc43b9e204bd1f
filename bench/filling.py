"""Topics filled by librdkafka, as fast as it goes."""

from __future__ import annotations

from collections.abc import Iterable

FLUSH_TIMEOUT_S = 600
ANY_PARTITION = -1

Row = tuple[str, bytes, bytes, int]
"""Topic, value, key, partition."""


def fill(settings: dict[str, str | int], rows: Iterable[Row]) -> int:
    """The number of records, when all of them are written."""
    from confluent_kafka import Producer

    producer = Producer({"linger.ms": 50, **settings})
    count = 0
    for count, row in enumerate(rows, 1):
        while True:
            try:
                producer.produce(*row)
                break
            except BufferError:
                producer.poll(0.05)
        if count % 1000 == 0:
            producer.poll(0)
    if left := producer.flush(FLUSH_TIMEOUT_S):
        raise TimeoutError(f"{left} records could not be written")
    return count
