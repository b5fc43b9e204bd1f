"""A subscriber: sees every event of finished jobs, whatever others see. Each name is a group of its own.

python subscriber.py billing
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError

DONE = "jobs-done"


class Seen:
    """A worker that dies at the wrong moment has its job done again, so an event may come twice."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self.twice = 0

    def __len__(self) -> int:
        return len(self._ids)

    def new(self, values: Iterable[bytes]) -> Iterable[str]:
        for value in values:
            job_id = json.loads(value)["id"]
            if job_id in self._ids:
                self.twice += 1
            else:
                self._ids.add(job_id)
                yield job_id


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="whose events they are: billing, search, …")
    parser.add_argument("--bootstrap-server", default="localhost:9092")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap_server,
            "group.id": given.name,
            "auto.offset.reset": "earliest",
            # What was seen is kept in memory, so a start reads everything again.
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([DONE])
    seen = Seen()
    try:
        while True:
            values = []
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    print(error, file=sys.stderr)
            if new := list(seen.new(values)):
                print(f"{given.name}: {len(seen)} jobs, {seen.twice} seen twice, last {new[-1]}", flush=True)
    except KeyboardInterrupt:
        return 0
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
